"""One-shot runs: source text or a command in a fresh sandbox that is gone afterwards.

Where the ``carrel`` program is, it makes the sandbox itself, without a daemon: the run is its
child, and ends with it. Where ``CARREL_API`` names a daemon elsewhere, that is asked.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Union

from ._endpoint import find_binary, find_endpoint
from ._settings import Mount
from .config import MountPolicy, SandboxConfig, answer_of, config_file, mounts_of
from .errors import InvalidError, UnsupportedError
from .results import ExecResult
from .sandbox import AsyncSandbox, Sandbox

LANGUAGES: Mapping[str, str] = {"python": "python3", "bash": "bash", "node": "node"}
CODE = "/workspace/code"
_GRACE = 5.0

AnyMount = Union[Mount, Mapping[str, Any]]


class _RunnerCore:
    """What both runners have: the words of the program, and what its answer means."""

    def __init__(
        self, config: SandboxConfig | None = None, mount_policy: MountPolicy | None = None
    ) -> None:
        self.config = config or SandboxConfig()
        self.mount_policy = mount_policy or MountPolicy(
            self.config.allowed_read_paths, self.config.allowed_write_paths
        )

    def _settings(self, extra_mounts: Sequence[AnyMount]) -> dict[str, object]:
        settings: dict[str, object] = {
            "image_name": self.config.image_name,
            "memory_limit": self.config.memory_limit,
            "cpu_limit": self.config.cpu_limit,
            "timeout_seconds": self.config.timeout_seconds,
            "pids_limit": self.config.pids_limit,
            "network_enabled": self.config.network_enabled,
            **self.mount_policy.as_settings(),
        }
        mounts = mounts_of(extra_mounts)
        if mounts:
            settings["mounts"] = mounts
        return settings

    @staticmethod
    def _words(language: str, config: str) -> list[str]:
        # The run ends with this process, however that ends: the kernel tells its child.
        setpriv = shutil.which("setpriv")
        tied = [] if setpriv is None else [setpriv, "--pdeathsig", "TERM", "--"]
        words = [find_binary(), "code", "--json", "--lang", language, "--config", config, "-"]
        return tied + words

    def _box_settings(self, extra_mounts: Sequence[AnyMount]) -> dict[str, Any]:
        if extra_mounts:
            raise UnsupportedError("a daemon elsewhere does not mount folders of this host")
        return {
            "image": self.config.image_name,
            "memory": self.config.memory_limit,
            "cpus": self.config.cpu_limit,
            "timeout": self.config.timeout_seconds,
            "pids": self.config.pids_limit,
            "network": "full" if self.config.network_enabled else "none",
        }


def _check_language(language: str) -> None:
    if language not in LANGUAGES:
        raise InvalidError(f"unknown language '{language}' (one of {', '.join(LANGUAGES)})")


class SandboxRunner(_RunnerCore):
    """Runs code that nobody has read, each time in a sandbox of its own.

    ::

        SandboxRunner().run_code("print(6 * 7)").stdout

    The limits are those of the :class:`SandboxConfig`; folders of the host are seen only as the
    :class:`MountPolicy` allows, and a mount that it refuses is an error before anything runs.
    """

    def run_code(
        self, code: str, language: str = "python", extra_mounts: Sequence[AnyMount] = ()
    ) -> ExecResult:
        """Runs source text, which the sandbox sees read-only as ``/workspace/code``. Giving up the
        call ends the run."""
        _check_language(language)
        if not find_endpoint().managed:
            with Sandbox(**self._box_settings(extra_mounts)) as box:
                box.files.write(CODE, code, mode=0o444)
                return box.exec([LANGUAGES[language], CODE])
        pipe = subprocess.PIPE
        with (
            config_file(self._settings(extra_mounts)) as config,
            subprocess.Popen(
                self._words(language, config), stdin=pipe, stdout=pipe, stderr=pipe
            ) as process,
        ):
            try:
                out, err = process.communicate(code.encode())
            except BaseException:
                _end(process)
                raise
        return ExecResult.of(answer_of(out, err))

    def run_command(self, command: str, extra_mounts: Sequence[AnyMount] = ()) -> ExecResult:
        """The same for a text of bash."""
        return self.run_code(command, "bash", extra_mounts)


class AsyncSandboxRunner(_RunnerCore):
    """The same, awaited, in an event loop of asyncio. Cancelling a call ends its run."""

    async def run_code(
        self, code: str, language: str = "python", extra_mounts: Sequence[AnyMount] = ()
    ) -> ExecResult:
        """Runs source text, which the sandbox sees read-only as ``/workspace/code``."""
        _check_language(language)
        if not find_endpoint().managed:
            async with AsyncSandbox(**self._box_settings(extra_mounts)) as box:
                await box.files.write(CODE, code, mode=0o444)
                return await box.exec([LANGUAGES[language], CODE])
        pipe = asyncio.subprocess.PIPE
        with config_file(self._settings(extra_mounts)) as config:
            process = await asyncio.create_subprocess_exec(
                *self._words(language, config), stdin=pipe, stdout=pipe, stderr=pipe
            )
            try:
                out, err = await process.communicate(code.encode())
            except BaseException:
                await _end_async(process)
                raise
        return ExecResult.of(answer_of(out, err))

    async def run_command(self, command: str, extra_mounts: Sequence[AnyMount] = ()) -> ExecResult:
        """The same for a text of bash."""
        return await self.run_code(command, "bash", extra_mounts)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asked first, so that it can tidy up; its sandbox ends with it either way."""
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _end_async(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _GRACE)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()


def run_code(
    code: str,
    language: str = "python",
    extra_mounts: Sequence[AnyMount] = (),
    *,
    config: SandboxConfig | None = None,
) -> ExecResult:
    """Runs source text in a fresh sandbox: ``run_code("print(42)").stdout``."""
    return SandboxRunner(config).run_code(code, language, extra_mounts)


def run_command(
    command: str, extra_mounts: Sequence[AnyMount] = (), *, config: SandboxConfig | None = None
) -> ExecResult:
    """Runs a text of bash in a fresh sandbox: ``run_command("echo hi").stdout``."""
    return SandboxRunner(config).run_command(command, extra_mounts)
