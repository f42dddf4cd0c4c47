"""Sandboxes: :class:`Sandbox` for ordinary code and :class:`AsyncSandbox` for an event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Union

import anyio
import httpx

from ._box import GRACE, BoxCore
from ._endpoint import Endpoint
from ._files import AsyncFiles, Files
from ._steps import AsyncSide, Steps, SyncSide, T, perform, perform_async
from ._transport import AsyncHttpTransport, HttpTransport
from .commands import AsyncCommand, Command
from .errors import SandboxError
from .terminals import AsyncTerminal, Terminal

_CLOSING_PATIENCE = 30.0


class Sandbox(BoxCore, SyncSide):
    """A room of its own for commands that nobody has read.

    ::

        with Sandbox() as box:
            box.run("cd /tmp")
            print(box.run("pwd").stdout)

    The block makes the sandbox and removes it; ``open()`` and ``close()`` do the same by hand. It
    finds the daemon of this user, or starts it; ``CARREL_API`` and ``CARREL_TOKEN`` name another
    one. Threads may share a sandbox: commands of one shell wait for each other.
    """

    files: Files

    def _connect(self, endpoint: Endpoint) -> None:
        self._transport = HttpTransport(endpoint)
        self.files = Files(self)

    @property
    def _endpoint(self) -> Endpoint:
        return self._transport.endpoint

    def _perform(self, steps: Steps[T]) -> T:
        return perform(steps, self._transport)

    @classmethod
    def attach(cls, box_id: str, *, endpoint: Endpoint | None = None) -> Sandbox:
        """A sandbox that is there already. Closing it leaves it alone; ``delete()`` ends it."""
        box = cls(endpoint=endpoint)
        box._adopt(box_id)
        try:
            box.info()
        except BaseException:
            box.close()
            raise
        return box

    def open(self) -> Sandbox:
        """Makes the sandbox."""
        try:
            self._perform(self._create())
        except BaseException:
            self._transport.close()
            raise
        return self

    def close(self, *, grace: float = GRACE) -> None:
        """Removes it, if it was made here: its processes are asked to end, and killed after `grace`
        seconds. A second time does nothing."""
        try:
            self._perform(self._remove(grace))
        finally:
            if self._closed:
                self._transport.close()

    def delete(self, *, grace: float = GRACE) -> None:
        """Removes it, whoever made it."""
        self._is_own = True
        self.close(grace=grace)

    def __enter__(self) -> Sandbox:
        return self if self._id is not None and not self._closed else self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except SandboxError as failure:
            self._note_failure(failure, error)

    def http(self, port: int) -> httpx.Client:
        """A client of the server at that port of the sandbox, which needs no network for it:
        ``box.http(8080).get("/index.html")``. It is httpx's, and is closed as one."""
        return self._transport.client(self._path(f"/ports/{port}/"))

    def fork(
        self,
        *,
        name: str | None = None,
        workspace: str | None = None,
        snapshot: str | None = None,
    ) -> Sandbox:
        """Another sandbox like it, with a copy of its ``/workspace`` as it is now, or as it was in
        a snapshot. `workspace` names the copy. Close it, or use it in a ``with`` block."""
        box = Sandbox(endpoint=self._endpoint)
        box._adopt_fork(self._perform(self._fork(name, workspace, snapshot)), self._lease)
        return box

    def spawn(
        self,
        command: Union[str, Sequence[str]],
        *,
        timeout: Union[float, str, None] = None,
        session: str | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: bool = False,
        merged: bool = False,
    ) -> Command:
        """Starts a command in the background: words of its own, or a text for bash (with `session`,
        for the long-lived shell of that name). Nothing but `timeout` and the sandbox's end ends
        it. With `stdin`, input follows."""
        steps = self._spawn(
            command,
            timeout=timeout,
            session=session,
            env=env,
            workdir=workdir,
            stdin=stdin,
            merged=merged,
        )
        return Command(self, self._perform(steps))

    def command(self, command_id: str) -> Command:
        """A command in the background that was started before, perhaps by another program."""
        return Command(self, command_id)

    def terminal(
        self, command: Union[str, Sequence[str]] = ("bash",), *, rows: int = 24, columns: int = 80
    ) -> Terminal:
        """Starts a command with a terminal and connects to it."""
        steps = self._spawn(command, stdin=True, terminal=(rows, columns))
        return Command(self, self._perform(steps)).terminal()


class AsyncSandbox(BoxCore, AsyncSide):
    """The same for an event loop: ``async with``, and calls are awaited. Cancelling a call kills
    the command that it waits for."""

    files: AsyncFiles

    def _connect(self, endpoint: Endpoint) -> None:
        self._transport = AsyncHttpTransport(endpoint)
        self.files = AsyncFiles(self)

    @property
    def _endpoint(self) -> Endpoint:
        return self._transport.endpoint

    async def _perform(self, steps: Steps[T]) -> T:
        return await perform_async(steps, self._transport)

    @classmethod
    async def attach(cls, box_id: str, *, endpoint: Endpoint | None = None) -> AsyncSandbox:
        """A sandbox that is there already. Closing it leaves it alone; ``delete()`` ends it."""
        box = cls(endpoint=endpoint)
        box._adopt(box_id)
        try:
            await box.info()
        except BaseException:
            await box.close()
            raise
        return box

    async def open(self) -> AsyncSandbox:
        """Makes the sandbox."""
        try:
            await self._perform(self._create())
        except BaseException:
            await self._transport.aclose()
            raise
        return self

    async def close(self, *, grace: float = GRACE) -> None:
        """Removes it, if it was made here. A second time does nothing."""
        try:
            await self._perform(self._remove(grace))
        finally:
            if self._closed:
                await self._transport.aclose()

    async def delete(self, *, grace: float = GRACE) -> None:
        """Removes it, whoever made it."""
        self._is_own = True
        await self.close(grace=grace)

    async def __aenter__(self) -> AsyncSandbox:
        return self if self._id is not None and not self._closed else await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Who is cancelled still tidies up.
        try:
            with anyio.fail_after(_CLOSING_PATIENCE, shield=True):
                await self.close()
        except (SandboxError, TimeoutError) as failure:
            self._note_failure(failure, error)

    def http(self, port: int) -> httpx.AsyncClient:
        """A client of the server at that port of the sandbox; see :meth:`Sandbox.http`."""
        return self._transport.client(self._path(f"/ports/{port}/"))

    async def fork(
        self,
        *,
        name: str | None = None,
        workspace: str | None = None,
        snapshot: str | None = None,
    ) -> AsyncSandbox:
        """Another sandbox like it; see :meth:`Sandbox.fork`."""
        box = AsyncSandbox(endpoint=self._endpoint)
        box._adopt_fork(await self._perform(self._fork(name, workspace, snapshot)), self._lease)
        return box

    async def spawn(
        self,
        command: Union[str, Sequence[str]],
        *,
        timeout: Union[float, str, None] = None,
        session: str | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: bool = False,
        merged: bool = False,
    ) -> AsyncCommand:
        """Starts a command in the background; see :meth:`Sandbox.spawn`."""
        steps = self._spawn(
            command,
            timeout=timeout,
            session=session,
            env=env,
            workdir=workdir,
            stdin=stdin,
            merged=merged,
        )
        return AsyncCommand(self, await self._perform(steps))

    def command(self, command_id: str) -> AsyncCommand:
        """A command in the background that was started before, perhaps by another program."""
        return AsyncCommand(self, command_id)

    async def terminal(
        self, command: Union[str, Sequence[str]] = ("bash",), *, rows: int = 24, columns: int = 80
    ) -> AsyncTerminal:
        """Starts a command with a terminal, to be used in an ``async with`` block."""
        steps = self._spawn(command, stdin=True, terminal=(rows, columns))
        return AsyncCommand(self, await self._perform(steps)).terminal()
