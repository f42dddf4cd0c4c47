"""The one core under the sync and the async classes.

An operation is written once, as a generator that yields requests, gets replies and returns a value:
it knows no socket and no event loop. What performs it differs: ``perform`` of a sync class runs it
to its end, that of an async class is awaited. A class that has operations is written once, too, and
gets a sync and an async subclass of a few lines.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Union, cast, overload

import anyio

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class Request:
    """One call of the API."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    content: Union[bytes, Iterable[bytes], None] = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Gets the body piece by piece as it comes, and the reply has none then.
    sink: Callable[[bytes], object] | None = None
    # How long the daemon may take for the next byte; None: as long as the command runs.
    patience: float | None = 60.0
    # Whether it may be sent again when nobody knows if it arrived.
    repeatable: bool = False

    def encoded(self) -> Union[bytes, Iterable[bytes], None]:
        return self.content if self.json is None else json.dumps(self.json).encode()

    def headers_with_type(self) -> dict[str, str]:
        kind = "application/octet-stream" if self.json is None else "application/json"
        typed = {} if self.encoded() is None else {"content-type": kind}
        return {**typed, **self.headers}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Work(Generic[T]):
    """Something that blocks and is not the network: a step that an event loop puts in a thread."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.result: T

    def run(self) -> None:
        self.result = self._function()


Step = Union[Request, Work[Any]]
Steps = Generator[Step, Reply, T]
NOTHING = Reply(0, {}, b"")


class SyncTransport(Protocol):
    def send(self, request: Request) -> Reply: ...


class AsyncTransport(Protocol):
    async def send(self, request: Request) -> Reply: ...

    async def work(self, function: Callable[[], object]) -> None: ...


def perform(steps: Steps[T], transport: SyncTransport) -> T:
    """Runs the steps. An error of a request is raised inside them, at the yield."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Work):
                    step.run()
                    reply = NOTHING
                else:
                    reply = transport.send(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


async def perform_async(steps: Steps[T], transport: AsyncTransport) -> T:
    """The same, awaited. Cancelling it is an error at the yield like any other; what the steps do
    because of it is not cancelled again."""
    cancelled = False
    try:
        step = next(steps)
        while True:
            try:
                with anyio.CancelScope(shield=cancelled):
                    if isinstance(step, Work):
                        await transport.work(step.run)
                        reply = NOTHING
                    else:
                        reply = await transport.send(step)
            except BaseException as error:
                cancelled = cancelled or not isinstance(error, Exception)
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


class SyncSide:
    """What operations of its subclasses return are their values."""

    def _perform(self, steps: Steps[T]) -> T:
        raise NotImplementedError


class AsyncSide:
    """What operations of its subclasses return is awaited."""

    async def _perform(self, steps: Steps[T]) -> T:
        raise NotImplementedError


class operation(Generic[S, P, T]):
    """Makes a method that returns its value, or is awaited for it, of one that returns steps."""

    def __init__(self, build: Callable[Concatenate[S, P], Steps[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__
        self.__signature__ = _signature(build)

    @overload
    def __get__(self, side: None, owner: type) -> operation[S, P, T]: ...

    @overload
    def __get__(self, side: SyncSide, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, side: AsyncSide, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, side: Any, owner: type) -> Any:
        if side is None:
            return self
        build: Callable[..., Steps[T]] = functools.partial(cast(Any, self._build), side)
        if isinstance(side, AsyncSide):

            async def call_async(*args: Any, **kwargs: Any) -> Any:
                return await side._perform(build(*args, **kwargs))

            return self._named(call_async)

        def call(*args: Any, **kwargs: Any) -> Any:
            return side._perform(build(*args, **kwargs))

        return self._named(call)

    def _named(self, call: Any) -> Any:
        """The call, as help() should show it."""
        call.__name__ = self._build.__name__
        call.__qualname__ = self._build.__qualname__
        call.__module__ = self._build.__module__
        call.__doc__ = self.__doc__
        call.__signature__ = self.__signature__
        return call


def _signature(build: Callable[..., Any]) -> inspect.Signature:
    """What a caller gives and gets: without the object itself, and with the value in place of the
    steps that lead to it."""
    signature = inspect.signature(build)
    value = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    return signature.replace(
        parameters=[*signature.parameters.values()][1:], return_annotation=value
    )
