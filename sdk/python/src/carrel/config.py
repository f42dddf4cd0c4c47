"""Settings of one-shot runs and of managed sandboxes, and what of the host they may see."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union

from ._endpoint import find_binary
from ._settings import Mount
from .errors import InvalidError, error_of

C = TypeVar("C", bound="_Checked")


def toml_value(value: object) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(toml_value(one) for one in value) + "]"
    raise TypeError(f"{value!r} is no value of a configuration")


def toml(values: Mapping[str, object]) -> bytes:
    """Keys and values as a file that ``carrel --config`` reads."""
    text = "".join(f"{key} = {toml_value(value)}\n" for key, value in values.items())
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidError("a setting has bytes that are not UTF-8") from None


@contextmanager
def config_file(values: Mapping[str, object]) -> Iterator[str]:
    """The configuration as a file, in a directory of its own, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="carrel-") as folder:
        path = os.path.join(folder, "carrel.toml")
        with open(path, "xb") as file:
            file.write(toml(values))
        yield path


@dataclass(frozen=True)
class _Checked:
    """A dataclass whose fields have the types that they say, and that names a key it has not."""

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            wanted = _TYPES[str(one.type)]
            value = getattr(self, one.name)
            good = isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))
            if isinstance(value, (list, tuple)):
                good = all(isinstance(path, str) and path for path in value)
            if not good:
                raise InvalidError(f"'{one.name}' cannot be {value!r}")

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """Of a table, for example one of a TOML file. What it does not have is as by default."""
        known = [one.name for one in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                raise InvalidError(f"unknown key '{key}'{hint}")
        return cls(**values)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "Union[str, int]": (str, int),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Sequence[str]": (list, tuple),
}


@dataclass(frozen=True)
class SandboxConfig(_Checked):
    """What a one-shot run gets. A size is bytes or a text such as ``"512m"``."""

    image_name: str = "host"
    memory_limit: Union[str, int] = "512m"
    cpu_limit: float = 1.0
    timeout_seconds: float = 60
    pids_limit: int = 50
    network_enabled: bool = False
    allowed_read_paths: Sequence[str] = ()
    allowed_write_paths: Sequence[str] = ()


@dataclass(frozen=True)
class SandboxSettings(_Checked):
    """What a managed sandbox gets."""

    image: str = "host"
    work_dir: str = "/workspace"
    memory_limit: Union[str, int] = "512m"
    cpu_limit: float = 1.0
    timeout: float = 300
    network_enabled: bool = False


@dataclass(frozen=True)
class MountDecision:
    """Whether a path of the host may be mounted, and why. ``real_path`` is where it really is,
    ``hidden`` what in it a sandbox would not see."""

    allowed: bool
    reason: str
    rule: str
    path: str
    real_path: str
    mode: str
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class MountPolicy:
    """Which folders of the host a run may see. Both lists are empty by default, which refuses
    everything; what is never mounted (``/etc``, ``~/.ssh``, the Docker socket, …) stays refused
    whatever they say. The ``carrel`` program decides, also once more when it really mounts."""

    allowed_read_paths: Sequence[str] = field(default=())
    allowed_write_paths: Sequence[str] = field(default=())

    def as_settings(self) -> dict[str, object]:
        return {
            "allowed_read_paths": [*self.allowed_read_paths],
            "allowed_write_paths": [*self.allowed_write_paths],
        }

    def check(self, path: str, *, writable: bool = False) -> MountDecision:
        """What the policy says of a path."""
        with config_file(self.as_settings()) as config:
            words = [find_binary(), "mount", "check", "--json", "--config", config]
            words += ["--rw"] if writable else []
            ran = subprocess.run(
                [*words, "--", path], stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        answer = answer_of(ran.stdout, ran.stderr)
        return MountDecision(
            answer["allowed"],
            answer["reason"],
            answer["rule"],
            answer["path"],
            answer["real_path"],
            answer["mode"],
            tuple(row["path"] for row in answer["hidden"]),
        )


def answer_of(out: bytes, err: bytes) -> Mapping[str, Any]:
    """The one object that ``carrel --json`` prints; its errors are raised."""
    try:
        answer: Mapping[str, Any] = json.loads(out)
    except ValueError:
        text = (err or out).decode("utf-8", "replace").strip()
        raise error_of("system", text or "carrel said nothing") from None
    if "error" in answer:
        raise error_of(answer["error"]["code"], answer["error"]["message"])
    return answer


def mounts_of(mounts: Sequence[Union[Mount, Mapping[str, Any]]]) -> list[dict[str, object]]:
    """Mounts as the configuration has them. Only a real False makes one writable."""
    made = [mount if isinstance(mount, Mount) else Mount(**mount) for mount in mounts]
    return [dataclasses.asdict(mount) for mount in made]
