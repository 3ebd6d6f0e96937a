"""The offset log of a Structured Streaming checkpoint: one entry a batch, read out of its text. Pure.

An entry's text is a version line (``v1`` or ``v2``), a line of metadata, and one line per source: ``v1`` has the bare
offset or ``-`` where a source had none yet, ``v2`` has ``name:offset``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_EMPTY = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """One source: its name (in ``v1`` its place, from 0) and its offset as JSON, None where there is none yet."""

    name: str
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLogEntry:
    """One file ``offsets/N``. ``watermark_ms`` is the event-time watermark of the batch, 0 where there is none."""

    version: int
    metadata: dict[str, Any]
    sources: tuple[SourceOffset, ...]

    @property
    def watermark_ms(self) -> int:
        """The watermark that the batch drops late rows by, in milliseconds since 1970; 0 before there is one."""
        value = self.metadata.get("batchWatermarkMs", 0)
        return value if isinstance(value, int) else 0


def read_entry(text: str) -> OffsetLogEntry:
    """The entry behind a file's text. Raises ValueError saying what about it is not an offset log's."""
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] not in ("v1", "v2"):
        raise ValueError("it does not begin with v1 or v2")
    try:
        metadata = json.loads(lines[1]) if lines[1].strip() else {}
    except json.JSONDecodeError as error:
        raise ValueError("its second line is not JSON") from error
    if not isinstance(metadata, dict):
        raise ValueError("its second line is not a JSON object")
    if lines[0] == "v1":
        sources = tuple(
            SourceOffset(name=str(place), text=None if line == _EMPTY else line) for place, line in enumerate(lines[2:])
        )
        return OffsetLogEntry(version=1, metadata=metadata, sources=sources)
    named = []
    for line in lines[2:]:
        name, colon, offset = line.partition(":")
        if not colon:
            raise ValueError(f"the line {line[:40]!r} names no source")
        named.append(SourceOffset(name=name, text=None if offset == _EMPTY else offset))
    return OffsetLogEntry(version=2, metadata=metadata, sources=tuple(named))


def kafka_offset(text: str | None) -> dict[str, dict[str, int]] | None:
    """A source's offset as Kafka's topics and partitions; None where it is another source's."""
    try:
        value = json.loads(text) if text else None
    except json.JSONDecodeError:
        return None
    if not isinstance(value, dict) or not value:
        return None
    for partitions in value.values():
        if not isinstance(partitions, dict) or not partitions:
            return None
        for partition, offset in partitions.items():
            if not partition.isdigit() or isinstance(offset, bool) or not isinstance(offset, int):
                return None
    return value
