"""The manager and the client: rows R179 to R195."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from carrel import (
    AsyncCarrel,
    AsyncSandbox,
    GoneError,
    SandboxError,
    SandboxManager,
    SandboxResourceError,
    SandboxSettings,
    SandboxTimeoutError,
    create_sandbox_client,
)
from carrel import manager as module


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


async def ended(box_id: str) -> bool:
    async with AsyncCarrel() as carrel:
        return (await carrel.info(box_id)).state == "ended"


def test_r179_r185_there_is_a_maximum_and_ids_are_uuids() -> None:
    async def main() -> None:
        assert SandboxManager().max_sandboxes == 100
        async with SandboxManager(max_sandboxes=2) as manager:
            ids = [await manager.create() for _ in range(2)]
            for box_id in ids:
                assert str(uuid.UUID(box_id)) == box_id
            with pytest.raises(RuntimeError) as raised:
                await manager.create()
            assert str(raised.value) == "Maximum number of sandboxes (2) reached"
            await manager.delete(ids[0])
            await manager.create()
        assert await ended(ids[1])

    run(main())


def test_r180_the_maximum_holds_under_concurrent_creation() -> None:
    async def main() -> None:
        async with SandboxManager(max_sandboxes=5) as manager:
            made = await asyncio.gather(
                *(manager.create() for _ in range(50)), return_exceptions=True
            )
            assert len([one for one in made if isinstance(one, str)]) == 5
            assert len([one for one in made if isinstance(one, SandboxResourceError)]) == 45
            assert manager.stats().total_sandboxes == 5

    run(main())


def test_r181_r182_idle_ones_are_removed_and_an_error_does_not_stop_that() -> None:
    async def main() -> None:
        assert SandboxManager().idle_timeout == 3600
        assert SandboxManager().cleanup_interval == 300
        manager = SandboxManager(idle_timeout=0.2, cleanup_interval=0.1)
        bad, good = await manager.create(), await manager.create()
        box = await manager.get(bad)
        close = box.close
        failures = 0

        async def fail(**_: Any) -> None:
            nonlocal failures
            failures += 1
            if failures < 3:
                raise SandboxError("injected")
            await close()

        vars(box)["close"] = fail
        for _ in range(100):
            if manager.stats().total_sandboxes == 0:
                break
            await asyncio.sleep(0.05)
        assert failures == 3
        assert await ended(good) and await ended(bad)
        await manager.shutdown()

    run(main())


def test_r183_a_sandbox_with_an_operation_is_never_reaped() -> None:
    async def main() -> None:
        async with SandboxManager(idle_timeout=0.1, cleanup_interval=0.05) as manager:
            box_id = await manager.create()
            box = await manager.get(box_id)
            assert (await box.run_command("sleep 0.7; echo survived")).stdout == "survived\n"
            box = await manager.get(box_id)
            async with manager.operation(box_id):
                await asyncio.sleep(0.4)
                assert not await ended(box_id)
                # B-41: what another handle began, and what nobody waits for.
                other = await AsyncSandbox.attach(box_id)
                call = asyncio.ensure_future(other.run("sleep 1; echo survived"))
                await other.spawn(["sleep", "2"])
                await asyncio.sleep(0.1)
            assert (await call).stdout == "survived\n"
            await other.close()
            await asyncio.sleep(0.4)
            assert not await ended(box_id)
            for _ in range(200):
                if manager.stats().total_sandboxes == 0:
                    break
                await asyncio.sleep(0.05)
            assert await ended(box_id)

    run(main())


def test_r184_r186_unknown_ids_are_errors_and_leave_no_trace() -> None:
    async def main() -> None:
        async with SandboxManager() as manager:
            with pytest.raises(KeyError) as raised:
                await manager.get("bogus")
            assert str(raised.value) == "Sandbox bogus not found"
            with pytest.raises(KeyError):
                async with manager.operation("bogus"):
                    pass
            assert manager._locks == {}
            await manager.delete("bogus")
            box_id = await manager.create()
            box = await manager.get(box_id)
            close = box.close

            async def fail(**_: Any) -> None:
                raise SandboxError("injected")

            vars(box)["close"] = fail
            with pytest.raises(SandboxError, match="injected"):
                await manager.delete(box_id)
            assert manager.stats().total_sandboxes == 1
            vars(box)["close"] = close
            await manager.delete(box_id)
            await manager.delete(box_id)
            with pytest.raises(KeyError):
                await manager.get(box_id)

    run(main())


def test_r187_r188_shutdown_is_bounded_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ACTIVE_PATIENCE", 0.5)

    async def main() -> None:
        manager = SandboxManager(max_sandboxes=3)
        ids = [await manager.create() for _ in range(3)]
        hanging = await manager.get(ids[0])
        task = asyncio.ensure_future(hanging.run_command("trap '' TERM; sleep 81"))
        short = await manager.get(ids[1])
        finishing = asyncio.ensure_future(short.run_command("sleep 0.2; echo done"))
        await asyncio.sleep(0.05)
        stats = manager.stats()
        assert (stats.total_sandboxes, stats.active_operations, stats.is_shutting_down) == (
            3,
            2,
            False,
        )
        began = time.monotonic()
        await manager.shutdown()
        assert time.monotonic() - began < 6
        assert (await finishing).stdout == "done\n"
        with pytest.raises(SandboxError):
            await task
        assert all([await ended(box_id) for box_id in ids])
        assert manager.stats().is_shutting_down and manager.stats().total_sandboxes == 0
        with pytest.raises(SandboxError, match="shutting down"):
            await manager.create()

    run(main())


def test_r188_what_hangs_is_killed_and_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-43: what is forgotten has ended, and what does not end in time is not waited for."""
    monkeypatch.setattr(module, "_SHUTDOWN_PATIENCE", 6.0)
    monkeypatch.setattr(module, "_FORCE_PATIENCE", 4.0)

    async def main() -> None:
        manager = SandboxManager()
        ids = [await manager.create() for _ in range(3)]

        async def hang(**_: Any) -> None:
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    if stubborn:
                        continue
                    raise

        stubborn = True
        vars(await manager.get(ids[0]))["close"] = hang
        began = time.monotonic()
        await manager.shutdown()
        assert time.monotonic() - began < 8
        assert all([await ended(box_id) for box_id in ids])
        assert manager.stats().total_sandboxes == 0
        stubborn = False

    run(main())


def test_r188_what_cannot_be_removed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        manager = SandboxManager()
        first, second = await manager.create(), await manager.create()
        box = await manager.get(first)
        close = box.close

        async def fail(*_: Any, **__: Any) -> None:
            raise SandboxError("injected")

        vars(box)["close"] = fail
        with monkeypatch.context() as patched:
            patched.setattr(AsyncCarrel, "delete", fail)
            with pytest.raises(SandboxError, match=f"could not be removed: {first}$"):
                await manager.shutdown()
        assert await ended(second) and not await ended(first)
        assert manager.stats().total_sandboxes == 1
        vars(box)["close"] = close
        await manager.shutdown()
        assert await ended(first)

    run(main())


def test_r189_a_slow_creation_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(image: str) -> str:
        if image == "slow":
            time.sleep(3)
            return "no such image"
        return ""

    monkeypatch.setattr(module, "_image_trouble", slow)

    async def main() -> None:
        async with SandboxManager() as manager:
            box_id = await manager.create()
            task = asyncio.ensure_future(manager.create(SandboxSettings(image="slow")))
            await asyncio.sleep(0.1)
            began = time.monotonic()
            await manager.get(box_id)
            assert time.monotonic() - began < 0.1
            # B-42: nor does a second creation, a clean-up or a removal wait for it.
            other = await manager.create()
            await manager.clean_up_idle()
            await manager.delete(box_id)
            assert not task.done()
            await manager.delete(other)
            with pytest.raises(SandboxError, match="Failed to create sandbox"):
                await task
            assert manager.stats().total_sandboxes == 0

    run(main())


def test_r16_r190_an_image_that_is_not_there_is_an_error_with_its_cause() -> None:
    async def main() -> None:
        async with SandboxManager() as manager:
            assert await manager.ensure_image("host")
            assert not await manager.ensure_image("127.0.0.1:1/none")
            with pytest.raises(
                RuntimeError, match=r"^Failed to create sandbox: Failed to ensure image"
            ):
                await manager.create(SandboxSettings(image="127.0.0.1:1/none"))
            with pytest.raises(RuntimeError, match=r"^Failed to create sandbox: "):
                await manager.create(volume_bindings={"/etc": "/data"})
            assert manager.stats().total_sandboxes == 0

    run(main())


def test_r191_operations_of_one_wait_and_of_two_do_not() -> None:
    async def main() -> None:
        async with SandboxManager() as manager:
            first, second = await manager.create(), await manager.create()

            async def work(box_id: str) -> None:
                async with manager.operation(box_id) as box:
                    await box.run_command("sleep 0.4")

            began = time.monotonic()
            await asyncio.gather(work(first), work(second))
            parallel = time.monotonic() - began
            began = time.monotonic()
            await asyncio.gather(work(first), work(first))
            assert parallel + 0.1 < time.monotonic() - began >= 0.8

    run(main())


def test_r193_the_client_has_its_seven_calls(tmp_path: Path) -> None:
    async def main() -> None:
        client = create_sandbox_client()
        await client.create(SandboxSettings(cpu_limit=0.5, timeout=20))
        try:
            result = await client.run_command("echo test; exit 3")
            assert (result.stdout, result.exit_code) == ("test\n", 3)
            with pytest.raises(SandboxTimeoutError) as raised:
                await client.run_command("echo a; sleep 82", timeout=0.3)
            assert isinstance(raised.value, TimeoutError)
            assert raised.value.result is not None and raised.value.result.stdout == "a\n"
            with pytest.raises(SandboxError):
                await client.run_command("true", timeout=0)
            assert (await client.run_command("echo next")).stdout == "next\n"
            await client.write_file("nested/test.txt", "Hello, World!")
            assert await client.read_file("/workspace/nested/test.txt") == "Hello, World!"
            (tmp_path / "src.txt").write_text("Copy to container")
            await client.copy_to(str(tmp_path / "src.txt"), "/workspace/copied.txt")
            assert await client.read_file("copied.txt") == "Copy to container"
            await client.copy_from("/workspace/nested/test.txt", str(tmp_path / "dst.txt"))
            assert (tmp_path / "dst.txt").read_text() == "Hello, World!"
            with pytest.raises(FileNotFoundError, match="not found"):
                await client.read_file("/nonexistent.txt")
            with pytest.raises(FileNotFoundError, match="not found"):
                await client.copy_from("/nonexistent.txt", str(tmp_path / "x"))
            with pytest.raises(SandboxError, match="potentially unsafe"):
                await client.read_file("a/../../etc/passwd")
        finally:
            await client.cleanup()

    run(main())


def test_r59_r60_bindings_are_read_only_and_checked(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "test.txt").write_text("Volume test")

    async def main() -> None:
        client = create_sandbox_client()
        await client.create(volume_bindings={str(tmp_path): "/data"})
        assert await client.read_file("/data/test.txt") == "Volume test"
        assert not (await client.run_command("touch /data/new")).success
        await client.create(volume_bindings={str(tmp_path): "/data:rw"})
        assert (await client.run_command("touch /data/new")).success
        assert (tmp_path / "new").exists()
        with pytest.raises(SandboxError, match="/etc"):
            await client.create(volume_bindings={"/etc": "/data"})
        await client.cleanup()

    run(main())


def test_r194_before_and_after_there_is_no_sandbox(tmp_path: Path) -> None:
    async def main() -> None:
        client = create_sandbox_client()

        async def nothing() -> None:
            for call in (
                client.run_command("true"),
                client.read_file("f"),
                client.write_file("f", ""),
                client.copy_to(str(tmp_path), "f"),
                client.copy_from("f", str(tmp_path)),
            ):
                with pytest.raises(RuntimeError) as raised:
                    await call
                assert str(raised.value) == "Sandbox not initialized"

        await nothing()
        await client.cleanup()
        await client.create()
        await client.cleanup()
        await client.cleanup()
        await nothing()

    run(main())


def test_r195_a_second_create_does_not_leak_the_first() -> None:
    async def main() -> None:
        client = create_sandbox_client()
        await client.create()
        first = client.sandbox.id
        await client.create()
        assert await ended(first)
        second = client.sandbox.id
        await client.cleanup()
        assert await ended(second)

    run(main())


def test_r208_a_death_is_an_error_and_the_workspace_is_there_for_a_new_one() -> None:
    async def main() -> None:
        name = f"sdk-{uuid.uuid4().hex[:8]}"
        box = AsyncSandbox(workspace=name)
        await box.open()
        await box.files.write("kept", "1")
        async with AsyncCarrel() as carrel:
            await carrel.delete(box.id)
        with pytest.raises(GoneError):
            await box.run("echo again >> kept")
        await box.close()
        async with AsyncSandbox(workspace=name) as again:
            assert await again.files.read_text("kept") == "1"

    run(main())
