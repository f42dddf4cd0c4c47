"""Requests over httpx, blocking and awaited. Each of the two knows how to send; what they share is
how a daemon is reached, what an answer means, and what may be sent again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import anyio
import anyio.to_thread
import httpx

from ._endpoint import Endpoint, SocketPath, start_daemon
from ._steps import Reply, Request
from .errors import SandboxError, SandboxResourceError, UnavailableError, error_of

CONNECT_PATIENCE = 10.0
# As many as a daemon serves at once; more wait here and not there.
LIMITS = httpx.Limits(max_connections=256, max_keepalive_connections=16, keepalive_expiry=20)
_MOST_OF_A_PROBLEM = 1 << 20
_CROWDED = "requests at once already"


class _Place:
    """What both transports have: the arguments of httpx's clients, and the meaning of failures."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._socket: SocketPath | None = None

    def options(self, below: str = "") -> dict[str, Any]:
        """Of a client for what is below a path of the daemon."""
        headers = {"user-agent": "carrel-python"}
        if self.endpoint.token is not None:
            headers["authorization"] = f"Bearer {self.endpoint.token}"
        return {
            "base_url": self.endpoint.url + below,
            "headers": headers,
            # Nothing of the environment is for a socket of this host.
            "trust_env": self.endpoint.socket is None,
        }

    def transport_options(self) -> dict[str, Any]:
        if self._socket is None:
            self._socket = SocketPath(self.endpoint.socket or "")
        return {"uds": self._socket.path, "limits": LIMITS, "verify": False}

    def is_unresolved(self) -> bool:
        """Whether the client has a path that leads nowhere: one that is too long is reached through
        its directory, which the daemon makes."""
        return self._socket is not None and not self._socket.fits

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def arguments(self, request: Request) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": request.path,
            "params": dict(request.query),
            "headers": request.headers_with_type(),
            "timeout": httpx.Timeout(
                CONNECT_PATIENCE, read=request.patience, write=request.patience, pool=None
            ),
        }

    def away(self, error: Exception) -> UnavailableError:
        return UnavailableError(f"the daemon at {self.endpoint} is away: {error or type(error)}")


class Attempts:
    """What is to be done after a failure: nothing is ever sent twice that could have arrived and
    would then be done twice."""

    def __init__(self, place: _Place, request: Request) -> None:
        self._place = place
        self._may_start = place.endpoint.managed
        self._may_repeat = request.repeatable
        self._may_wait = isinstance(request.encoded(), (bytes, type(None)))
        self._patience = request.patience
        self._waited = 0.0

    def after(self, error: httpx.TransportError) -> Literal["start", "repeat"]:
        """Whether to start the daemon and send, or just to send again; raised if neither helps."""
        if isinstance(error, httpx.ConnectError) and self._may_start:
            self._may_start = False
            return "start"
        if not isinstance(error, httpx.ConnectError) and self._may_repeat:
            self._may_repeat = False
            return "repeat"
        raise self._place.away(error) from error

    def pause_after(self, error: SandboxResourceError) -> float:
        """How long to wait for a turn: a sandbox takes so many requests at once, and refuses the
        next one before it looks at it. Any other limit is raised."""
        late = self._patience is not None and self._waited > self._patience
        if _CROWDED not in error.message or late or not self._may_wait:
            raise error
        pause = random.uniform(0.02, 0.1)
        self._waited += pause
        return pause


def problem_of(status: int, body: bytes) -> SandboxError:
    """The error that an answer with problem details stands for."""
    try:
        details = json.loads(body[:_MOST_OF_A_PROBLEM])
        return error_of(str(details["code"]), str(details["detail"]), status)
    except (ValueError, KeyError, TypeError):
        text = body[:200].decode("utf-8", "replace")
        return error_of("system", f"the daemon answered {status}: {text}", status)


def _reply(response: httpx.Response, body: bytes) -> Reply:
    return Reply(response.status_code, dict(response.headers), body)


class HttpTransport:
    """Sends requests and waits for their answers. Threads may share one."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._place = _Place(endpoint)
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._owner = os.getpid()

    @property
    def endpoint(self) -> Endpoint:
        return self._place.endpoint

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is not None and self._owner != os.getpid():
                self._client = None  # connections are the parent's; a fork has its own
            if self._client is None:
                self._owner = os.getpid()
                self._client = self.client()
            return self._client

    def client(self, below: str = "") -> httpx.Client:
        """A new client of the daemon, or of what is below a path of it."""
        transport = None
        if self.endpoint.socket is not None:
            transport = httpx.HTTPTransport(**self._place.transport_options())
        return httpx.Client(**self._place.options(below), transport=transport, limits=LIMITS)

    def send(self, request: Request) -> Reply:
        attempts = Attempts(self._place, request)
        while True:
            try:
                return self._send_once(request)
            except httpx.TransportError as error:
                if attempts.after(error) == "start":
                    start_daemon(self.endpoint)
                    if self._place.is_unresolved():
                        self.close()
            except SandboxResourceError as error:
                time.sleep(attempts.pause_after(error))

    def _send_once(self, request: Request) -> Reply:
        with self.stream(request) as response:
            if request.sink is None:
                return _reply(response, response.read())
            for piece in response.iter_bytes():
                request.sink(piece)
            return _reply(response, b"")

    @contextmanager
    def stream(self, request: Request) -> Iterator[httpx.Response]:
        """The answer, as it comes. Leaving the block before its end breaks the connection, and with
        it what the request waited for."""
        arguments = self._place.arguments(request)
        with self._http().stream(content=request.encoded(), **arguments) as response:
            if response.status_code >= 400:
                raise problem_of(response.status_code, response.read())
            yield response

    @contextmanager
    def pieces(self, request: Request) -> Iterator[Iterator[bytes]]:
        """The body of an answer that has no end of its own."""
        try:
            with self.stream(request) as response:
                yield response.iter_bytes()
        except httpx.TransportError as error:
            raise self._place.away(error) from error

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None
            self._place.close()


class AsyncHttpTransport:
    """Sends requests and awaits their answers. It belongs to one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._place = _Place(endpoint)
        self._client: httpx.AsyncClient | None = None

    @property
    def endpoint(self) -> Endpoint:
        return self._place.endpoint

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = self.client()
        return self._client

    def client(self, below: str = "") -> httpx.AsyncClient:
        """A new client of the daemon, or of what is below a path of it."""
        transport = None
        if self.endpoint.socket is not None:
            transport = httpx.AsyncHTTPTransport(**self._place.transport_options())
        return httpx.AsyncClient(**self._place.options(below), transport=transport, limits=LIMITS)

    async def send(self, request: Request) -> Reply:
        attempts = Attempts(self._place, request)
        while True:
            try:
                return await self._send_once(request)
            except httpx.TransportError as error:
                if attempts.after(error) == "start":
                    await anyio.to_thread.run_sync(start_daemon, self.endpoint)
                    if self._place.is_unresolved():
                        await self.aclose()
            except SandboxResourceError as error:
                await anyio.sleep(attempts.pause_after(error))

    async def _send_once(self, request: Request) -> Reply:
        if not _in_asyncio():
            return await self._exchange(request)
        # In a task of its own, which is cancelled once: a cancel scope would go on to interrupt
        # the closing of the connection, by which the daemon knows that nobody waits any more.
        task = asyncio.ensure_future(self._exchange(request))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            raise

    async def _exchange(self, request: Request) -> Reply:
        async with self.stream(request) as response:
            if request.sink is None:
                return _reply(response, await response.aread())
            async for piece in response.aiter_bytes():
                request.sink(piece)
            return _reply(response, b"")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[httpx.Response]:
        content = request.encoded()
        arguments = self._place.arguments(request)
        body = content if content is None or isinstance(content, bytes) else _awaited(content)
        async with self._http().stream(content=body, **arguments) as response:
            if response.status_code >= 400:
                raise problem_of(response.status_code, await response.aread())
            yield response

    @asynccontextmanager
    async def pieces(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            async with self.stream(request) as response:
                yield response.aiter_bytes()
        except httpx.TransportError as error:
            raise self._place.away(error) from error

    async def work(self, function: Callable[[], object]) -> None:
        await anyio.to_thread.run_sync(function)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        self._place.close()


def _in_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
