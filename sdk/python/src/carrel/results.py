"""The values that calls return: plain, frozen, with the names that the API and ``--json`` have."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Literal

from .errors import CommandFailed, SandboxResourceError, SandboxTimeoutError

__all__ = [
    "Change",
    "CommandInfo",
    "CopySummary",
    "Diff",
    "Event",
    "ExecResult",
    "FileInfo",
    "Match",
    "Output",
    "Port",
    "SandboxInfo",
    "Service",
    "Snapshot",
    "Usage",
]

Json = Mapping[str, Any]


def _time(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)


def _bytes(data: Json, name: str) -> bytes:
    """The exact bytes of a text field, which has a twin in base64 where it is not UTF-8."""
    encoded = data.get(name + "_b64")
    if encoded is not None:
        return base64.b64decode(encoded)
    return str(data.get(name, "")).encode()


@dataclass(frozen=True)
class Cause:
    """Something known to have hindered a command that failed: ``kind`` is ``timeout``, ``memory``,
    ``processes``, ``disk``, ``no_network`` or ``denied``; ``option`` is what changes it, as the
    command line calls it."""

    kind: str
    message: str
    option: str


@dataclass(frozen=True)
class ExecResult:
    """How a command ended and what it wrote.

    ``stdout`` and ``stderr`` are text, with U+FFFD where the bytes are not UTF-8; ``stdout_bytes``
    and ``stderr_bytes`` are exact. ``success`` is exit code 0 and no timeout. ``str(result)`` is a
    text for a person or a model: stdout after success, otherwise what went wrong and both streams.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    signal: int = 0
    cwd: str = ""
    oom_killed: bool = False
    truncated: bool = False
    shell_restarted: bool = False
    duration_ms: int = 0
    reason: str = ""
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)
    causes: tuple[Cause, ...] = ()

    @property
    def success(self) -> bool:
        return self.exit_code == 0 and not self.timed_out

    @classmethod
    def of(cls, data: Json) -> ExecResult:
        return cls(
            exit_code=data["exit_code"],
            stdout=data.get("stdout", ""),
            stderr=data.get("stderr", ""),
            timed_out=data["timed_out"],
            signal=data["signal"],
            cwd=data["cwd"],
            oom_killed=data["oom_killed"],
            truncated=data["truncated"],
            shell_restarted=data["shell_restarted"],
            duration_ms=data["duration_ms"],
            reason=data["reason"],
            stdout_bytes=_bytes(data, "stdout"),
            stderr_bytes=_bytes(data, "stderr"),
            causes=tuple(
                Cause(cause["kind"], cause["message"], cause["option"])
                for cause in data.get("causes", ())
            ),
        )

    def __str__(self) -> str:
        if self.success:
            return self.stdout
        if self.timed_out:
            text = f"timed out after {self.duration_ms} ms"
        else:
            text = f"exit code {self.exit_code}"
            if self.reason:
                text += f" ({self.reason})"
        for stream in (self.stdout, self.stderr):
            if stream:
                text += ("" if text.endswith("\n") else "\n") + stream
        return text

    def check(self) -> ExecResult:
        """Returns itself after success, and raises otherwise: :class:`SandboxTimeoutError` (which
        is a ``TimeoutError``), :class:`SandboxResourceError` when memory ran out, or
        :class:`CommandFailed`."""
        if self.success:
            return self
        if self.timed_out:
            late = SandboxTimeoutError(str(self))
            late.result = self
            raise late
        if self.oom_killed:
            raise SandboxResourceError(str(self))
        failed = CommandFailed(str(self))
        failed.result = self
        raise failed


@dataclass(frozen=True)
class Output:
    """A piece of what a command wrote; ``offset`` is where in its stream the piece begins."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    offset: int

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class CommandInfo:
    """A command that a sandbox knows. ``result`` is there once it has ended, without its output."""

    id: str
    running: bool
    kind: Literal["exec", "shell"]
    title: str
    started: datetime | None
    stdout_range: tuple[int, int]
    stderr_range: tuple[int, int]
    result: ExecResult | None = None

    @classmethod
    def of(cls, data: Json) -> CommandInfo:
        result = data.get("result")
        return cls(
            id=data["id"],
            running=data["state"] == "running",
            kind=data["kind"],
            title=data["title"],
            started=_time(data["started_ms"]),
            stdout_range=(data["stdout_start"], data["stdout_end"]),
            stderr_range=(data["stderr_start"], data["stderr_end"]),
            result=None if result is None else ExecResult.of(result),
        )


@dataclass(frozen=True)
class FileInfo:
    """One entry of a directory. ``target`` is that of a link."""

    path: str
    kind: Literal["file", "directory", "link", "other"]
    mode: int
    size: int
    modified: datetime | None
    target: str | None = None
    path_bytes: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, data: Json) -> FileInfo:
        return cls(
            path=data["path"],
            kind=data["kind"],
            mode=int(data["mode"], 8),
            size=data["size"],
            modified=_time(data["modified_ms"]),
            target=data.get("target"),
            path_bytes=_bytes(data, "path"),
        )


@dataclass(frozen=True)
class Match:
    """A line with the text that was searched for."""

    path: str
    line: int
    text: str


@dataclass(frozen=True)
class CopySummary:
    """What a copy took along; ``left_out`` are pairs of a path and the reason."""

    path: str
    entries: int
    bytes: int
    left_out: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, data: Json) -> CopySummary:
        left_out = tuple((row["path"], row["reason"]) for row in data["left_out"])
        return cls(data["path"], data["entries"], data["bytes"], left_out)


@dataclass(frozen=True)
class FileChange:
    """Something that changed while somebody watched. ``event`` is "create", "write", "remove",
    "rename" (from ``path`` to ``to``), or "lost" when there was more than the kernel keeps."""

    event: str
    path: str
    to: str | None = None
    is_directory: bool = False

    @classmethod
    def of(cls, data: Json) -> FileChange:
        return cls(data["event"], data["path"], data.get("to"), data["directory"])


@dataclass(frozen=True)
class Snapshot:
    """What a workspace held at one moment."""

    id: str
    name: str
    workspace: str
    created: datetime | None

    @classmethod
    def of(cls, data: Json) -> Snapshot:
        return cls(
            data["id"], data.get("name") or "", data["workspace"], _time(data.get("created_ms"))
        )


@dataclass(frozen=True)
class Workspace:
    """A workspace on the disk of the daemon's host, and what its owner is charged for it."""

    name: str
    owner: str
    goes_with: str | None
    limit_bytes: int
    charged_bytes: int
    snapshots: tuple[Snapshot, ...]

    @classmethod
    def of(cls, data: Json) -> Workspace:
        rows = ({**row, "workspace": data["name"]} for row in data["snapshots"])
        return cls(
            data["name"],
            data["owner"],
            data["goes_with"],
            data["limit_bytes"],
            data["charged_bytes"],
            tuple(Snapshot.of(row) for row in rows),
        )


@dataclass(frozen=True)
class Disk:
    """What there is on the disk beside sandboxes; the sums are what is charged for it."""

    workspaces: tuple[Workspace, ...]
    workspaces_bytes: int
    snapshots_bytes: int
    quota_bytes: int | None

    @classmethod
    def of(cls, data: Json) -> Disk:
        return cls(
            tuple(Workspace.of(row) for row in data["workspaces"]),
            data["workspaces_bytes"],
            data["snapshots_bytes"],
            data["quota_bytes"],
        )


@dataclass(frozen=True)
class Change:
    """One entry of a diff. ``before`` and ``after`` are what SPECIFICATION.md says, or None."""

    change: Literal["added", "modified", "deleted", "renamed"]
    path: str
    before: Json | None = None
    after: Json | None = None
    hunks: tuple[Json, ...] = ()
    renamed_from: str | None = None


@dataclass(frozen=True)
class Diff:
    """What changed in a workspace between two moments."""

    workspace: str
    changes: tuple[Change, ...]

    @classmethod
    def of(cls, data: Json) -> Diff:
        changes = tuple(
            Change(
                row["change"],
                row["path"],
                row.get("before"),
                row.get("after"),
                tuple(row.get("hunks") or ()),
                row.get("from"),
            )
            for row in data["changes"]
        )
        return cls(data["workspace"], changes)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(change.path for change in self.changes)


@dataclass(frozen=True)
class SandboxInfo:
    """What is known of a sandbox, also after its end: then ``reason`` says why it ended."""

    id: str
    name: str
    state: str
    desired_state: str
    created: datetime | None
    ended: datetime | None
    lease_ends: datetime | None
    reason: str
    settings: Mapping[str, str]
    enforcement: tuple[Mapping[str, str], ...]
    held_by: tuple[Mapping[str, Any], ...] = ()
    services: tuple[Service, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        return self.state == "running"

    @classmethod
    def of(cls, data: Json) -> SandboxInfo:
        return cls(
            id=data["id"],
            name=data["name"],
            state=data["state"],
            desired_state=data["desired_state"],
            created=_time(data["created_ms"]),
            ended=_time(data["ended_ms"]),
            lease_ends=_time(data["lease_ends_ms"]),
            reason=data["reason"],
            settings=data.get("settings", {}),
            enforcement=tuple(data.get("enforcement", ())),
            held_by=tuple(data.get("held_by", ())),
            services=tuple(Service.of(row) for row in data.get("services", ())),
            links=data.get("links", {}),
        )


@dataclass(frozen=True)
class Service:
    """How a program is that runs as long as its sandbox: ``state`` is waiting, starting or ready;
    its output is that of ``command``."""

    name: str
    state: str
    restarts: int
    command: str | None
    last_exit: int | None

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    @classmethod
    def of(cls, data: Json) -> Service:
        return cls(*(data[one.name] for one in fields(cls)))


@dataclass(frozen=True)
class Usage:
    """What a sandbox uses; None is what nobody counts on this host."""

    memory_bytes: int | None
    memory_peak_bytes: int | None
    pids: int | None
    cpu_usec: int | None
    cpu_throttled_periods: int | None
    disk_bytes: int | None

    @classmethod
    def of(cls, data: Json) -> Usage:
        return cls(*(data.get(one.name) for one in fields(cls)))


@dataclass(frozen=True)
class Port:
    """How a server in a sandbox is reached: below a path of the daemon, or at a URL of its own
    where the daemon listens on TCP."""

    port: int
    public: bool
    path: str
    url: str | None

    @classmethod
    def of(cls, data: Json) -> Port:
        return cls(data["port"], data["public"], data["path"], data.get("url"))


@dataclass(frozen=True)
class Event:
    """Something that happened to a sandbox: ``start``, ``command``, ``result``, ``file``,
    ``security``, ``stop`` and others. ``data`` has the rest."""

    kind: str
    sandbox: str
    time: datetime | None
    data: Json = field(repr=False)

    @classmethod
    def of(cls, data: Json) -> Event:
        return cls(data["event"], data.get("sandbox", ""), _time(data.get("time_ms")), data)
