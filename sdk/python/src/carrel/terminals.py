"""Terminals over a WebSocket: bytes both ways, resizing, and coming back after a lost connection.

wsproto speaks the protocol and knows no sockets; the two classes move its bytes.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any, Union
from urllib.parse import urlsplit

import anyio
import anyio.abc
import wsproto
from wsproto import events as ws

from ._endpoint import Endpoint, SocketPath
from ._transport import problem_of
from .errors import SandboxTimeoutError, UnavailableError
from .results import ExecResult

_PIECE = 65536
_HANDSHAKE_PATIENCE = 30.0


class _Dialogue:
    """The protocol of a terminal, without a socket: what to send, and what came of what was
    read."""

    def __init__(self, endpoint: Endpoint, path: str, offset: int) -> None:
        self.endpoint = endpoint
        self.offset = offset
        self.result: ExecResult | None = None
        self.open = False
        self.over = False
        self.output = bytearray()
        url = urlsplit(endpoint.url)
        self.host = url.hostname or "localhost"
        self.secure = url.scheme == "https"
        self.port = url.port or (443 if self.secure else 80)
        self._connection = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._refusal = b""
        self._status = 0
        self._text = ""
        self._target = f"{url.path}{path}?offset={offset}"
        self._netloc = url.netloc or "localhost"

    def greeting(self) -> bytes:
        headers = []
        if self.endpoint.token is not None:
            headers.append((b"authorization", f"Bearer {self.endpoint.token}".encode()))
        request = ws.Request(host=self._netloc, target=self._target, extra_headers=headers)
        return self._connection.send(request)

    def input(self, data: bytes) -> bytes:
        return self._connection.send(ws.BytesMessage(data=data))

    def wish(self, wish: dict[str, Any]) -> bytes:
        return self._connection.send(ws.TextMessage(data=json.dumps(wish)))

    def goodbye(self) -> bytes:
        if self.over or not self.open:
            return b""
        self.over = True
        return self._connection.send(ws.CloseConnection(code=1000))

    def take(self, data: bytes) -> bytes:
        """Takes what was read; returns what is to be sent because of it."""
        self._connection.receive_data(data or None)
        answer = b""
        for event in self._connection.events():
            answer += self._take_event(event)
        if not data:
            self.over = True
        return answer

    def _take_event(self, event: ws.Event) -> bytes:
        if isinstance(event, ws.AcceptConnection):
            self.open = True
        elif isinstance(event, ws.RejectConnection):
            self._status = event.status_code
            if not event.has_body:
                raise problem_of(self._status, b"")
        elif isinstance(event, ws.RejectData):
            self._refusal += bytes(event.data)
            if event.body_finished:
                raise problem_of(self._status, self._refusal)
        elif isinstance(event, ws.BytesMessage):
            self.output += event.data
            self.offset += len(event.data)
        elif isinstance(event, ws.TextMessage):
            self._take_text(event)
        elif isinstance(event, ws.Ping):
            return self._connection.send(event.response())
        elif isinstance(event, ws.CloseConnection):
            was_over, self.over = self.over, True
            if event.code not in (1000, 1001):
                raise UnavailableError(event.reason or f"the terminal was closed ({event.code})")
            return b"" if was_over else self._connection.send(event.response())
        return b""

    def _take_text(self, event: ws.TextMessage) -> None:
        self._text += event.data
        if not event.message_finished:
            return
        text, self._text = self._text, ""
        said = json.loads(text)
        if said.get("event") == "exit":
            self.result = ExecResult.of(said["result"])
        elif said.get("event") == "offset":
            self.offset = int(said["offset"])

    def taken(self) -> bytes:
        data = bytes(self.output)
        self.output.clear()
        return data


def _wish_of_size(rows: int, columns: int) -> dict[str, Any]:
    return {"resize": {"rows": rows, "columns": columns}}


class Terminal:
    """A command's terminal. ``read`` gives bytes as they come and nothing at its end; ``offset`` is
    how far it was read, for :meth:`Command.terminal` after a lost connection; ``result`` is there
    when the command has ended."""

    def __init__(self, endpoint: Endpoint, path: str, offset: int = 0) -> None:
        self._dialogue = _Dialogue(endpoint, path, offset)
        self._socket = self._connect()
        try:
            self._socket.settimeout(_HANDSHAKE_PATIENCE)
            self._socket.sendall(self._dialogue.greeting())
            while not self._dialogue.open:
                self._take_some()
        except BaseException:
            self._socket.close()
            raise

    def _connect(self) -> socket.socket:
        endpoint = self._dialogue.endpoint
        try:
            if endpoint.socket is not None:
                place = SocketPath(endpoint.socket)
                try:
                    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    made.connect(place.path)
                finally:
                    place.close()
                return made
            made = socket.create_connection((self._dialogue.host, self._dialogue.port), 10)
        except OSError as error:
            raise UnavailableError(f"the daemon at {endpoint} is away: {error}") from error
        if not self._dialogue.secure:
            return made
        context = ssl.create_default_context()
        return context.wrap_socket(made, server_hostname=self._dialogue.host)

    def _take_some(self) -> None:
        try:
            data = self._socket.recv(_PIECE)
        except socket.timeout:
            raise SandboxTimeoutError("the terminal has nothing to say") from None
        except OSError as error:
            raise UnavailableError(f"the terminal is lost: {error}") from error
        self._send(self._dialogue.take(data))
        if not data and not self._dialogue.open:
            raise UnavailableError("the daemon closed the connection")

    def _send(self, data: bytes) -> None:
        try:
            if data:
                self._socket.sendall(data)
        except OSError as error:
            raise UnavailableError(f"the terminal is lost: {error}") from error

    @property
    def result(self) -> ExecResult | None:
        return self._dialogue.result

    @property
    def offset(self) -> int:
        return self._dialogue.offset

    def write(self, data: Union[str, bytes]) -> None:
        """Types."""
        self._send(self._dialogue.input(data.encode() if isinstance(data, str) else data))

    def read(self, timeout: float | None = None) -> bytes:
        """The next bytes; nothing at the end. :class:`SandboxTimeoutError` when there are none for
        so long."""
        self._socket.settimeout(timeout)
        while not self._dialogue.output and not self._dialogue.over:
            self._take_some()
        return self._dialogue.taken()

    def read_until(self, text: Union[str, bytes], timeout: float = 10.0) -> bytes:
        """What comes up to and including a text; what follows it is read next."""
        wanted = text.encode() if isinstance(text, str) else text
        self._socket.settimeout(timeout)
        while wanted not in self._dialogue.output:
            if self._dialogue.over:
                raise UnavailableError(f"the terminal ended without {wanted!r}")
            self._take_some()
        return _up_to(self._dialogue.output, wanted)

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

    def resize(self, rows: int, columns: int) -> None:
        self._send(self._dialogue.wish(_wish_of_size(rows, columns)))

    def close(self) -> None:
        """Hangs up. The command goes on."""
        try:
            self._send(self._dialogue.goodbye())
        except UnavailableError:
            pass
        self._socket.close()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTerminal:
    """A command's terminal, awaited, in an ``async with`` block."""

    def __init__(self, endpoint: Endpoint, path: str, offset: int = 0) -> None:
        self._dialogue = _Dialogue(endpoint, path, offset)
        self._stream: anyio.abc.ByteStream | None = None

    async def __aenter__(self) -> AsyncTerminal:
        self._stream = await self._connect()
        try:
            with anyio.fail_after(_HANDSHAKE_PATIENCE):
                await self._send(self._dialogue.greeting())
                while not self._dialogue.open:
                    await self._take_some()
        except BaseException:
            await anyio.aclose_forcefully(self._stream)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _connect(self) -> anyio.abc.ByteStream:
        endpoint = self._dialogue.endpoint
        try:
            if endpoint.socket is not None:
                place = SocketPath(endpoint.socket)
                try:
                    return await anyio.connect_unix(place.path)
                finally:
                    place.close()
            host, port = self._dialogue.host, self._dialogue.port
            if self._dialogue.secure:
                return await anyio.connect_tcp(host, port, tls=True, tls_standard_compatible=False)
            return await anyio.connect_tcp(host, port)
        except OSError as error:
            raise UnavailableError(f"the daemon at {endpoint} is away: {error}") from error

    async def _take_some(self) -> None:
        assert self._stream is not None, "a terminal is used in an 'async with' block"
        try:
            data = await self._stream.receive(_PIECE)
        except anyio.EndOfStream:
            data = b""
        except (anyio.BrokenResourceError, OSError) as error:
            raise UnavailableError(f"the terminal is lost: {error}") from error
        await self._send(self._dialogue.take(data))
        if not data and not self._dialogue.open:
            raise UnavailableError("the daemon closed the connection")

    async def _send(self, data: bytes) -> None:
        assert self._stream is not None, "a terminal is used in an 'async with' block"
        try:
            if data:
                await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise UnavailableError(f"the terminal is lost: {error}") from error

    @property
    def result(self) -> ExecResult | None:
        return self._dialogue.result

    @property
    def offset(self) -> int:
        return self._dialogue.offset

    async def write(self, data: Union[str, bytes]) -> None:
        """Types."""
        await self._send(self._dialogue.input(data.encode() if isinstance(data, str) else data))

    async def read(self) -> bytes:
        """The next bytes; nothing at the end."""
        while not self._dialogue.output and not self._dialogue.over:
            await self._take_some()
        return self._dialogue.taken()

    async def read_until(self, text: Union[str, bytes]) -> bytes:
        """What comes up to and including a text; what follows it is read next."""
        wanted = text.encode() if isinstance(text, str) else text
        while wanted not in self._dialogue.output:
            if self._dialogue.over:
                raise UnavailableError(f"the terminal ended without {wanted!r}")
            await self._take_some()
        return _up_to(self._dialogue.output, wanted)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def resize(self, rows: int, columns: int) -> None:
        await self._send(self._dialogue.wish(_wish_of_size(rows, columns)))

    async def aclose(self) -> None:
        """Hangs up. The command goes on."""
        if self._stream is None:
            return
        try:
            await self._send(self._dialogue.goodbye())
        except UnavailableError:
            pass
        await anyio.aclose_forcefully(self._stream)


def _up_to(output: bytearray, wanted: bytes) -> bytes:
    end = output.index(wanted) + len(wanted)
    data = bytes(output[:end])
    del output[:end]
    return data
