"""Commands in the background: they go on without anybody, and can be listened to, spoken to and
ended, by this program or by another one that knows their ids."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Union

from ._following import Following
from ._steps import AsyncSide, Request, Steps, SyncSide, T, Work, operation
from .errors import SandboxTimeoutError, UnavailableError
from .results import CommandInfo, ExecResult, Output
from .terminals import AsyncTerminal, Terminal

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox, Sandbox


class CommandCore:
    """What :class:`Command` and :class:`AsyncCommand` have in common."""

    _base: str
    id: str
    result: ExecResult | None = None

    def _path(self, action: str = "") -> str:
        return f"{self._base}/{self.id}{action}"

    def _look(self) -> Steps[CommandInfo]:
        reply = yield Request("GET", self._path(), repeatable=True)
        return CommandInfo.of(reply.json())

    @operation
    def info(self) -> Steps[CommandInfo]:
        """Its state, where its output begins and ends, and once it has ended, how."""
        return (yield from self._look())

    @operation
    def wait(self, timeout: float | None = None) -> Steps[ExecResult]:
        """Waits for its end and returns how it was, with the output. After `timeout` seconds it
        raises :class:`SandboxTimeoutError`; the command goes on then."""
        if timeout is not None:
            yield from self._await_end(time.monotonic() + timeout)
        following = Following(self._path("/events"))
        while following.result is None:
            request = following.request()
            try:
                yield Request(
                    request.method,
                    request.path,
                    request.query,
                    sink=following.take,
                    patience=request.patience,
                )
            except UnavailableError as error:
                following.broke_off(error)
                yield Work(lambda: time.sleep(0.2))
            else:
                if following.result is None:
                    following.broke_off()
        self.result = following.result
        return following.result

    def _await_end(self, deadline: float) -> Steps[None]:
        pause = 0.005
        while (yield from self._look()).running:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SandboxTimeoutError(f"command {self.id} has not ended yet")
            pause = min(pause * 2, 0.1, left)
            yield Work(functools.partial(time.sleep, pause))

    @operation
    def read(self, offset: int = 0, *, stream: str = "stdout") -> Steps[tuple[bytes, int]]:
        """What there is of its output from `offset` on, at most 1 MiB, and the offset to go on
        from. It does not wait."""
        query = {"offset": str(offset), "stream": stream}
        reply = yield Request("GET", self._path("/output"), query, repeatable=True)
        return reply.body, int(reply.headers["carrel-next-offset"])

    @operation
    def write(self, data: Union[str, bytes], *, close: bool = False) -> Steps[None]:
        """Gives it input, and with `close` the end of it. It must have been started with
        ``stdin=True``."""
        content = data.encode() if isinstance(data, str) else data
        query = {"close": "true" if close else "false"}
        yield Request("POST", self._path("/stdin"), query, content=content)

    @operation
    def close_stdin(self) -> Steps[None]:
        """Its input ends here."""
        yield Request("POST", self._path("/stdin"), {"close": "true"}, content=b"")

    @operation
    def signal(self, signal: Union[str, int]) -> Steps[None]:
        """Sends a signal, such as ``"INT"``, to its processes."""
        yield Request("POST", self._path("/signal"), json={"signal": str(signal)})

    @operation
    def kill(self) -> Steps[None]:
        """Ends it and everything that it started."""
        yield Request("DELETE", self._path(), repeatable=True)


class Command(CommandCore, SyncSide):
    """A command in the background. Iterating over it gives its output, from the beginning, until it
    ends; ``result`` is there then."""

    def __init__(self, box: Sandbox, command_id: str) -> None:
        self._box = box
        self._base = box._path("/commands")
        self.id = command_id

    def _perform(self, steps: Steps[T]) -> T:
        return self._box._perform(steps)

    def __iter__(self) -> Iterator[Output]:
        return self.follow()

    def follow(self, stdout: int = 0, stderr: int = 0) -> Iterator[Output]:
        """Its output as it comes, from these offsets on, through restarts of the daemon too."""
        following = Following(self._path("/events"), stdout, stderr)
        while following.result is None:
            try:
                with self._box._transport.pieces(following.request()) as pieces:
                    for piece in pieces:
                        yield from following.feed(piece)
            except UnavailableError as error:
                following.broke_off(error)
                self._box.info()  # brings a daemon back that this program looks after
            else:
                if following.result is None:
                    following.broke_off()
        self.result = following.result

    def terminal(self, offset: int = 0) -> Terminal:
        """Connects to its terminal; `offset` is where in its output to go on."""
        return Terminal(self._box._transport.endpoint, self._path("/terminal"), offset)


class AsyncCommand(CommandCore, AsyncSide):
    """A command in the background, awaited."""

    def __init__(self, box: AsyncSandbox, command_id: str) -> None:
        self._box = box
        self._base = box._path("/commands")
        self.id = command_id

    async def _perform(self, steps: Steps[T]) -> T:
        return await self._box._perform(steps)

    def __aiter__(self) -> AsyncIterator[Output]:
        return self.follow()

    async def follow(self, stdout: int = 0, stderr: int = 0) -> AsyncIterator[Output]:
        """Its output as it comes, from these offsets on, through restarts of the daemon too."""
        following = Following(self._path("/events"), stdout, stderr)
        while following.result is None:
            try:
                async with self._box._transport.pieces(following.request()) as pieces:
                    async for piece in pieces:
                        for output in following.feed(piece):
                            yield output
            except UnavailableError as error:
                following.broke_off(error)
                await self._box.info()
            else:
                if following.result is None:
                    following.broke_off()
        self.result = following.result

    def terminal(self, offset: int = 0) -> AsyncTerminal:
        """Connects to its terminal, in an ``async with`` block."""
        return AsyncTerminal(self._box._transport.endpoint, self._path("/terminal"), offset)
