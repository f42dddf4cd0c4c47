"""What a sandbox is made of, as the API wants to have it said."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Union

Size = Union[str, int]


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host that a sandbox sees at `target`, read-only unless said
    otherwise."""

    source: str
    target: str
    readonly: bool = True

    def __post_init__(self) -> None:
        # "false", 0 and None are not false: a mount is writable only if somebody really said so.
        if not isinstance(self.readonly, bool):
            raise TypeError(f"'readonly' must be True or False, not {self.readonly!r}")


def settings_of(**values: Any) -> dict[str, Any]:
    """The body of a request: what was given, under the names of the API."""
    body = {name: value for name, value in values.items() if value is not None}
    if "mounts" in body:
        body["mount"] = [asdict(mount) for mount in body.pop("mounts")]
    if "credentials" in body:
        body["credential"] = [*body.pop("credentials")]
    for name in ("network", "require"):
        if name in body and not isinstance(body[name], str):
            body[name] = [*body[name]]
    if "env" in body:
        body["env"] = dict(body["env"])
    return body
