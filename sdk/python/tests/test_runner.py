"""One-shot runs, what they may see of the host, and tools."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support import eventually, on_host, seconds

from carrel import (
    AsyncSandboxRunner,
    Carrel,
    DeniedError,
    InvalidError,
    Mount,
    MountPolicy,
    SandboxConfig,
    SandboxRunner,
    SandboxSettings,
    ToolSandbox,
    run_code,
    run_command,
)
from carrel.tools import Kind, Which


def test_r61_code_runs_in_a_fresh_sandbox_that_is_removed() -> None:
    result = run_code("print(42)")
    assert (result.stdout, result.stderr, result.exit_code) == ("42\n", "", 0)
    assert result.success and not result.timed_out
    assert run_code("console.log(6 * 7)", "node").stdout == "42\n"
    with Carrel() as carrel:
        before = len(carrel.sandboxes(ended=True))
        run_code("print(1)")
        assert len(carrel.sandboxes(ended=True)) == before


def test_r62_a_command_is_code_of_bash() -> None:
    assert run_command("echo $((6*7))").stdout == "42\n"


def test_r4_success_is_exit_zero_in_time() -> None:
    assert run_command("exit 0").success
    failed = run_command("echo o; echo e >&2; exit 3")
    assert (failed.exit_code, failed.success) == (3, False)
    assert str(failed) == "exit code 3 (exit status 3)\no\ne\n"


def test_r63_an_unknown_language_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CARREL_BINARY", "/nonexistent")
    with pytest.raises(InvalidError, match="unknown language 'ruby'"):
        run_code("1", "ruby")


def test_r64_code_is_read_only_at_its_place_and_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = run_code("print(__file__)\nopen(__file__, 'w')")
    assert result.stdout == "/workspace/code\n"
    assert "Read-only file system" in result.stderr
    assert os.listdir(tmp_path) == []


def test_r65_every_run_starts_clean() -> None:
    assert run_command("touch /tmp/x /workspace/x ~/x").success
    assert run_command("ls /tmp/x /workspace/x ~/x").exit_code == 2


def test_r66_a_timeout_kills_the_sandbox_and_keeps_what_was_written() -> None:
    sleep = seconds(6601)
    code = (
        "import subprocess\n"
        f"subprocess.Popen(['sleep', '{sleep}'], start_new_session=True)\n"
        "print(1, flush=True)\n"
        "while True: pass\n"
    )
    began = time.monotonic()
    result = run_code(code, config=SandboxConfig(timeout_seconds=1))
    assert time.monotonic() - began < 3
    assert result.timed_out and result.stdout == "1\n" and not result.success
    assert str(result).startswith("timed out after ")
    assert on_host("sleep", sleep) == []


def test_r67_cancelling_the_caller_kills_the_run() -> None:
    sleep = seconds(6701)

    async def main() -> None:
        task = asyncio.ensure_future(AsyncSandboxRunner().run_command(f"sleep {sleep}"))
        while not on_host("sleep", sleep):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert eventually(lambda: not on_host("sleep", sleep))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_r67_a_program_that_ends_takes_its_run_along(number: int) -> None:
    sleep = seconds(6702 + number)
    program = f"from carrel import run_command; run_command('exec sleep {sleep}')"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: bool(on_host("sleep", sleep)))
        process.send_signal(number)
        assert process.wait(10) != 0
        assert eventually(lambda: not on_host("sleep", sleep))
    finally:
        for pid in on_host("sleep", sleep):
            os.kill(pid, signal.SIGKILL)


def test_r68_r69_it_is_nobody_with_a_home_and_a_tmp() -> None:
    code = (
        "import os, tempfile\n"
        "open(os.path.expanduser('~/x'), 'w'); tempfile.mkdtemp()\n"
        "print(os.getuid() != 0)"
    )
    assert run_code(code).stdout == "True\n"


def test_the_limits_of_the_config_hold() -> None:
    config = SandboxConfig(memory_limit="64m", pids_limit=20)
    hungry = SandboxRunner(config).run_code("x = bytearray(200 << 20)")
    assert not hungry.success
    assert not run_command("exec 3<>/dev/tcp/127.0.0.1/1").success


def test_r203_the_defaults_are_as_documented() -> None:
    assert SandboxConfig() == SandboxConfig(
        image_name="host",
        memory_limit="512m",
        cpu_limit=1.0,
        timeout_seconds=60,
        pids_limit=50,
        network_enabled=False,
        allowed_read_paths=(),
        allowed_write_paths=(),
    )
    assert SandboxSettings() == SandboxSettings("host", "/workspace", "512m", 1.0, 300, False)


def test_r204_r205_unknown_keys_and_wrong_types_are_named() -> None:
    assert SandboxConfig.from_dict({"timeout_seconds": 5}).memory_limit == "512m"
    with pytest.raises(
        InvalidError, match="unknown key 'memory_limt'; did you mean 'memory_limit'"
    ):
        SandboxConfig.from_dict({"memory_limt": "1g"})
    wrong: list[tuple[str, object]] = [
        ("network_enabled", "false"),
        ("pids_limit", 1.5),
        ("timeout_seconds", True),
        ("allowed_read_paths", "/data"),
        ("allowed_read_paths", [""]),
        ("image_name", None),
    ]
    for key, value in wrong:
        with pytest.raises(InvalidError, match=key):
            SandboxConfig.from_dict({key: value})
    with pytest.raises(InvalidError):
        run_code("1", config=SandboxConfig(memory_limit="-1m"))
    with pytest.raises(InvalidError):
        run_code("1", config=SandboxConfig(timeout_seconds=0))


def test_r119_to_r137_mounts_are_as_the_policy_says(tmp_path: Path) -> None:
    for name in ("read", "write", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        (tmp_path / name / "f").write_text(name)
    tmp_path.chmod(0o755)
    read, write, other = (str(tmp_path / name) for name in ("read", "write", "other"))
    with pytest.raises(DeniedError, match="refused"):
        run_code("print(1)", extra_mounts=[Mount(read, "/data")])
    runner = SandboxRunner(SandboxConfig(allowed_read_paths=[read], allowed_write_paths=[write]))
    mounted = runner.run_command("cat /data/f; touch /data/g", [Mount(read, "/data")])
    assert mounted.stdout == "read" and "Read-only" in mounted.stderr
    assert runner.run_command("cat /data/f", [{"source": read, "target": "/data"}]).success
    writable = Mount(write, "/out", readonly=False)
    assert runner.run_command("echo new > /out/new", [writable]).success
    assert (tmp_path / "write" / "new").read_text() == "new\n"
    for refused in (Mount(read, "/data", readonly=False), Mount(other, "/data")):
        with pytest.raises(DeniedError):
            runner.run_command("true", [refused])
    with pytest.raises(TypeError, match="readonly"):
        runner.run_command("true", [{"source": read, "target": "/d", "readonly": "false"}])

    policy = MountPolicy(allowed_read_paths=[read])
    assert policy.check(read).allowed and policy.check(read).mode == "read-only"
    assert not policy.check(read, writable=True).allowed
    decision = MountPolicy(allowed_read_paths=["/"]).check("/etc")
    assert not decision.allowed and decision.real_path == "/etc" and "/etc" in decision.reason
    assert not MountPolicy().check(read).allowed
    (tmp_path / "read" / "link").symlink_to("/etc")
    assert not policy.check(f"{read}/link").allowed


def test_r70_a_wrapped_tool_returns_its_output_or_what_went_wrong() -> None:
    tools = ToolSandbox()
    pid = os.getpid()

    @tools.wrap
    def double(x: int, *, times: int = 2) -> int:
        print("at work")
        return x * times

    @tools.wrap
    def fail() -> None:
        import os

        print("before", os.getpid())
        raise ValueError("wrong")

    assert double(21) == "at work\n42\n"
    assert double("a'\"\\\n", times=2) == "at work\n" + "a'\"\\\n" * 2 + "\n"
    text = fail()
    assert text.startswith("exit code 1") and "before" in text and "ValueError: wrong" in text
    assert f"before {pid}\n" not in text


def test_r71_which_tools_are_sandboxed_is_configurable() -> None:
    def where() -> int:
        import os

        return os.getpid()

    here = os.getpid()
    every: set[Kind] = {"code", "files", "other"}
    cases: list[tuple[Which, set[Kind]]] = [
        ("code", {"code"}),
        ("files", {"files"}),
        ("all", every),
    ]
    for sandboxed, inside in cases:
        tools = ToolSandbox(sandboxed=sandboxed)
        for kind in every:
            on_the_host = tools.wrap(where, kind=kind)() == here
            assert on_the_host == (kind not in inside), (sandboxed, kind)
    with pytest.raises(InvalidError):
        ToolSandbox(sandboxed="none")  # type: ignore[arg-type]
