"""The daemon itself: :class:`Carrel` and :class:`AsyncCarrel`, for what concerns no one sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Union

from ._endpoint import Endpoint, find_endpoint
from ._settings import Mount, Size, settings_of
from ._sse import EventParser
from ._steps import AsyncSide, Request, Steps, SyncSide, T, operation, perform, perform_async
from ._transport import AsyncHttpTransport, HttpTransport
from .results import Disk, Event, ExecResult, SandboxInfo, Snapshot

_PAGE = 500


class CarrelCore:
    """What :class:`Carrel` and :class:`AsyncCarrel` have in common."""

    @operation
    def version(self) -> Steps[str]:
        """The daemon's version. Asking is also how to have it started."""
        reply = yield Request("GET", "/v1/version", repeatable=True)
        return str(reply.json()["version"])

    @operation
    def ready(self) -> Steps[bool]:
        """Whether it can serve."""
        reply = yield Request("GET", "/v1/ready", repeatable=True)
        return reply.status == 200

    @operation
    def metrics(self) -> Steps[str]:
        """Its numbers, in the form of Prometheus."""
        reply = yield Request("GET", "/metrics", repeatable=True)
        return reply.body.decode()

    @operation
    def openapi(self) -> Steps[Mapping[str, Any]]:
        """The document of its API."""
        reply = yield Request("GET", "/v1/openapi.json", repeatable=True)
        document: Mapping[str, Any] = reply.json()
        return document

    @operation
    def sandboxes(
        self, *, name: str | None = None, ended: bool = False
    ) -> Steps[Sequence[SandboxInfo]]:
        """The sandboxes, oldest first; with `ended`, also those that have ended and are still
        remembered, with why."""
        found: list[SandboxInfo] = []
        query = {"limit": str(_PAGE), "all": "true" if ended else "false"}
        if name is not None:
            query["name"] = name
        while True:
            page = (yield Request("GET", "/v1/sandboxes", query, repeatable=True)).json()
            found += [SandboxInfo.of(row) for row in page["sandboxes"]]
            if page["next_cursor"] is None:
                return found
            query = {**query, "cursor": page["next_cursor"]}

    @operation
    def info(self, box_id: str) -> Steps[SandboxInfo]:
        """One sandbox, also after its end."""
        reply = yield Request("GET", f"/v1/sandboxes/{box_id}", repeatable=True)
        return SandboxInfo.of(reply.json())

    @operation
    def delete(self, box_id: str, *, grace: float = 2.0) -> Steps[None]:
        """Ends a sandbox and removes what belongs to it. One that has ended is fine."""
        query = {"grace_ms": str(int(grace * 1000))}
        yield Request("DELETE", f"/v1/sandboxes/{box_id}", query, repeatable=True)

    @operation
    def disk(self) -> Steps[Disk]:
        """The workspaces and snapshots that one has, and what is charged for them."""
        reply = yield Request("GET", "/v1/workspaces", repeatable=True)
        return Disk.of(reply.json())

    @operation
    def delete_workspace(self, name: str) -> Steps[None]:
        """Removes a workspace that no sandbox has, with its snapshots."""
        yield Request("DELETE", f"/v1/workspaces/{name}", patience=600.0)

    @operation
    def delete_snapshot(self, snapshot: Union[str, Snapshot]) -> Steps[None]:
        """Removes a snapshot. What later ones have of it stays."""
        wanted = snapshot if isinstance(snapshot, str) else snapshot.id
        yield Request("DELETE", f"/v1/snapshots/{wanted}", patience=600.0)

    @operation
    def run(
        self,
        command: str,
        *,
        stdin: str | None = None,
        merged: bool = False,
        timeout: float | str | None = None,
        image: str | None = None,
        memory: Size | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        network: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        mounts: Sequence[Mount] | None = None,
        workspace: str | None = None,
    ) -> Steps[ExecResult]:
        """Runs a command for bash in a fresh sandbox that is gone afterwards."""
        body = settings_of(
            command=command,
            stdin=stdin,
            merged=merged,
            timeout=timeout,
            image=image,
            memory=memory,
            cpus=cpus,
            pids=pids,
            network=network,
            env=env,
            mounts=mounts,
            workspace=workspace,
        )
        reply = yield Request("POST", "/v1/run", json=body, patience=None)
        return ExecResult.of(reply.json())

    @staticmethod
    def _events_request(sandbox: str | None, past: bool) -> Request:
        query = {"past": "true" if past else "false"}
        if sandbox is not None:
            query["sandbox"] = sandbox
        return Request("GET", "/v1/events", query, patience=60.0)


class Carrel(CarrelCore, SyncSide):
    """A daemon: the one of this user, or the one that ``CARREL_API`` names."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self._transport = HttpTransport(endpoint or find_endpoint())

    def _perform(self, steps: Steps[T]) -> T:
        return perform(steps, self._transport)

    def events(self, sandbox: str | None = None, *, past: bool = False) -> Iterator[Event]:
        """What happens to sandboxes, as it happens; with `past`, first what did."""
        self.version()
        parser = EventParser()
        with self._transport.pieces(self._events_request(sandbox, past)) as pieces:
            for piece in pieces:
                for event in parser.feed(piece):
                    yield Event.of(event.data)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Carrel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncCarrel(CarrelCore, AsyncSide):
    """A daemon, awaited."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self._transport = AsyncHttpTransport(endpoint or find_endpoint())

    async def _perform(self, steps: Steps[T]) -> T:
        return await perform_async(steps, self._transport)

    async def events(
        self, sandbox: str | None = None, *, past: bool = False
    ) -> AsyncIterator[Event]:
        """What happens to sandboxes, as it happens; with `past`, first what did."""
        await self.version()
        parser = EventParser()
        async with self._transport.pieces(self._events_request(sandbox, past)) as pieces:
            async for piece in pieces:
                for event in parser.feed(piece):
                    yield Event.of(event.data)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncCarrel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
