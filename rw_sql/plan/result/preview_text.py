"""Formats a preview as text, for confirmation requests, refusals and EXPLAIN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.support.wide_offsets import MOST_COUNTED
from rw_sql.model.split_status import ORPHAN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.plan.result.plan import Preview, SplitPreview

_MOST_SPLITS = 40


def render_preview(preview: Preview) -> str:
    """Returns the preview as lines of text: the title, the dependents, the properties, the table of splits, and the
    notices."""
    lines = [preview.title]
    if preview.epoch is not None:
        lines.append(f"  as of epoch {preview.epoch}")
    if preview.parts:
        lines += _properties(preview)
        lines += [f"  {line}" for part in preview.parts for line in render_preview(part).splitlines()]
        return "\n".join([*lines, *(f"  note: {notice}" for notice in preview.notices)])
    heading = "keeps the state of" if preview.is_checkpoint else "dependents"
    lines.append(f"  {heading}: " + (", ".join(preview.dependents) or "none"))
    lines += _properties(preview)
    if preview.splits:
        lines.append(f"  splits (the next {'position' if preview.is_checkpoint else 'record'} to read):")
        shown = preview.splits[:_MOST_SPLITS]
        rows_of_splits = [_split_row(split) for split in shown]
        header: tuple[str, ...] = ("split", "old", "new", "upstream holds", "verdict")
        if any(split.reader for split in shown):
            header = ("reader", *header)
            rows_of_splits = [(split.reader, *row) for split, row in zip(shown, rows_of_splits, strict=True)]
        lines += ["    " + line for line in aligned(header, rows_of_splits)]
        if len(preview.splits) > len(shown):
            lines.append(f"    … and {len(preview.splits) - len(shown)} more splits")
        lines.append(f"  in all: {total_text(preview.splits)}")
    lines += [f"  note: {notice}" for notice in preview.notices]
    return "\n".join(lines)


def _properties(preview: Preview) -> list[str]:
    if not preview.properties:
        return []
    rows = [(key, old or "(not set)", new or "(not set)") for key, old, new in preview.properties]
    return ["  properties:", *("    " + line for line in aligned(("property", "old", "new"), rows))]


def _split_row(split: SplitPreview) -> tuple[str, ...]:
    nowhere = "not there" if split.verdict == ORPHAN else "unknown"
    holds = f"[{split.start}, {split.end})" if split.start is not None else nowhere
    old, new, holds = split.written or (_number(split.old), _number(split.new), holds)
    return (split.split, old, new, holds, split.verdict)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def total_text(splits: Sequence[SplitPreview]) -> str:
    """The totals of repeated and skipped records over all splits, as text."""
    most = "" if all(split.is_exact for split in splits) else "at most "
    unknown = sum(s.verdict.startswith("UNKNOWN") for s in splits)
    counts = (("DUPLICATES", sum(s.shown[0] for s in splits)), ("GAP", sum(s.shown[1] for s in splits)))
    parts = [
        f"{word} of unknown size" if n >= MOST_COUNTED - 1 else f"{word} {most if n else ''}{n}" for word, n in counts
    ]
    if unknown:
        parts.append(f"UNKNOWN for {unknown} split{'s' if unknown != 1 else ''}")
    return ", ".join(parts)


def aligned(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns a table with aligned columns. The first line is the header."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return [
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]
