"""Many sandboxes for one program, and a client that has one of them at a time.

Both are for an event loop of asyncio. The limit holds for this manager; the daemon has one of its
own, for everybody.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Union

import anyio.to_thread

from ._endpoint import find_binary, find_endpoint
from ._settings import Mount
from ._steps import Steps, T
from .config import SandboxSettings, answer_of
from .daemon import AsyncCarrel
from .errors import (
    GoneError,
    NotFoundError,
    NotStartedError,
    SandboxError,
    SandboxNotFoundError,
    SandboxResourceError,
)
from .results import CopySummary, ExecResult
from .sandbox import AsyncSandbox

log = logging.getLogger("carrel")

Bindings = Union[Mapping[str, str], Sequence[Mount], None]
_ACTIVE_PATIENCE = 5.0
_SHUTDOWN_PATIENCE = 30.0
_FORCE_PATIENCE = 5.0  # of that, for what does not let itself be removed
_LAST_WORD = 0.5  # of either, for who is cancelled


def mounts_of_bindings(bindings: Bindings) -> list[Mount]:
    """Mounts of a table of paths on the host and inside. They are read-only; ``"/data:rw"`` makes
    one writable."""
    if bindings is None:
        return []
    if not isinstance(bindings, Mapping):
        return [*bindings]
    return [
        Mount(source, target.removesuffix(":rw").removesuffix(":ro"), not target.endswith(":rw"))
        for source, target in bindings.items()
    ]


class ManagedSandbox(AsyncSandbox):
    """A sandbox of a manager or a client: everything that an :class:`AsyncSandbox` has, and the
    calls of their interface. It counts as used while any call of it is on its way."""

    def __init__(
        self, settings: SandboxSettings | None = None, volume_bindings: Bindings = None
    ) -> None:
        chosen = settings or SandboxSettings()
        super().__init__(
            name=f"sandbox_{secrets.token_hex(4)}",
            image=chosen.image,
            workdir=chosen.work_dir,
            memory=chosen.memory_limit,
            cpus=chosen.cpu_limit,
            timeout=chosen.timeout,
            network="full" if chosen.network_enabled else "none",
            mounts=mounts_of_bindings(volume_bindings) or None,
        )
        self.active = 0
        self.last_used = 0.0

    async def _perform(self, steps: Steps[T]) -> T:
        self.active += 1
        try:
            return await super()._perform(steps)
        finally:
            self.active -= 1
            self.last_used = asyncio.get_running_loop().time()

    async def run_command(
        self, command: str, timeout: Union[float, str, None] = None
    ) -> ExecResult:
        """Runs a command in the long-lived shell. One that takes too long is killed, and raises
        :class:`SandboxTimeoutError` with what it had written."""
        result = await self.run(command, timeout=timeout)
        return result.check() if result.timed_out else result

    async def read_file(self, path: str) -> str:
        """The text of a file."""
        return await self.files.read_text(path, errors="replace")

    async def write_file(self, path: str, content: Union[str, bytes]) -> None:
        """Writes a file, and makes the directories above it."""
        await self.files.write(path, content)

    async def copy_to(self, local_path: str, container_path: str) -> CopySummary:
        """Copies a file, or what is in a directory, into the sandbox."""
        return await self.files.upload(local_path, container_path)

    async def copy_from(self, container_path: str, local_path: str) -> CopySummary:
        """Copies a file or a directory out of the sandbox."""
        return await self.files.download(container_path, local_path)

    async def cleanup(self) -> None:
        """Removes it. A second time does nothing."""
        await self.close()


async def _open(settings: SandboxSettings | None, bindings: Bindings) -> ManagedSandbox:
    box = ManagedSandbox(settings, bindings)
    try:
        await box.open()
    except BaseException:
        await box.close()
        raise
    box.last_used = asyncio.get_running_loop().time()
    return box


async def _is_in_use(box: ManagedSandbox) -> bool:
    """Whether a command runs in it or somebody is connected, by whichever handle or program."""
    async with AsyncCarrel(box._endpoint) as carrel:
        try:
            info = await carrel.info(box.id)
        except (GoneError, NotFoundError):
            return False
    return any(holder["by"] in ("command", "connection") for holder in info.held_by)


def _image_trouble(image: str) -> str:
    """Why there is no such image, after trying to pull it; nothing if there is one. A daemon
    elsewhere has images of its own and says so itself."""
    if image == "host" or image.startswith("dir:") or not find_endpoint().managed:
        return ""
    binary = find_binary()
    listed = subprocess.run([binary, "image", "ls", "--json"], capture_output=True, check=False)
    try:
        if any(row["name"] == image for row in answer_of(listed.stdout, listed.stderr)["images"]):
            return ""
        pulled = subprocess.run(
            [binary, "image", "pull", "--json", image],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        answer_of(pulled.stdout, pulled.stderr)
    except SandboxError as error:
        return error.message
    return ""


@dataclass(frozen=True)
class ManagerStats:
    total_sandboxes: int
    active_operations: int
    max_sandboxes: int
    idle_timeout: float
    cleanup_interval: float
    is_shutting_down: bool


class SandboxManager:
    """Makes sandboxes up to a limit, hands them out by id, removes those that nobody uses.

    ::

        async with SandboxManager(max_sandboxes=10) as manager:
            box_id = await manager.create()
            box = await manager.get(box_id)
            await box.run_command("echo hi")

    A sandbox with a call on its way or a command that runs in it is in use, whoever made that call
    or started that command. Sandboxes of a program that was killed end by themselves, with their
    leases.
    """

    def __init__(
        self,
        max_sandboxes: int = 100,
        idle_timeout: float = 3600,
        cleanup_interval: float = 300,
    ) -> None:
        self.max_sandboxes = max_sandboxes
        self.idle_timeout = idle_timeout
        self.cleanup_interval = cleanup_interval
        self._sandboxes: dict[str, ManagedSandbox] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._on_their_way = 0
        self._loop_task: asyncio.Task[None] | None = None
        self._is_shutting_down = False

    async def __aenter__(self) -> SandboxManager:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def ensure_image(self, image: str) -> bool:
        """Whether there is an image of that name, after pulling it if it was absent."""
        cause = await anyio.to_thread.run_sync(_image_trouble, image)
        if cause:
            log.error("Failed to ensure image %s: %s", image, cause)
        return not cause

    async def create(
        self, settings: SandboxSettings | None = None, volume_bindings: Bindings = None
    ) -> str:
        """Makes a sandbox and returns its id. Those that are being made count, too."""
        if self._is_shutting_down:
            raise SandboxError("the manager is shutting down")
        if len(self._sandboxes) + self._on_their_way >= self.max_sandboxes:
            raise SandboxResourceError(
                f"Maximum number of sandboxes ({self.max_sandboxes}) reached"
            )
        self._start_loop()
        self._on_their_way += 1
        try:
            image = settings.image if settings is not None else "host"
            cause = await anyio.to_thread.run_sync(_image_trouble, image)
            if cause:
                raise SandboxError(f"Failed to ensure image {image}: {cause}")
            box = await _open(settings, volume_bindings)
        except SandboxError as error:
            if not error.message.startswith("Failed to create sandbox: "):
                error.message = f"Failed to create sandbox: {error.message}"
            raise
        finally:
            self._on_their_way -= 1
        self._sandboxes[box.id] = box
        return box.id

    async def get(self, sandbox_id: str) -> ManagedSandbox:
        """The sandbox of that id, which counts as used now."""
        box = self._find(sandbox_id)
        box.last_used = asyncio.get_running_loop().time()
        return box

    def _find(self, sandbox_id: str) -> ManagedSandbox:
        box = self._sandboxes.get(sandbox_id)
        if box is None:
            raise SandboxNotFoundError(f"Sandbox {sandbox_id} not found")
        return box

    @asynccontextmanager
    async def operation(self, sandbox_id: str) -> AsyncIterator[ManagedSandbox]:
        """A sandbox for several calls in a row: others wait their turn, and it is in use all the
        while."""
        self._find(sandbox_id)
        async with self._locks.setdefault(sandbox_id, asyncio.Lock()):
            box = self._find(sandbox_id)
            box.active += 1
            try:
                yield box
            finally:
                box.active -= 1
                box.last_used = asyncio.get_running_loop().time()

    async def delete(self, sandbox_id: str) -> None:
        """Removes a sandbox. One that is not there is fine; a failure is raised, and the sandbox
        stays known."""
        box = self._sandboxes.get(sandbox_id)
        if box is None:
            return
        await box.close()
        self._sandboxes.pop(sandbox_id, None)
        self._locks.pop(sandbox_id, None)

    def stats(self) -> ManagerStats:
        return ManagerStats(
            total_sandboxes=len(self._sandboxes),
            active_operations=sum(box.active > 0 for box in self._sandboxes.values()),
            max_sandboxes=self.max_sandboxes,
            idle_timeout=self.idle_timeout,
            cleanup_interval=self.cleanup_interval,
            is_shutting_down=self._is_shutting_down,
        )

    async def clean_up_idle(self) -> Sequence[str]:
        """Removes what nobody has used for `idle_timeout` seconds; returns the ids. One that cannot
        be removed does not keep the others."""
        now = asyncio.get_running_loop().time()
        idle = [
            box_id
            for box_id, box in self._sandboxes.items()
            if box.active == 0 and now - box.last_used > self.idle_timeout
        ]
        removed = []
        for box_id in idle:
            # Somebody may have begun to use it meanwhile.
            box = self._sandboxes.get(box_id)
            if box is None or box.active > 0:
                continue
            try:
                if await _is_in_use(box) or box.active > 0:
                    box.last_used = asyncio.get_running_loop().time()
                    continue
                await self.delete(box_id)
                removed.append(box_id)
            except Exception as error:
                log.error("cannot remove the idle sandbox %s: %s", box_id, error)
        return removed

    def _start_loop(self) -> None:
        if self._loop_task is None:
            self._loop_task = asyncio.get_running_loop().create_task(self._run_loop())

    async def _run_loop(self) -> None:
        while True:
            await asyncio.sleep(self.cleanup_interval)
            try:
                await self.clean_up_idle()
            except Exception as error:
                log.error("cleaning up idle sandboxes failed: %s", error)

    async def shutdown(self) -> None:
        """Removes all sandboxes, at the same time: waits up to 5 seconds for calls that are on
        their way, and is done within 30. What hangs is killed before that; what even that could not
        remove ends with its lease, and is named in the error."""
        self._is_shutting_down = True
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
            self._loop_task = None
        tasks = [
            asyncio.ensure_future(self._delete_when_quiet(box_id)) for box_id in self._sandboxes
        ]
        if tasks:
            await self._finish(tasks, _SHUTDOWN_PATIENCE - _FORCE_PATIENCE)
        if self._sandboxes:
            forced = [asyncio.ensure_future(self._kill(box_id)) for box_id in self._sandboxes]
            await self._finish(forced, _FORCE_PATIENCE)
        left = [*self._sandboxes]
        if left:
            raise SandboxError(f"these sandboxes could not be removed: {', '.join(left)}")

    async def _delete_when_quiet(self, sandbox_id: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ACTIVE_PATIENCE
        box = self._sandboxes.get(sandbox_id)
        while box is not None and box.active > 0 and loop.time() < deadline:
            await asyncio.sleep(0.02)
        await self.delete(sandbox_id)

    @staticmethod
    async def _finish(tasks: Sequence[asyncio.Future[None]], patience: float) -> None:
        """Waits for them, so long and no longer: who takes longer is cancelled."""
        _, late = await asyncio.wait(tasks, timeout=patience - _LAST_WORD)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_LAST_WORD)
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.error("cannot remove a sandbox: %s", error)

    async def _kill(self, sandbox_id: str) -> None:
        """Ends it at once, past whatever hangs in its own connections."""
        async with AsyncCarrel(self._sandboxes[sandbox_id]._endpoint) as carrel:
            await carrel.delete(sandbox_id, grace=0)
        self._sandboxes.pop(sandbox_id, None)
        self._locks.pop(sandbox_id, None)

    # The names that others use for the same.
    create_sandbox = create
    get_sandbox = get
    delete_sandbox = delete
    sandbox_operation = operation
    cleanup = shutdown


class SandboxClient:
    """One sandbox at a time, behind seven calls."""

    def __init__(self) -> None:
        self._box: ManagedSandbox | None = None

    @property
    def sandbox(self) -> ManagedSandbox:
        if self._box is None:
            raise NotStartedError("Sandbox not initialized")
        return self._box

    async def create(
        self, settings: SandboxSettings | None = None, volume_bindings: Bindings = None
    ) -> None:
        """Makes the sandbox. One that is there already is removed first."""
        await self.cleanup()
        self._box = await _open(settings, volume_bindings)

    async def run_command(
        self, command: str, timeout: Union[float, str, None] = None
    ) -> ExecResult:
        return await self.sandbox.run_command(command, timeout)

    async def read_file(self, path: str) -> str:
        return await self.sandbox.read_file(path)

    async def write_file(self, path: str, content: Union[str, bytes]) -> None:
        await self.sandbox.write_file(path, content)

    async def copy_to(self, local_path: str, container_path: str) -> CopySummary:
        return await self.sandbox.copy_to(local_path, container_path)

    async def copy_from(self, container_path: str, local_path: str) -> CopySummary:
        return await self.sandbox.copy_from(container_path, local_path)

    async def cleanup(self) -> None:
        """Removes the sandbox. Without one there is nothing to do."""
        box, self._box = self._box, None
        if box is not None:
            await box.close()


def create_sandbox_client() -> SandboxClient:
    """A client that has no sandbox yet."""
    return SandboxClient()
