"""Finding the daemon, starting it, and reaching one elsewhere."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import daemons, eventually, kill_daemon

from carrel import (
    Carrel,
    DaemonError,
    InvalidError,
    NotFoundError,
    Sandbox,
    SandboxRunner,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from carrel._endpoint import answers, find_binary, find_endpoint, home_path


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A home without a daemon; what is started for it is ended."""
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("CARREL_HOME", str(home))
    yield str(home)
    kill_daemon(str(home), signal.SIGTERM)
    assert eventually(lambda: not daemons(str(home)), 10)


def test_the_home_is_found_as_the_program_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(home_path({"CARREL_HOME": "/a", "XDG_DATA_HOME": "/b"})) == "/a"
    with pytest.raises(InvalidError, match="absolute"):
        home_path({"CARREL_HOME": "a"})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert str(home_path({"XDG_DATA_HOME": "/b", "HOME": "/c"})) == "/b/carrel"
    assert str(home_path({"XDG_DATA_HOME": "b", "HOME": "/c"})) == "/c/.local/share/carrel"
    with pytest.raises(InvalidError, match="CARREL_HOME"):
        home_path({})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert str(home_path({"HOME": "/c"})) == "/var/lib/carrel"


def test_a_daemon_that_is_dying_is_followed_by_another(fresh_home: str) -> None:
    # A killed daemon holds its lock until the kernel has taken it apart.
    run = Path(fresh_home) / "run"
    run.mkdir(mode=0o700)
    with (run / "serve.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        timer = threading.Timer(0.5, lambda: fcntl.lockf(lock, fcntl.LOCK_UN))
        timer.start()
        with Carrel() as carrel:
            assert carrel.run("echo there").stdout == "there\n"
        timer.join()


def test_the_environment_names_a_daemon_elsewhere() -> None:
    there = find_endpoint({"CARREL_API": "https://a.example:8443/", "CARREL_TOKEN": "secret"})
    assert (there.url, there.token, there.managed) == ("https://a.example:8443", "secret", False)
    assert "secret" not in repr(there)
    assert find_endpoint({"CARREL_API": "unix:/x/y"}).socket == "/x/y"
    assert find_endpoint({"CARREL_HOME": "/h"}).socket == "/h/run/api.sock"
    with pytest.raises(InvalidError, match="CARREL_API"):
        find_endpoint({"CARREL_API": "ftp://a"})


def test_the_program_is_named_or_in_the_path(tmp_path: Path) -> None:
    program = tmp_path / "carrel"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_binary({"PATH": str(tmp_path)}) == str(program)
    assert find_binary({"CARREL_BINARY": str(program), "PATH": ""}) == str(program)
    with pytest.raises(DaemonError, match="CARREL_BINARY"):
        find_binary({"PATH": "/nonexistent"})
    with pytest.raises(DaemonError, match="no program"):
        find_binary({"CARREL_BINARY": "/nonexistent", "PATH": str(tmp_path)})


def test_several_that_start_it_at_once_get_one_daemon(fresh_home: str) -> None:
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            with Carrel() as carrel:
                assert carrel.ready()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    [daemon] = daemons(fresh_home)
    # It is nobody's: it has a session of its own, no terminal, and does not sit in this directory.
    assert os.getsid(daemon) == daemon
    assert os.readlink(f"/proc/{daemon}/cwd") == "/"
    with open(f"/proc/{daemon}/cmdline", "rb") as file:
        assert b"--idle-exit" in file.read()


def test_who_comes_second_waits_for_the_first(
    fresh_home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = find_binary()
    loser = tmp_path / "loser"
    loser.write_text(
        f"#!/bin/sh\nmkdir '{tmp_path}/once' 2>/dev/null &&\n"  # the first one alone
        f"  (sleep 0.3; exec '{real}' serve) </dev/null >/dev/null 2>&1 &\n"
        "echo 'carrel: a daemon of this home is running already' >&2\nexit 125\n"
    )
    loser.chmod(0o755)
    monkeypatch.setenv("CARREL_BINARY", str(loser))
    with Carrel() as carrel:
        assert carrel.ready()


def test_a_daemon_that_went_away_is_started_again(fresh_home: str) -> None:
    with Sandbox() as box:
        kill_daemon(fresh_home)
        assert eventually(lambda: not answers(f"{fresh_home}/run/api.sock"))
        assert box.run("echo here").stdout == "here\n"


def test_a_deep_home_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / ("d" * 100) / ("e" * 50)
    monkeypatch.setenv("CARREL_HOME", str(home))
    try:
        with Carrel() as carrel:
            assert carrel.ready()
    finally:
        kill_daemon(str(home), signal.SIGTERM)
        assert eventually(lambda: not daemons(str(home)), 10)


def test_a_program_that_does_not_serve_is_told(
    fresh_home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho 'carrel: no luck today' >&2\nexit 125\n")
    program.chmod(0o755)
    monkeypatch.setenv("CARREL_BINARY", str(program))
    with pytest.raises(DaemonError, match=r"could not be started\. carrel: no luck today"):
        Sandbox().open()


def test_a_block_that_failed_says_so_even_if_nothing_can_be_removed(
    fresh_home: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError):
        with Sandbox(lease=2):
            monkeypatch.setenv("CARREL_BINARY", "/nonexistent")
            kill_daemon(fresh_home)
            assert eventually(lambda: not answers(f"{fresh_home}/run/api.sock"))
            raise ZeroDivisionError
    assert "could not be removed" in caplog.text


def test_a_daemon_elsewhere_that_is_away_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARREL_API", "http://127.0.0.1:1")
    with pytest.raises(ConnectionError) as raised:
        Sandbox().open()
    assert isinstance(raised.value, UnavailableError)


@pytest.fixture
def over_tcp(fresh_home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A daemon on TCP, which the environment names; gives its URL."""
    program = find_binary()
    tokens = str(tmp_path / "tokens")
    words = [program, "serve", "--new-token", "test", "--token-file", tokens]
    token = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    words = [program, "serve", "--listen", "tcp:127.0.0.1:0", "--token-file", tokens]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r'"at":"(127\.0\.0\.1:\d+)"', process.stderr.readline())
        assert found is not None
        monkeypatch.setenv("CARREL_API", f"http://{found.group(1)}")
        monkeypatch.setenv("CARREL_TOKEN", token)
        yield f"http://{found.group(1)}"
        process.send_signal(signal.SIGTERM)
        process.stderr.close()
        process.wait(10)


def test_a_daemon_elsewhere_needs_its_token(over_tcp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as box:
        assert box.run("echo hi").stdout == "hi\n"
        with box.terminal(["bash", "--norc"]) as terminal:
            terminal.write("echo 4$((1+1))\n")
            terminal.read_until("42\r\n")
            terminal.write("exit\n")
        assert SandboxRunner().run_code("print(6*7)").stdout == "42\n"
        with pytest.raises(UnsupportedError):
            SandboxRunner().run_code("1", extra_mounts=[{"source": "/tmp", "target": "/d"}])
        with monkeypatch.context() as elsewhere, pytest.raises(NotFoundError):
            elsewhere.setenv("CARREL_API", over_tcp + "/elsewhere")
            Sandbox().open()
        monkeypatch.setenv("CARREL_TOKEN", "carrel_wrong")
        with pytest.raises(UnauthenticatedError) as raised:
            Sandbox().open()
        assert isinstance(raised.value, PermissionError)
        assert raised.value.code == "unauthenticated" and raised.value.status == 401
        assert "carrel_wrong" not in str(raised.value)
        monkeypatch.delenv("CARREL_TOKEN")
        with pytest.raises(UnauthenticatedError):
            Sandbox().open()
