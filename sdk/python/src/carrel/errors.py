"""What Carrel could not do, or would not. What a command did is never one of these, but a result:
its exit code, its signal and its timeout are in :class:`~carrel.ExecResult`. Only ``check()`` turns
those into errors, for callers who want that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import ExecResult

__all__ = [
    "CommandFailed",
    "ConflictError",
    "DaemonError",
    "DeniedError",
    "GoneError",
    "InvalidError",
    "NotFoundError",
    "NotStartedError",
    "SandboxError",
    "SandboxFileNotFoundError",
    "SandboxNotFoundError",
    "SandboxResourceError",
    "SandboxTimeoutError",
    "SystemFailure",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsupportedError",
]


class SandboxError(RuntimeError):
    """The base of everything that this package raises by itself.

    ``code`` is the stable name of the kind of error (the ``code`` of the API's problem details),
    ``status`` the HTTP status it came with, or 0.
    """

    code = "system"

    def __init__(self, message: str, *, code: str | None = None, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,), dict(self.__dict__)


class InvalidError(SandboxError, ValueError):
    """The request makes no sense; the message names what is wrong with it."""

    code = "invalid"


class NotFoundError(SandboxError, LookupError):
    """What was asked for is not there."""

    code = "not_found"


class SandboxNotFoundError(NotFoundError, KeyError):
    """There is no sandbox of that id, or it is another's."""


class SandboxFileNotFoundError(NotFoundError, FileNotFoundError):
    """There is no such file in the sandbox."""


class ConflictError(SandboxError):
    """It is in the way of something that is there already."""

    code = "conflict"


class DeniedError(SandboxError, PermissionError):
    """A policy refuses it."""

    code = "denied"


class UnauthenticatedError(DeniedError):
    """The daemon wants a token, and another one than it got."""

    code = "unauthenticated"


class UnsupportedError(SandboxError):
    """This host, or this version, does not have it."""

    code = "unsupported"


class UnavailableError(SandboxError, ConnectionError):
    """The daemon, or something that it needs, is away. A command that was on its way may go on."""

    code = "unavailable"


class DaemonError(UnavailableError):
    """There is no daemon, and none could be started."""


class SandboxResourceError(SandboxError):
    """A limit: of sandboxes, of memory, of what the host has."""

    code = "resource"


class SandboxTimeoutError(SandboxError, TimeoutError):
    """It took too long. ``result`` is what the command had done by then, if it was a command."""

    code = "timeout"
    result: ExecResult | None = None


class GoneError(SandboxError):
    """The sandbox has ended; the message says why."""

    code = "gone"


class NotStartedError(SandboxError):
    """The sandbox was not opened yet, or is closed already."""

    code = "conflict"


class SystemFailure(SandboxError):
    """The host failed; the message says at what."""

    code = "system"


class CommandFailed(SandboxError):
    """A checked command did not succeed. ``result`` says how it ended."""

    code = "command"
    result: ExecResult


_BY_CODE: Mapping[str, type[SandboxError]] = {
    "invalid": InvalidError,
    "not_found": NotFoundError,
    "conflict": ConflictError,
    "denied": DeniedError,
    "unsupported": UnsupportedError,
    "unavailable": UnavailableError,
    "resource": SandboxResourceError,
    "timeout": SandboxTimeoutError,
    "gone": GoneError,
    "system": SystemFailure,
    "unauthenticated": UnauthenticatedError,
    "method_not_allowed": UnsupportedError,
    "precondition_failed": ConflictError,
    "too_large": InvalidError,
    "unsupported_media_type": InvalidError,
}


def error_of(code: str, message: str, status: int = 0) -> SandboxError:
    """The error for a ``code`` of the API or of ``carrel --json``. Unknown codes are no reason to
    lose the message."""
    kind = _BY_CODE.get(code, SandboxError)
    if kind is NotFoundError and message.startswith("Sandbox "):
        kind = SandboxNotFoundError
    return kind(message, code=code, status=status)
