"""Reads one entry of a checkpoint's offset log (the file ``offsets/N``), and renders the entry with new offsets for
some sources.

The format is Spark's. The first line is ``v1`` or ``v2``, and the second line is the batch's metadata as JSON. One line
per source follows. In ``v1``, a source's line contains only the offset. In ``v2``, the line has the form
``name:offset``. If the source has no offset yet, the line contains ``-``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_OFFSET = "-"
_HEADER_LINES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """The entry of one batch. ``names`` and ``offsets`` have one element per source. If a source has no offset yet, its
    offset is None.

    In ``v1``, a source's name is its index: ``0``, ``1``, … ``ending`` is the newline after the last source; it is
    empty if the text does not end with a newline.
    """

    version: int
    metadata: str
    names: tuple[str, ...]
    offsets: tuple[str | None, ...]
    ending: str = ""

    @property
    def watermark_ms(self) -> int:
        """The watermark of the batch in milliseconds; 0 if the batch has no watermark."""
        try:
            value = json.loads(self.metadata).get("batchWatermarkMs", 0)
        except (ValueError, AttributeError):
            return 0
        return value if isinstance(value, int) else 0

    def render(self) -> str:
        """The entry in Spark's format."""
        lines = [f"v{self.version}", self.metadata]
        for name, offset in zip(self.names, self.offsets, strict=True):
            text = NO_OFFSET if offset is None else offset
            lines.append(text if self.version == 1 else f"{name}:{text}")
        return "\n".join(lines) + self.ending

    def with_offsets(self, moved: Mapping[str, str | None]) -> OffsetEntry:
        """Returns the entry with new offsets for the named sources. Every other byte is preserved."""
        offsets = tuple(moved.get(name, offset) for name, offset in zip(self.names, self.offsets, strict=True))
        return replace(self, offsets=offsets)


def read_entry(text: str) -> OffsetEntry:
    """Parses the text of an entry. Raises ValueError, with the reason, if the text is not in Spark's format."""
    lines = text.split("\n")
    if lines[0] not in ("v1", "v2"):
        raise ValueError(f"its first line is {lines[0][:20]!r}, not v1 or v2")
    if len(lines) < _HEADER_LINES:
        raise ValueError("it ends after its first line")
    sources = lines[_HEADER_LINES:]
    ending = "\n" if sources and not sources[-1] else ""
    if ending:
        sources.pop()
    if lines[0] == "v1":
        names = tuple(str(place) for place in range(len(sources)))
        offsets = sources
    else:
        split = [line.partition(":") for line in sources]
        for (_, colon, _), line in zip(split, sources, strict=True):
            if not colon:
                raise ValueError(f"the line {line[:40]!r} names no source")
        names, offsets = tuple(part[0] for part in split), [part[2] for part in split]
    if len(set(names)) < len(names):
        raise ValueError("it names a source twice")
    return OffsetEntry(
        version=int(lines[0][1:]),
        metadata=lines[1],
        names=names,
        offsets=tuple(None if offset == NO_OFFSET else offset for offset in offsets),
        ending=ending,
    )
