"""Listening to a command: its output in order from any offset, and its end."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from ._sse import EventParser
from ._steps import Request
from .errors import SandboxError, UnavailableError, error_of
from .results import ExecResult, Output

Listener = Callable[[str], object]
KEPT = 5 << 20
PATIENCE = 60.0  # a daemon that has nothing to say sends a sign of life every 15 seconds
_MOST_FAILURES = 5


class Capture:
    """The first and the last 5 MiB of a stream, as every result of Carrel has them."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._head = bytearray()
        self._tail = bytearray()
        self.cut = 0

    def add(self, data: bytes) -> None:
        room = self._kept - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room < len(data) else b""
        if len(self._tail) > 2 * self._kept:
            self._shorten()

    def _shorten(self) -> None:
        excess = len(self._tail) - self._kept
        if excess > 0:
            self.cut += excess
            del self._tail[:excess]

    def data(self) -> bytes:
        self._shorten()
        mark = f"\n[... {self.cut} bytes left out ...]\n".encode() if self.cut else b""
        return bytes(self._head) + mark + bytes(self._tail)


class Captures:
    """Both streams of a command, and its end, as one result."""

    def __init__(
        self, on_stdout: Listener | None = None, on_stderr: Listener | None = None
    ) -> None:
        self._listeners = {"stdout": on_stdout, "stderr": on_stderr}
        self._captures = {"stdout": Capture(), "stderr": Capture()}

    def add(self, stream: str, data: bytes) -> None:
        self._captures[stream].add(data)
        listener = self._listeners[stream]
        if listener is not None:
            listener(data.decode("utf-8", "replace"))

    def result(self, end: Mapping[str, Any]) -> ExecResult:
        fields = dict(end)
        for name, capture in self._captures.items():
            data = capture.data()
            fields[name] = data.decode("utf-8", "replace")
            fields[name + "_b64"] = base64.b64encode(data).decode()
            fields["truncated"] = fields["truncated"] or capture.cut > 0
        return ExecResult.of(fields)


class Attendance:
    """The sink of a request that waits for a command and hears its output."""

    def __init__(self, on_stdout: Listener | None, on_stderr: Listener | None) -> None:
        self._parser = EventParser()
        self._captures = Captures(on_stdout, on_stderr)
        self._end: Mapping[str, Any] | None = None

    def take(self, piece: bytes) -> None:
        for event in self._parser.feed(piece):
            if event.kind == "exit":
                self._end = event.data
            elif event.kind in ("stdout", "stderr"):
                self._captures.add(event.kind, base64.b64decode(event.data["data_b64"]))

    def result(self) -> ExecResult:
        if self._end is None:
            raise UnavailableError("the daemon went away before the command ended")
        return self._captures.result(self._end)


class Following:
    """Follows a background command through any number of connections, each of which goes on where
    the one before it broke off."""

    def __init__(self, path: str, stdout: int = 0, stderr: int = 0) -> None:
        self._path = path
        self._at = {"stdout": stdout, "stderr": stderr}
        self._parser = EventParser()
        self._captures = Captures()
        self._failures = 0
        self.result: ExecResult | None = None

    def request(self) -> Request:
        self._parser = EventParser()
        query = {name: str(offset) for name, offset in self._at.items()}
        return Request("GET", self._path, query, patience=PATIENCE, repeatable=True)

    def feed(self, piece: bytes) -> Iterator[Output]:
        for event in self._parser.feed(piece):
            if event.kind == "exit":
                self.result = self._captures.result(event.data)
            elif event.kind == "error":
                raise problem_of(event.data)
            elif event.kind in ("stdout", "stderr"):
                stream: Literal["stdout", "stderr"] = (
                    "stdout" if event.kind == "stdout" else "stderr"
                )
                data = base64.b64decode(event.data["data_b64"])
                self._at[stream] = event.data["offset"] + len(data)
                self._failures = 0
                self._captures.add(stream, data)
                yield Output(stream, data, event.data["offset"])

    def take(self, piece: bytes) -> None:
        for _ in self.feed(piece):
            pass

    def broke_off(self, error: UnavailableError | None = None) -> None:
        """A connection ended before the command did. A few times in a row are no reason to stop."""
        self._failures += 1
        if self._failures > _MOST_FAILURES:
            raise error or UnavailableError("the daemon went away before the command ended")


def problem_of(details: Mapping[str, Any]) -> SandboxError:
    return error_of(str(details.get("code")), str(details.get("detail")))
