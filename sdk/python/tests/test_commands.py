"""Commands in the background, terminals and events."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support import alive, kill_daemon

from carrel import Carrel, ConflictError, NotFoundError, Sandbox, SandboxTimeoutError


def test_output_comes_as_an_iterator_with_offsets(box: Sandbox) -> None:
    command = box.spawn("echo one; sleep 0.2; echo two; echo bad >&2; exit 5")
    heard = [(piece.stream, piece.text, piece.offset) for piece in command]
    assert [piece for piece in heard if piece[0] == "stdout"] == [
        ("stdout", "one\n", 0),
        ("stdout", "two\n", 4),
    ]
    assert ("stderr", "bad\n", 0) in heard
    assert command.result is not None and command.result.exit_code == 5
    assert command.result.stdout == "one\ntwo\n"
    assert [piece.text for piece in command.follow(stdout=4, stderr=4)] == ["two\n"]
    assert command.read(4) == (b"two\n", 8)
    assert command.read(stream="stderr") == (b"bad\n", 4)


def test_input_signals_and_the_end(box: Sandbox) -> None:
    command = box.spawn(["cat"], stdin=True)
    command.write("a\n")
    command.write(b"b\n", close=True)
    assert command.wait().stdout == "a\nb\n"
    with pytest.raises(ConflictError):
        command.write("late")
    trap = box.spawn("trap 'echo got it; exit 9' USR1; echo ready; while :; do sleep 0.05; done")
    for _ in trap.follow():
        trap.signal("USR1")
        break
    assert trap.wait(timeout=5).exit_code == 9
    long = box.spawn(["sleep", "64"])
    with pytest.raises(SandboxTimeoutError):
        long.wait(timeout=0.1)
    assert long.info().running
    long.kill()
    assert long.wait().signal == signal.SIGKILL
    assert not alive(box, "sleep 64")


def test_a_command_is_found_again_by_its_id(box: Sandbox) -> None:
    command = box.spawn("echo found")
    command.wait()
    assert box.command(command.id).wait().stdout == "found\n"
    assert command.id in [info.id for info in box.commands()]
    with pytest.raises(NotFoundError):
        box.command("99999").info()


def test_a_command_goes_on_when_its_listener_leaves(box: Sandbox) -> None:
    command = box.spawn("echo a; sleep 0.3; echo b")
    for _ in command:
        break
    assert command.wait().stdout == "a\nb\n"


def test_listening_survives_a_new_daemon() -> None:
    with Sandbox() as box:
        command = box.spawn("for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done; exit 3")
        heard = b""
        killed = False
        for piece in command:
            heard += piece.data
            if not killed:
                killed = True
                kill_daemon(os.environ["CARREL_HOME"])
        assert heard == b"1\n2\n3\n4\n5\n6\n"
        assert command.result is not None and command.result.exit_code == 3
        assert box.run("echo still").stdout == "still\n"


def test_a_terminal_is_spoken_to_resized_and_found_again(box: Sandbox) -> None:
    with box.terminal(["bash", "--norc"], rows=30, columns=90) as terminal:
        terminal.write("stty size; echo 4$((1+1))\n")
        assert b"30 90" in terminal.read_until("42\r\n")
        terminal.resize(10, 20)
        terminal.write("stty size\n")
        terminal.read_until("10 20\r\n")
        with pytest.raises(TimeoutError):
            while True:
                terminal.read(timeout=0.2)
        at = terminal.offset
    running = [info for info in box.commands() if info.running and info.kind == "exec"]
    again = box.command(running[-1].id).terminal(offset=at)
    with again:
        again.write("echo back; exit 4\n")
        said = b"".join(again)
        assert b"back\r\n" in said and b"30 90" not in said
        assert again.result is not None and again.result.exit_code == 4


def test_a_terminal_of_nothing_is_a_typed_error(box: Sandbox) -> None:
    with pytest.raises(NotFoundError):
        box.command("99999").terminal()


def test_events_tell_what_happens(box: Sandbox) -> None:
    box.run("echo $((40+2))")
    with Carrel() as carrel:
        seen = []
        for event in carrel.events(box.id, past=True):
            seen.append(event)
            if event.kind == "result" and seen[-2].data.get("command") == "echo $((40+2))":
                break
        assert seen[0].kind == "start"
        assert all(event.sandbox == box.id for event in seen)


def test_the_daemon_tells_about_itself() -> None:
    with Carrel() as carrel:
        assert carrel.version()
        assert carrel.ready()
        assert "carrel_sandboxes" in carrel.metrics()
        assert "/v1/sandboxes" in carrel.openapi()["paths"]
        assert carrel.run("echo $((6*7))", memory="128m").stdout == "42\n"


def test_what_is_on_the_disk_is_listed_and_removed() -> None:
    with Carrel() as carrel, Sandbox(disk="20m") as box:
        taken = box.snapshot("first")
        disk = carrel.disk()
        [mine] = [one for one in disk.workspaces if one.goes_with == box.id]
        assert [one.id for one in mine.snapshots] == [taken.id]
        assert mine.snapshots[0].workspace == mine.name
        assert disk.snapshots_bytes > 0
        carrel.delete_snapshot(taken)
        assert taken.id not in str(carrel.disk())
        box.snapshot()
        box.close(grace=0)
        carrel.delete_workspace(mine.name)
        assert mine.name not in [one.name for one in carrel.disk().workspaces]


def test_a_sandbox_of_many_pages_is_listed() -> None:
    from carrel import daemon

    before = daemon._PAGE
    daemon._PAGE = 2
    try:
        boxes = [Sandbox().open() for _ in range(3)]
        with Carrel() as carrel:
            listed = [info.id for info in carrel.sandboxes()]
            assert {one.id for one in boxes} <= set(listed)
            assert len(listed) == len(set(listed))
        for one in boxes:
            one.close(grace=0)
    finally:
        daemon._PAGE = before


def test_time_is_not_wasted(box: Sandbox) -> None:
    box.run("true")
    began = time.monotonic()
    for _ in range(20):
        box.run("true")
    assert time.monotonic() - began < 2
