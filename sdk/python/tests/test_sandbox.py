"""A long-lived sandbox: its shell, its results, its life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest
from support import alive, eventually

from carrel import (
    Carrel,
    CommandFailed,
    ConflictError,
    ExecResult,
    GoneError,
    InvalidError,
    Mount,
    NotStartedError,
    Sandbox,
    SandboxError,
    SandboxNotFoundError,
    SandboxTimeoutError,
)


def test_the_shell_keeps_its_directory_and_variables(box: Sandbox) -> None:
    box.run("cd /tmp; export A=1; B=2")
    result = box.run("pwd; echo $A$B")
    assert result.stdout == "/tmp\n12\n"
    assert result.cwd == "/tmp"
    assert box.run("pwd", session="other").stdout == "/workspace\n"
    box.run("cd /workspace")


def test_the_first_command_comes_with_the_sandbox() -> None:
    with Sandbox(first="cd /tmp; echo up; (exit 3)") as box:
        assert box.first is not None
        assert (box.first.exit_code, box.first.stdout) == (3, "up\n")
        assert box.run("pwd").stdout == "/tmp\n"
    with Sandbox(first=["printf", "%s", "a b"]) as box:
        assert box.first is not None and box.first.stdout == "a b"
    with Sandbox() as box:
        assert box.first is None


def test_a_first_command_that_cannot_be_run_leaves_no_sandbox() -> None:
    before = {one.id for one in Carrel().sandboxes()}
    with pytest.raises(InvalidError):
        Sandbox(first="echo \0").open()
    assert {one.id for one in Carrel().sandboxes()} == before


def test_streams_and_exit_codes_are_exact(box: Sandbox) -> None:
    result = box.run("printf 'a\\n\\n b'; echo e >&2; exit 7", session="exact")
    assert (result.exit_code, result.stdout, result.stderr) == (7, "a\n\n b", "e\n")
    assert not result.success
    assert box.exec(["sh", "-c", "kill -9 $$"]).signal == signal.SIGKILL
    merged = box.exec(["sh", "-c", "echo o; echo e >&2"], merged=True)
    assert (merged.stdout, merged.stderr) == ("o\ne\n", "")


def test_bytes_that_are_not_utf8_are_there(box: Sandbox) -> None:
    result = box.run("printf '\\377\\376\\n'")
    assert result.stdout == "\ufffd\ufffd\n"
    assert result.stdout_bytes == b"\xff\xfe\n"
    heard: list[str] = []
    streamed = box.run("printf '\\377\\376\\n'", on_stdout=heard.append)
    assert streamed.stdout_bytes == b"\xff\xfe\n"


def test_the_text_of_a_result_is_output_or_what_went_wrong() -> None:
    assert str(ExecResult(0, stdout="out\n", stderr="err\n")) == "out\n"
    assert str(ExecResult(3, stdout="out", stderr="err\n")) == "exit code 3\nout\nerr\n"
    killed = ExecResult(137, signal=9, reason="killed by signal 9")
    assert str(killed) == "exit code 137 (killed by signal 9)"
    late = ExecResult(124, stdout="a\n", stderr="b\n", timed_out=True, duration_ms=1000)
    assert str(late) == "timed out after 1000 ms\na\nb\n"
    assert not ExecResult(0, timed_out=True).success


def test_a_failure_has_the_causes_that_are_known(box: Sandbox) -> None:
    (cause,) = box.run("getent hosts example.org").causes
    assert cause.kind == "no_network" and cause.option.startswith("--network")
    assert box.run("false").causes == () and box.run("true").causes == ()
    late = box.run("sleep 61", timeout=0.3)
    assert [cause.option for cause in late.causes] == ["--timeout"]


def test_a_timeout_keeps_partial_output_and_is_a_timeout_error(box: Sandbox) -> None:
    """R206, B-39, B-40"""
    result = box.run("echo a; sleep 61", timeout=0.3)
    assert result.timed_out and result.stdout == "a\n" and not result.success
    assert not alive(box, "sleep 61")
    with pytest.raises(TimeoutError) as raised:
        box.run("echo b; sleep 61", timeout=0.3, check=True)
    assert isinstance(raised.value, SandboxTimeoutError)
    assert raised.value.result is not None and raised.value.result.stdout == "b\n"
    with pytest.raises(InvalidError):
        box.run("true", timeout=0)


def test_a_checked_failure_is_raised_with_its_result(box: Sandbox) -> None:
    with pytest.raises(CommandFailed, match="exit code 3") as raised:
        box.exec(["sh", "-c", "exit 3"], check=True)
    assert raised.value.result.exit_code == 3
    assert box.run("true", check=True).success


def test_output_is_heard_as_it_comes(box: Sandbox) -> None:
    heard: list[tuple[str, float]] = []

    def listen(text: str) -> None:
        heard.append((text, time.monotonic()))

    result = box.run(
        "echo one; sleep 0.5; echo two; echo bad >&2", on_stdout=listen, on_stderr=listen
    )
    assert result.stdout == "one\ntwo\n" and result.stderr == "bad\n"
    assert sorted(text for text, _ in heard) == ["bad\n", "one\n", "two\n"]
    assert heard[1][1] - heard[0][1] > 0.3


def test_exec_has_words_environment_directory_and_input(box: Sandbox) -> None:
    words = ["sh", "-c", 'cat; echo "$X" "$1"; pwd', "sh", "a b; $Y"]
    result = box.exec(words, stdin="in\n", env={"X": "x"}, workdir="/tmp")
    assert result.stdout == "in\nx a b; $Y\n/tmp\n"


def test_threads_share_a_shell_and_get_their_own_answers(box: Sandbox) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = box.run(f"echo {number}").stdout

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: f"{n}\n" for n in range(10)}


def test_an_exception_during_a_call_kills_the_command(box: Sandbox) -> None:
    class Given(Exception):
        pass

    def give_up(*_: object) -> None:
        raise Given

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Given):
            box.exec(["sleep", "62"])
    finally:
        signal.signal(signal.SIGALRM, before)
    deadline = time.monotonic() + 3
    while alive(box, "sleep 62"):
        assert time.monotonic() < deadline, "the command goes on"
        time.sleep(0.05)


def test_settings_reach_the_sandbox() -> None:
    name = f"named-{uuid.uuid4().hex[:8]}"
    box = Sandbox(
        name=name,
        env={"A": "b"},
        network="none",
        memory="128m",
        cpus=0.5,
        pids=20,
        timeout=7,
        hostname="inner",
    )
    with box:
        info = box.info()
        assert info.name == name and info.running
        assert info.settings["memory"] == "128m" and info.settings["timeout"] == "7"
        assert info.settings["cpus"] == "0.5" and info.settings["pids"] == "20"
        assert any(row["name"] == "seccomp" for row in info.enforcement)
        assert box.run("hostname; echo $A").stdout == "inner\nb\n"
        with Carrel() as carrel:
            assert [found.id for found in carrel.sandboxes(name=name)] == [box.id]
        with pytest.raises(ConflictError):
            Sandbox(name=name).open()


def test_mounts_are_read_only_unless_said(tmp_path_world: str) -> None:
    source = os.path.join(tmp_path_world, "data")
    os.mkdir(source, 0o777)
    with open(os.path.join(source, "f"), "w") as file:
        file.write("from outside\n")
    with Sandbox(mounts=[Mount(source, "/data")]) as box:
        assert box.run("cat /data/f").stdout == "from outside\n"
        assert not box.run("touch /data/g").success
    with pytest.raises(SandboxError, match="/etc"):
        Sandbox(mounts=[Mount("/etc", "/data")]).open()
    for wrong in ("false", 0, None):
        with pytest.raises(TypeError):
            Mount(source, "/data", wrong)  # type: ignore[arg-type]


@pytest.fixture
def tmp_path_world(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("world"))


def test_before_and_after_its_life_it_says_so() -> None:
    box = Sandbox()
    with pytest.raises(NotStartedError, match="not started"):
        box.run("true")
    box.close()
    with box:
        box_id = box.id
        assert str(uuid.UUID(box_id)) == box_id
        with pytest.raises(ConflictError):
            box.open()
    with pytest.raises(NotStartedError, match="closed"):
        box.run("true")
    box.close()
    with Carrel() as carrel:
        assert carrel.info(box_id).reason == "it was removed"
        carrel.delete(box_id)


def test_an_exception_in_the_block_removes_the_sandbox() -> None:
    with pytest.raises(ZeroDivisionError):
        with Sandbox() as box:
            box_id = box.id
            raise ZeroDivisionError
    with Carrel() as carrel:
        assert carrel.info(box_id).state == "ended"


def test_a_sandbox_that_ended_is_a_typed_error_with_the_reason() -> None:
    with Sandbox() as box:
        with Carrel() as carrel:
            carrel.delete(box.id)
        with pytest.raises(GoneError, match="it was removed"):
            box.run("true")
        assert not box.is_alive()


def test_a_death_in_the_middle_of_a_command_is_told_at_once() -> None:
    """R209"""
    with Sandbox() as box:
        with Carrel() as carrel:
            timer = threading.Timer(0.3, carrel.delete, [box.id], {"grace": 0})
            timer.start()
            began = time.monotonic()
            with pytest.raises(GoneError):
                box.run("sleep 63")
            assert time.monotonic() - began < 2.3
            timer.join()


def test_attaching_finds_a_sandbox_and_leaves_it() -> None:
    with Sandbox(lease=None) as box:
        box.run("cd /tmp")
        with Sandbox.attach(box.id) as same:
            assert same.run("pwd").stdout == "/tmp\n"
        assert box.is_alive()
        Sandbox.attach(box.id).delete()
        assert not box.is_alive()
    missing = str(uuid.uuid4())
    with pytest.raises(SandboxNotFoundError, match=f"Sandbox {missing} not found"):
        Sandbox.attach(missing)
    with pytest.raises(KeyError):
        Sandbox.attach(missing)


def test_a_lease_can_be_changed() -> None:
    with Sandbox(lease=60) as box:
        box.run("true")
        before = box.info().lease_ends
        after = box.set_lease(600).lease_ends
        assert before is not None and after is not None and (after - before).seconds > 500
        assert box.set_lease(None).lease_ends is None


def test_a_killed_programs_sandbox_ends_with_its_lease_and_a_living_ones_does_not() -> None:
    program = (
        "from carrel import Sandbox\n"
        "import sys, time\n"
        "box = Sandbox(lease=1.5).open()\n"
        "print(box.id, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with process, Sandbox(lease=1.5) as own, Carrel() as carrel:
        try:
            assert process.stdout is not None
            box_id = process.stdout.readline().decode().strip()
            own.run("cd /tmp")
            time.sleep(2)
            assert carrel.info(box_id).running
        finally:
            process.kill()
        assert eventually(lambda: not carrel.info(box_id).running)
        assert "lease" in carrel.info(box_id).reason
        assert own.run("pwd").stdout == "/tmp\n"


def test_a_fork_has_connections_of_its_own(box: Sandbox) -> None:
    box.run("true")
    child = os.fork()
    if child == 0:
        good = all(box.run(f"echo child {n}").stdout == f"child {n}\n" for n in range(20))
        os._exit(0 if good else 1)
    assert all(box.run(f"echo {n}").stdout == f"{n}\n" for n in range(20))
    assert os.waitpid(child, 0)[1] == 0
