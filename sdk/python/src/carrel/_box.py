"""A sandbox: what can be done with one, written once for both kinds of callers."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from . import _leases
from ._endpoint import Endpoint, find_endpoint
from ._following import Attendance, Listener
from ._settings import Mount, Size, settings_of
from ._steps import Request, Steps, Work, operation
from .errors import (
    ConflictError,
    GoneError,
    NotFoundError,
    NotStartedError,
    SandboxError,
)
from .results import CommandInfo, Diff, ExecResult, Port, SandboxInfo, Service, Snapshot, Usage

log = logging.getLogger("carrel")

GRACE = 2.0


def _take_back(creation: Request) -> Steps[None]:
    """Removes what a call was making when it was given up: asked again with the same key, the
    daemon names the sandbox. What it is slow to name ends with its lease."""
    for _ in range(20):
        try:
            made = (yield creation).json()
        except ConflictError:
            yield Work(lambda: time.sleep(0.05))  # it is still being made
        except SandboxError:
            return
        else:
            yield Request("DELETE", f"/v1/sandboxes/{made['id']}", {"grace_ms": "0"})
            return


class BoxCore:
    """What :class:`Sandbox` and :class:`AsyncSandbox` have in common."""

    def __init__(
        self,
        *,
        name: str | None = None,
        image: str | None = None,
        workspace: str | None = None,
        share_workspace: bool | None = None,
        workdir: str | None = None,
        env: Mapping[str, str] | None = None,
        mounts: Sequence[Mount] | None = None,
        network: Union[str, Sequence[str], None] = None,
        credentials: Sequence[str] | None = None,
        memory: Size | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        disk: Size | None = None,
        tmp: Size | None = None,
        timeout: Union[float, str, None] = None,
        writable_root: bool | None = None,
        user: str | None = None,
        hostname: str | None = None,
        require: Union[str, Sequence[str], None] = None,
        backend: str | None = None,
        isolation: str | None = None,
        on_idle: Literal["none", "pause", "stop", "remove"] | None = None,
        idle_timeout: Union[float, str, None] = None,
        on_failure: Literal["none", "recreate"] | None = None,
        services: Mapping[str, Mapping[str, Any]] | None = None,
        first: Union[str, Sequence[str], None] = None,
        lease: float | None = 120.0,
        endpoint: Endpoint | None = None,
    ) -> None:
        """What is not given is as the daemon's configuration says. `timeout` is that of a command
        that has none of its own. `on_idle` is what becomes of it when nobody has used it for
        `idle_timeout` seconds. With `on_failure` "recreate" one that dies is there again for the next
        call, with its workspace. `services` are programs that run as long as it does:
        {"web": {"command": "…", "ready": {"port": 8000}}}. `first` is a command that is run as
        soon as the sandbox is there, in the same call of the daemon: a text for its long-lived bash,
        or the words of a program; its result is in the attribute of that name. The sandbox ends
        `lease` seconds after this program last said that it needs it, which it does by itself; None
        keeps it until it is removed."""
        self._settings = settings_of(
            name=name,
            image=image,
            workspace=workspace,
            share_workspace=share_workspace,
            workdir=workdir,
            env=env,
            mounts=mounts,
            network=network,
            credentials=credentials,
            memory=memory,
            cpus=cpus,
            pids=pids,
            disk=disk,
            tmp=tmp,
            timeout=timeout,
            writable_root=writable_root,
            user=user,
            hostname=hostname,
            require=require,
            backend=backend,
            isolation=isolation,
            on_idle=on_idle,
            idle_timeout=idle_timeout,
            on_failure=on_failure,
            services=services,
        )
        self._first = first
        self.first: ExecResult | None = None
        """How the first command ended, if there was one."""
        self._lease = lease
        self._id: str | None = None
        self._closed = False
        self._is_own = True  # made here, and so removed here
        self._connect(endpoint or find_endpoint())

    def _note_failure(self, failure: Exception, error: BaseException | None) -> None:
        """It could not be removed. That is no reason to hide why its block ended; the lease ends
        the sandbox either way."""
        if error is None:
            raise failure
        log.warning("the sandbox %s could not be removed: %s", self._id, failure)

    @property
    def _endpoint(self) -> Endpoint:
        raise NotImplementedError

    def _connect(self, endpoint: Endpoint) -> None:
        raise NotImplementedError

    def _adopt(self, box_id: str) -> None:
        """It is a sandbox that somebody else made, and that stays."""
        self._id = box_id
        self._is_own = False
        self._lease = None

    @property
    def id(self) -> str:
        """The sandbox's id, a UUID."""
        if self._closed:
            raise NotStartedError("the sandbox is closed")
        if self._id is None:
            raise NotStartedError(
                "the sandbox is not started (use it in a 'with' block, or call open())"
            )
        return self._id

    def _path(self, action: str = "") -> str:
        return f"/v1/sandboxes/{self.id}{action}"

    def _create(self) -> Steps[SandboxInfo]:
        if self._id is not None and not self._closed:
            raise ConflictError(f"the sandbox {self._id} is open already")
        body = dict(self._settings)
        if self._lease is not None:
            body["lease"] = self._lease
        if self._first is not None:
            text = isinstance(self._first, str)
            body["run"] = {"command": self._first} if text else {"argv": list(self._first)}
        request = Request(
            "POST",
            "/v1/sandboxes",
            json=body,
            headers={"idempotency-key": str(uuid.uuid4())},
            patience=300.0 if self._first is None else None,
            repeatable=True,
        )
        try:
            reply = yield request
        except SandboxError:
            raise
        except BaseException:
            yield from _take_back(request)
            raise
        made = reply.json()
        info = SandboxInfo.of(made)
        # Of one whose first answer was lost nobody knows it: a command is not run twice.
        result = made.get("result")
        self.first = None if result is None else ExecResult.of(result)
        self._id = info.id
        self._closed = False
        self._hold()
        return info

    def _remove(self, grace: float) -> Steps[None]:
        """Ends it if it was made here. A second time, or after its end, there is nothing to do."""
        box_id, closed = self._id, self._closed
        self._closed = True
        if box_id is None or closed or not self._is_own:
            return
        _leases.KEEPER.release(box_id)
        query = {"grace_ms": str(int(grace * 1000))}
        try:
            yield Request("DELETE", f"/v1/sandboxes/{box_id}", query, repeatable=True)
        except (GoneError, NotFoundError):
            pass
        except BaseException:
            self._closed = False
            raise

    @operation
    def run(
        self,
        command: str,
        *,
        timeout: Union[float, str, None] = None,
        session: str | None = None,
        stdin: str | None = None,
        merged: bool = False,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        check: bool = False,
    ) -> Steps[ExecResult]:
        """Runs a command in the sandbox's long-lived bash: directory, variables, functions and jobs
        stay from one call to the next. `session` names another shell. `merged` gives stderr within
        stdout, in order. `on_stdout` and `on_stderr` are called with text as it comes. A command
        that takes longer than `timeout` seconds is killed with all that it started, and the result
        says so; with `check`, that and every other failure is raised. Giving up the call (an
        exception, a cancelled task) kills the command."""
        body = {"command": command, "merged": merged}
        more = {"timeout": timeout, "session": session, "stdin": stdin}
        body.update({name: value for name, value in more.items() if value is not None})
        return (yield from self._run("/shell", body, on_stdout, on_stderr, check))

    @operation
    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout: Union[float, str, None] = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: str | None = None,
        merged: bool = False,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        check: bool = False,
    ) -> Steps[ExecResult]:
        """Runs a program of its own, beside the shell and without one: `argv` is its words."""
        body: dict[str, Any] = {"argv": [*argv], "merged": merged, "env": dict(env or {})}
        more = {"timeout": timeout, "workdir": workdir, "stdin": stdin}
        body.update({name: value for name, value in more.items() if value is not None})
        return (yield from self._run("/exec", body, on_stdout, on_stderr, check))

    def _run(
        self,
        action: str,
        body: dict[str, Any],
        on_stdout: Listener | None,
        on_stderr: Listener | None,
        check: bool,
    ) -> Steps[ExecResult]:
        if on_stdout is None and on_stderr is None:
            reply = yield Request("POST", self._path(action), json=body, patience=None)
            result = ExecResult.of(reply.json())
        else:
            attendance = Attendance(on_stdout, on_stderr)
            yield Request(
                "POST",
                self._path(action),
                json=body,
                headers={"accept": "text/event-stream"},
                sink=attendance.take,
                patience=None,
            )
            result = attendance.result()
        return result.check() if check else result

    def _spawn(
        self,
        command: Union[str, Sequence[str]],
        *,
        timeout: Union[float, str, None] = None,
        session: str | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: bool = False,
        merged: bool = False,
        terminal: tuple[int, int] | None = None,
    ) -> Steps[str]:
        body: dict[str, Any] = {"stdin": stdin, "merged": merged}
        if isinstance(command, str) and session is not None:
            body.update(command=command, session=session)
        elif isinstance(command, str):
            body["argv"] = ["bash", "-c", command]
        else:
            body["argv"] = [*command]
        more = {"timeout": timeout, "env": env and dict(env), "workdir": workdir}
        body.update({name: value for name, value in more.items() if value is not None})
        if terminal is not None:
            body.update(terminal=True, rows=terminal[0], columns=terminal[1])
        reply = yield Request("POST", self._path("/commands"), json=body)
        command_id: str = reply.json()["id"]
        return command_id

    @operation
    def commands(self) -> Steps[Sequence[CommandInfo]]:
        """The commands that the sandbox knows, those that have ended included."""
        reply = yield Request("GET", self._path("/commands"), repeatable=True)
        return [CommandInfo.of(row) for row in reply.json()["commands"]]

    @operation
    def info(self) -> Steps[SandboxInfo]:
        """What is known of it: its state, its settings, and what of them the host enforces."""
        reply = yield Request("GET", self._path(), repeatable=True)
        return SandboxInfo.of(reply.json())

    @operation
    def is_alive(self) -> Steps[bool]:
        """Whether it is there and has not ended."""
        try:
            reply = yield Request("GET", self._path(), repeatable=True)
        except GoneError:
            return False
        return bool(reply.json()["state"] != "ended")

    @operation
    def pause(self) -> Steps[SandboxInfo]:
        """Makes everything in it stand still, with what is in its memory."""
        reply = yield Request("POST", self._path("/pause"), repeatable=True)
        return SandboxInfo.of(reply.json())

    @operation
    def resume(self) -> Steps[SandboxInfo]:
        """Lets a paused one go on."""
        reply = yield Request("POST", self._path("/resume"), repeatable=True)
        return SandboxInfo.of(reply.json())

    @operation
    def stop(self, *, grace: float = GRACE) -> Steps[SandboxInfo]:
        """Ends what runs in it and keeps its settings and ``/workspace``; ``start()`` goes on from
        there."""
        query = {"grace_ms": str(int(grace * 1000))}
        reply = yield Request("POST", self._path("/stop"), query, repeatable=True)
        return SandboxInfo.of(reply.json())

    @operation
    def start(self) -> Steps[SandboxInfo]:
        """Starts a stopped one again, under its id."""
        reply = yield Request("POST", self._path("/start"), patience=300.0, repeatable=True)
        self._hold()
        return SandboxInfo.of(reply.json())

    @operation
    def services(self, *, wait: float = 0.0) -> Steps[Sequence[Service]]:
        """How its services are; with `wait`, as soon as all of them are ready or so many seconds are
        over."""
        query = {"wait_ms": str(int(wait * 1000))}
        reply = yield Request(
            "GET", self._path("/services"), query, patience=wait + 30.0, repeatable=True
        )
        return [Service.of(row) for row in reply.json()["services"]]

    @operation
    def usage(self) -> Steps[Usage]:
        """What it uses now."""
        reply = yield Request("GET", self._path("/usage"), repeatable=True)
        return Usage.of(reply.json())

    @operation
    def ports(self) -> Steps[Sequence[Port]]:
        """The ports that everybody may reach."""
        reply = yield Request("GET", self._path("/ports"), repeatable=True)
        return [Port.of(row) for row in reply.json()["ports"]]

    @operation
    def publish(self, port: int, *, public: bool = False) -> Steps[Port]:
        """Where a server at that port of the sandbox is reached; with `public`, by everybody and
        not only with the daemon's token."""
        body = {"public": public}
        reply = yield Request("PUT", self._path(f"/ports/{port}"), json=body, repeatable=True)
        return Port.of(reply.json())

    def _fork(self, name: str | None, workspace: str | None, snapshot: str | None) -> Steps[str]:
        body = settings_of(name=name, workspace=workspace, snapshot=snapshot)
        reply = yield Request("POST", self._path("/forks"), json=body, patience=600.0)
        box_id: str = reply.json()["id"]
        if self._lease is not None:
            path = f"/v1/sandboxes/{box_id}/lease"
            yield Request("PUT", path, json={"seconds": self._lease}, repeatable=True)
        return box_id

    def _adopt_fork(self, box_id: str, lease: float | None) -> None:
        """It is a fork that was made here, and so is removed here."""
        self._id = box_id
        self._lease = lease
        self._hold()

    @operation
    def set_lease(self, seconds: float | None) -> Steps[SandboxInfo]:
        """It ends after so many seconds from now unless that is put off again; None: it does not
        end by itself. Where this program renews a lease, it renews this one from now on."""
        body = {"seconds": seconds}
        reply = yield Request("PUT", self._path("/lease"), json=body, repeatable=True)
        self._lease = seconds
        self._hold()
        return SandboxInfo.of(reply.json())

    def _hold(self) -> None:
        """From now on this process renews the lease, if there is one and it is its own."""
        if self._is_own and self._id is not None and self._lease is not None:
            _leases.KEEPER.hold(self._endpoint, self._id, self._lease)
        elif self._id is not None:
            _leases.KEEPER.release(self._id)

    @operation
    def snapshot(self, name: str | None = None) -> Steps[Snapshot]:
        """Keeps what ``/workspace`` holds now. Commands stand still for the moment it takes."""
        body = {} if name is None else {"name": name}
        reply = yield Request("POST", self._path("/snapshots"), json=body, patience=600.0)
        return Snapshot.of(reply.json())

    @operation
    def restore(self, snapshot: Union[str, Snapshot]) -> Steps[Snapshot]:
        """Makes ``/workspace`` what it was in a snapshot, which is named by its id or its name."""
        wanted = snapshot if isinstance(snapshot, str) else snapshot.id
        body = {"snapshot": wanted}
        reply = yield Request("POST", self._path("/restore"), json=body, patience=600.0)
        return Snapshot.of(reply.json())

    @operation
    def diff(self, since: str | None = None, until: str | None = None) -> Steps[Diff]:
        """What changed in ``/workspace``, since the newest snapshot and until now unless others
        are named."""
        query = {}
        if since is not None:
            query["from"] = since
        if until is not None:
            query["to"] = until
        reply = yield Request("GET", self._path("/diff"), query, patience=600.0, repeatable=True)
        return Diff.of(reply.json())
