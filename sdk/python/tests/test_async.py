"""The same for an event loop, and what is only there: cancelling."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from support import eventually, kill_daemon, on_host, seconds

from carrel import (
    AsyncCarrel,
    AsyncSandbox,
    CommandFailed,
    NotFoundError,
    NotStartedError,
    Sandbox,
)
from carrel._box import BoxCore
from carrel._steps import operation


async def gone(box: AsyncSandbox, word: str) -> bool:
    for _ in range(100):
        if not (await box.exec(["pgrep", "-f", f"[{word[0]}]{word[1:]}"])).success:
            return True
        await asyncio.sleep(0.03)
    return False


async def began(word: str) -> bool:
    for _ in range(250):
        if on_host(*word.split()):
            return True
        await asyncio.sleep(0.02)
    return False


def test_everything_is_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        box = AsyncSandbox()
        with pytest.raises(NotStartedError):
            await box.run("true")
        async with box:
            await box.run("cd /tmp")
            assert (await box.run("pwd")).stdout == "/tmp\n"
            heard: list[str] = []
            await box.run("echo a", on_stdout=heard.append)
            assert heard == ["a\n"]
            with pytest.raises(CommandFailed):
                await box.exec(["false"], check=True)
            await box.files.write("/workspace/d/f", "x")
            await box.files.download("/workspace/d", tmp_path / "d")
            await box.files.upload(tmp_path / "d", "/workspace/e")
            assert await box.files.read_text("/workspace/e/f") == "x"
            with pytest.raises(FileNotFoundError):
                await box.files.read("none")
            async with box.files.watch("d") as changes:
                await box.files.write("d/g", "y")
                async for change in changes:
                    if change.path == "g":
                        break
            with pytest.raises(FileNotFoundError):
                async with box.files.watch("none"):
                    pass
            await box.snapshot("s")
            assert (await box.diff("s")).changes == ()
            assert (await box.info()).running
            same = await AsyncSandbox.attach(box.id)
            assert (await same.run("pwd")).stdout == "/tmp\n"
            await same.close()
            assert await box.is_alive()
        await box.close()

    asyncio.run(main())


def test_commands_and_terminals_are_awaited() -> None:
    async def main() -> None:
        async with AsyncSandbox() as box:
            command = await box.spawn("read x; echo got $x; exit 6", stdin=True)
            await command.write("it\n")
            assert [piece.text async for piece in command] == ["got it\n"]
            assert (await command.wait()).exit_code == 6
            async with await box.terminal(["bash", "--norc"]) as terminal:
                await terminal.resize(11, 22)
                await terminal.write("stty size; exit 3\n")
                assert b"11 22\r\n" in await terminal.read_until("11 22\r\n")
                async for _ in terminal:
                    pass
                assert terminal.result is not None and terminal.result.exit_code == 3
            with pytest.raises(NotFoundError):
                async with box.command("9999").terminal():
                    pass

    asyncio.run(main())


def test_many_calls_run_at_the_same_time() -> None:
    async def main() -> float:
        async with AsyncSandbox(pids=200) as box:
            began = time.monotonic()
            calls = [box.exec(["sh", "-c", f"sleep 0.5; echo {n}"]) for n in range(10)]
            results = await asyncio.gather(*calls)
            assert [result.stdout for result in results] == [f"{n}\n" for n in range(10)]
            seconds = time.monotonic() - began
            # More than a sandbox takes at once wait for their turn.
            crowd = [box.exec(["sh", "-c", f"sleep 0.1; echo {n}"]) for n in range(40)]
            results = await asyncio.gather(*crowd)
            assert [result.stdout for result in results] == [f"{n}\n" for n in range(40)]
            return seconds

    assert asyncio.run(main()) < 3


def test_cancelling_a_call_kills_its_run() -> None:
    async def main() -> None:
        async with AsyncSandbox() as box:
            words = [f"sleep {seconds(n)}" for n in (71, 72, 73)]
            calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
                (words[0], lambda: box.run(words[0])),
                (words[1], lambda: box.exec(words[1].split())),
                (words[2], lambda: box.run(words[2], on_stdout=print)),
            ]
            for word, call in calls:
                task = asyncio.ensure_future(call())
                assert await began(word), word
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await gone(box, word), word
            with pytest.raises((asyncio.TimeoutError, TimeoutError)):
                await asyncio.wait_for(box.run("sleep 74"), 0.3)
            assert await gone(box, "sleep 74")
            with anyio.move_on_after(0.3):
                await box.run("sleep 75")
            assert await gone(box, "sleep 75")
            assert (await box.run("echo fine")).stdout == "fine\n"

    asyncio.run(main())


def test_without_the_cancel_the_run_goes_on() -> None:
    """The other side of the test above: what is seen there is the cancelling's doing."""

    async def main() -> None:
        async with AsyncSandbox() as box:
            word = f"sleep {seconds(76)}"
            task = asyncio.ensure_future(box.exec(word.split()))
            assert await began(word)
            await asyncio.sleep(0.3)
            assert on_host(*word.split())
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_a_cancelled_creation_leaves_no_sandbox() -> None:
    async def main() -> None:
        async with AsyncCarrel() as carrel:
            name = f"cancelled-{os.getpid()}"
            for delay in (0.001, 0.005, 0.02, 0.05):
                box = AsyncSandbox(name=name)
                task = asyncio.ensure_future(box.open())
                await asyncio.sleep(delay)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await box.close()
                assert await carrel.sandboxes(name=name) == []
                box = AsyncSandbox(name=name)
                with anyio.move_on_after(delay):
                    await box.open()
                await box.close()
                assert await carrel.sandboxes(name=name) == []

    asyncio.run(main())


def test_a_cancelled_block_removes_its_sandbox() -> None:
    async def main() -> None:
        ids: list[str] = []

        async def work(cancel: Callable[[], object]) -> None:
            async with AsyncSandbox() as box:
                ids.append(box.id)
                asyncio.get_running_loop().call_later(0.2, cancel)
                await box.run("sleep 77")

        with anyio.CancelScope() as scope:
            await work(scope.cancel)
        task = asyncio.ensure_future(work(lambda: task.cancel()))
        await asyncio.gather(task, return_exceptions=True)
        async with AsyncCarrel() as carrel:
            assert [(await carrel.info(box_id)).state for box_id in ids] == ["ended"] * 2

    asyncio.run(main())


def test_listening_survives_a_new_daemon_here_too() -> None:
    async def main() -> None:
        async with AsyncSandbox() as box:
            command = await box.spawn("for i in 1 2 3 4 5; do echo $i; sleep 0.2; done")
            heard = b""
            async for piece in command:
                if not heard:
                    kill_daemon(os.environ["CARREL_HOME"])
                heard += piece.data
            assert heard == b"1\n2\n3\n4\n5\n"

    asyncio.run(main())


def test_events_are_awaited() -> None:
    async def main() -> None:
        async with AsyncSandbox() as box, AsyncCarrel() as carrel:
            async for event in carrel.events(box.id, past=True):
                assert event.kind == "start" and event.sandbox == box.id
                break
            assert (await carrel.run("echo once")).stdout == "once\n"

    asyncio.run(main())


def test_the_two_classes_have_the_same_operations() -> None:
    for name, member in vars(BoxCore).items():
        if isinstance(member, operation):
            assert getattr(Sandbox, name) is getattr(AsyncSandbox, name)
            assert member.__doc__
    for name in (
        "open",
        "close",
        "delete",
        "fork",
        "http",
        "spawn",
        "command",
        "terminal",
        "attach",
    ):
        sync, awaited = getattr(Sandbox, name), getattr(AsyncSandbox, name)
        assert [*inspect.signature(sync).parameters] == [*inspect.signature(awaited).parameters]


def test_nothing_of_a_sandbox_stays_open() -> None:
    async def one() -> None:
        async with AsyncSandbox() as box:
            await box.run("true")

    def both() -> None:
        asyncio.run(one())
        with Sandbox() as box:
            box.run("true")

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    both()
    before = descriptors()
    for _ in range(3):
        both()
    assert eventually(lambda: descriptors() <= before)
