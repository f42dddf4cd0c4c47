"""Server-sent events, from bytes in any pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LONGEST = 64 << 20


@dataclass(frozen=True)
class ServerEvent:
    kind: str
    data: Any
    id: str


class EventParser:
    """Takes the bytes of a stream as they come and gives the events that are whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        self._rest += piece
        if len(self._rest) > LONGEST:
            raise ValueError("an event of the daemon has no end")
        *blocks, self._rest = self._rest.split(b"\n\n")
        for block in blocks:
            event = self._parse(block)
            if event is not None:
                yield event

    @staticmethod
    def _parse(block: bytes) -> ServerEvent | None:
        fields: dict[str, str] = {}
        for line in block.decode("utf-8", "replace").split("\n"):
            name, colon, value = line.partition(":")
            if name and colon:
                value = value.removeprefix(" ")
                fields[name] = fields[name] + "\n" + value if name in fields else value
        if "data" not in fields:
            return None
        return ServerEvent(
            fields.get("event", ""), json.loads(fields["data"]), fields.get("id", "")
        )
