"""What several tests use."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

from carrel import Sandbox


def alive(box: Sandbox, word: str) -> bool:
    """Whether a process with that word in its command line runs in the sandbox."""
    pattern = f"[{word[0]}]{word[1:]}"
    return box.exec(["pgrep", "-f", pattern]).success


def seconds(whole: int) -> str:
    """A time for sleep(1) that no other run of the tests has."""
    return f"{whole}.{os.getpid()}"


def on_host(*words: str) -> list[int]:
    """The processes of this host, of sandboxes too, whose command line ends with these words."""
    wanted = [word.encode() for word in words]
    return [pid for pid, line, _ in processes() if line[-len(wanted) :] == wanted]


def daemons(home: str) -> list[int]:
    """The processes that serve a home."""
    variable = f"CARREL_HOME={home}".encode()
    return [
        pid
        for pid, line, variables in processes()
        if line[1:2] == [b"serve"] and variable in variables
    ]


def processes() -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                line = file.read().rstrip(b"\0").split(b"\0")
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except PermissionError:
            variables = []
        except OSError:
            continue
        yield int(entry), line, variables


def kill_daemon(home: str, number: int = signal.SIGKILL) -> None:
    for pid in daemons(home):
        os.kill(pid, number)


def eventually(condition: Callable[[], bool], patience: float = 5.0) -> bool:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
