"""Where the daemon is, and how one is started where there is none.

``CARREL_API`` (``http://host:port``, ``https://…`` or ``unix:/path``) with ``CARREL_TOKEN`` names
a daemon that somebody else looks after. Without it, it is the one of this user's home, found by
the rules of the ``carrel`` command, and started at need.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import DaemonError, InvalidError

IDLE_EXIT = "10m"
START_PATIENCE = 20.0
_LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True)
class Endpoint:
    """A daemon: at a unix socket or at a URL. A managed one is started when it does not answer."""

    socket: str | None = None
    url: str = "http://localhost"
    token: str | None = field(default=None, repr=False)
    managed: bool = False

    def __str__(self) -> str:
        return self.url if self.socket is None else f"unix:{self.socket}"


def home_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The state directory, as the binary finds it: ``CARREL_HOME``, root's, or XDG's."""
    given = environment.get("CARREL_HOME", "")
    if given:
        if not given.startswith("/"):
            raise InvalidError(f"CARREL_HOME is '{given}' (it must be an absolute path)")
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/carrel")
    data = environment.get("XDG_DATA_HOME", "")
    if data.startswith("/"):
        return Path(data) / "carrel"
    home = environment.get("HOME", "")
    if home.startswith("/"):
        return Path(home) / ".local/share/carrel"
    raise InvalidError("there is no place for Carrel's state (set CARREL_HOME to an absolute path)")


def find_endpoint(environment: Mapping[str, str] = os.environ) -> Endpoint:
    """The daemon that the environment names, or the one of this user's home."""
    api = environment.get("CARREL_API", "")
    token = environment.get("CARREL_TOKEN") or None
    if not api:
        return Endpoint(socket=str(home_path(environment) / "run/api.sock"), managed=True)
    if api.startswith("unix:/"):
        return Endpoint(socket=api.removeprefix("unix:"), token=token)
    if api.startswith(("http://", "https://")):
        return Endpoint(url=api.rstrip("/"), token=token)
    raise InvalidError(f"CARREL_API is '{api}' (http://HOST:PORT, https://HOST or unix:/PATH)")


def find_binary(environment: Mapping[str, str] = os.environ) -> str:
    """The ``carrel`` program: ``CARREL_BINARY``, or the first of that name in ``PATH``."""
    given = environment.get("CARREL_BINARY", "")
    if given:
        if not os.access(given, os.X_OK) or os.path.isdir(given):
            raise DaemonError(f"CARREL_BINARY is '{given}', which is no program")
        return os.path.abspath(given)
    found = shutil.which("carrel", path=environment.get("PATH"))
    if found is None:
        raise DaemonError(
            "there is no 'carrel' program in PATH"
            " (install it, or set CARREL_BINARY to its path, or CARREL_API to a daemon's URL)"
        )
    return os.path.abspath(found)


class SocketPath:
    """A path for connect(2) that fits, however deep the socket lies."""

    def __init__(self, path: str) -> None:
        self._directory: int | None = None
        self.path = path
        if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            parent, name = os.path.split(path)
            try:
                self._directory = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                return  # there is no daemon there yet
            self.path = f"/proc/self/fd/{self._directory}/{name}"

    @property
    def fits(self) -> bool:
        return len(os.fsencode(self.path)) <= _LONGEST_SOCKET_PATH

    def close(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def answers(path: str) -> bool:
    """Whether somebody listens at the socket."""
    place = SocketPath(path)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(5)
            probe.connect(place.path)
            return True
    except OSError:
        return False
    finally:
        place.close()


def start_daemon(endpoint: Endpoint, environment: Mapping[str, str] = os.environ) -> None:
    """Returns when a daemon answers at the endpoint's socket: one that was started here, or by
    somebody else at the same moment, for there can be only one. It lives in a session of its own
    and leaves by itself when it has had no client for a while."""
    if endpoint.socket is None or answers(endpoint.socket):
        return
    binary = find_binary(environment)
    inherited = {name: value for name, value in environment.items() if name != "CARREL_TOKEN"}
    deadline = time.monotonic() + START_PATIENCE
    while (said := _start_once(binary, inherited, endpoint.socket, deadline)) is not None:
        if b"running already" not in said:
            raise DaemonError(f"the daemon could not be started. {_last_line(said)}")
        if time.monotonic() > deadline:
            raise DaemonError(
                f"the daemon does not answer at '{endpoint.socket}'. {_last_line(said)}"
            )
        # The other one is on its way, and will answer; or it was killed a moment ago and still
        # holds its lock, and the next try is the one that succeeds.
        time.sleep(0.02)


def _start_once(
    binary: str, environment: Mapping[str, str], path: str, deadline: float
) -> bytes | None:
    """Starts a daemon. Nothing: one answers at the socket. Otherwise what it said and left."""
    if answers(path):
        return None
    try:
        process = subprocess.Popen(
            [binary, "serve", "--idle-exit", IDLE_EXIT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",  # a carrel.toml that merely lies in this directory is none of the daemon's
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise DaemonError(f"cannot start '{binary} serve': {error}") from error
    # Nobody waits for it; a thread sees that it does not stay a zombie of this process.
    threading.Thread(target=process.wait, name="carrel-serve", daemon=True).start()
    assert process.stderr is not None
    with process.stderr as log:
        return _await_daemon(path, log.fileno(), deadline)


def _await_daemon(path: str, log: int, deadline: float) -> bytes | None:
    said = b""
    while not answers(path):
        if time.monotonic() > deadline:
            raise DaemonError(f"the daemon does not answer at '{path}'. {_last_line(said)}")
        if select.select([log], [], [], 0.01)[0]:
            piece = os.read(log, 65536)
            if not piece:
                return said
            said += piece
    return None


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "It said nothing."
