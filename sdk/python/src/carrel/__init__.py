"""Carrel: rooms of their own for commands that nobody has read.

::

    from carrel import Sandbox

    with Sandbox() as box:
        box.run("cd /tmp")
        print(box.run("pwd").stdout)

`Sandbox` and `AsyncSandbox` are long-lived sandboxes; `run_code`, `run_command` and `SandboxRunner`
run once; `SandboxManager` looks after many; `Carrel` is the daemon.
"""

from ._endpoint import Endpoint
from ._settings import Mount
from .commands import AsyncCommand, Command
from .config import MountDecision, MountPolicy, SandboxConfig, SandboxSettings
from .daemon import AsyncCarrel, Carrel
from .errors import (
    CommandFailed,
    ConflictError,
    DaemonError,
    DeniedError,
    GoneError,
    InvalidError,
    NotFoundError,
    NotStartedError,
    SandboxError,
    SandboxFileNotFoundError,
    SandboxNotFoundError,
    SandboxResourceError,
    SandboxTimeoutError,
    SystemFailure,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from .manager import (
    ManagedSandbox,
    ManagerStats,
    SandboxClient,
    SandboxManager,
    create_sandbox_client,
)
from .results import (
    Cause,
    Change,
    CommandInfo,
    CopySummary,
    Diff,
    Disk,
    Event,
    ExecResult,
    FileChange,
    FileInfo,
    Match,
    Output,
    Port,
    SandboxInfo,
    Service,
    Snapshot,
    Usage,
    Workspace,
)
from .runner import AsyncSandboxRunner, SandboxRunner, run_code, run_command
from .sandbox import AsyncSandbox, Sandbox
from .terminals import AsyncTerminal, Terminal
from .tools import ToolSandbox

__version__ = "0.1.0"

__all__ = [
    "AsyncCarrel",
    "AsyncCommand",
    "AsyncSandbox",
    "AsyncSandboxRunner",
    "AsyncTerminal",
    "Carrel",
    "Cause",
    "Change",
    "Command",
    "CommandFailed",
    "CommandInfo",
    "ConflictError",
    "CopySummary",
    "DaemonError",
    "DeniedError",
    "Diff",
    "Disk",
    "Endpoint",
    "Event",
    "ExecResult",
    "FileChange",
    "FileInfo",
    "GoneError",
    "InvalidError",
    "ManagedSandbox",
    "ManagerStats",
    "Match",
    "Mount",
    "MountDecision",
    "MountPolicy",
    "NotFoundError",
    "NotStartedError",
    "Output",
    "Port",
    "Sandbox",
    "SandboxClient",
    "SandboxConfig",
    "SandboxError",
    "SandboxFileNotFoundError",
    "SandboxInfo",
    "SandboxManager",
    "SandboxNotFoundError",
    "SandboxResourceError",
    "SandboxRunner",
    "SandboxSettings",
    "SandboxTimeoutError",
    "Service",
    "Snapshot",
    "SystemFailure",
    "Terminal",
    "ToolSandbox",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsupportedError",
    "Usage",
    "Workspace",
    "create_sandbox_client",
    "run_code",
    "run_command",
]
