"""Draws a move of positions as SVG. For each split, a bar shows the range of the upstream's log, the old and the new
position, the repeated records, and the gaps.

The picture is readable in light and dark mode, and without colour, because repeated ranges are hatched, gaps are
dotted, and both have labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.support.wide_offsets import MOST_COUNTED
from rw_sql.plan.result.graph_svg import shortened, xml_text
from rw_sql.plan.result.preview_text import total_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rw_sql.plan.result.plan import Preview, SplitPreview

MOST_SPLITS = 40
_WIDTH, _LEFT, _RIGHT, _ROW, _LINE, _EDGE, _BAR = 860, 180, 600, 46, 18, 10, 14
_MOST_NAME, _MOST_LINE, _MOST_VERDICT = 26, 120, 38

STYLE = """\
.move text { font: 12px system-ui, sans-serif; fill: #1b1f24; }
.move .title { font-weight: 600; font-size: 13px; }
.move .back { fill: #ffffff; }
.move .quiet { fill: #57606a; font-size: 11px; }
.move .log { fill: #eef1f4; stroke: #6b7785; }
.move .unknown { fill: none; stroke: #6b7785; stroke-dasharray: 4 3; }
.move .repeats { fill: url(#rw-repeats); stroke: #9a6700; }
.move .gap { fill: url(#rw-gap); stroke: #b42318; }
.move .hatch { stroke: #9a6700; stroke-width: 2; }
.move .dot { fill: #b42318; }
.move .old { fill: #ffffff; stroke: #1b1f24; stroke-width: 1.4; }
.move .new { fill: #1b1f24; stroke: #1b1f24; }
@media (prefers-color-scheme: dark) {
  .move text { fill: #e6e9ed; }
  .move .back { fill: #13171b; }
  .move .quiet { fill: #9aa4ae; }
  .move .log { fill: #1d232a; stroke: #8a96a3; }
  .move .old { fill: #0d1117; stroke: #e6e9ed; }
  .move .new { fill: #e6e9ed; stroke: #e6e9ed; }
}
"""
_PATTERNS = """\
<defs>
<pattern id="rw-repeats" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<line class="hatch" x1="0" y1="0" x2="0" y2="7"/></pattern>
<pattern id="rw-gap" width="6" height="6" patternUnits="userSpaceOnUse"><circle class="dot" cx="3" cy="3" r="1.4"/>
</pattern>
</defs>"""


def move_svg(preview: Preview) -> str:
    """The preview as an SVG element: each object with its splits, followed by the notices."""
    parts: list[str] = []
    y = _EDGE
    for part in preview.parts or (preview,):
        y = _object(part, parts, y)
    if preview.parts:
        y = _notices(preview.notices, parts, y)
    y = _legend(parts, y)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="move" role="img" aria-label="{xml_text(preview.title)}"'
        f' viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}">'
    )
    back = '<rect class="back" width="100%" height="100%"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", back, _PATTERNS, *parts, "</svg>"]) + "\n"


def _object(preview: Preview, parts: list[str], y: int) -> int:
    y = _text(parts, preview.title, y, "title")
    heading = "keeps the state of" if preview.is_checkpoint else "dependents"
    y = _text(parts, f"{heading}: {', '.join(preview.dependents) or 'none'}", y)
    for key, old, new in preview.properties:
        y = _text(parts, f"{key}: {old or '(not set)'} → {new or '(not set)'}", y)
    shown = preview.splits[:MOST_SPLITS]
    for split in shown:
        parts += _split(split, y)
        y += _ROW
    if len(preview.splits) > len(shown):
        y = _text(parts, f"… and {len(preview.splits) - len(shown)} more splits", y)
    y += _EDGE if shown else 0  # space for the mark of the new position below the last split
    if preview.splits:
        y = _text(parts, f"in all: {total_text(preview.splits)}", y, "title")
    return _notices(preview.notices, parts, y) + _EDGE


def _notices(notices: Sequence[str], parts: list[str], y: int) -> int:
    for notice in notices:
        y = _text(parts, f"note: {notice}", y, "quiet")
    return y


def _text(parts: list[str], text: str, y: int, kind: str = "") -> int:
    mark = f' class="{kind}"' if kind else ""
    parts.append(f'<text{mark} x="{_EDGE}" y="{y + 13}">{xml_text(shortened(text, _MOST_LINE))}</text>')
    return y + _LINE


def _legend(parts: list[str], y: int) -> int:
    x, middle = _EDGE, y + 9
    for mark, text in (("log", "the log"), ("repeats", "read again"), ("gap", "skipped")):
        parts.append(f'<rect class="{mark}" x="{x}" y="{middle - 6}" width="22" height="12"/>')
        parts.append(f'<text class="quiet" x="{x + 28}" y="{middle + 4}">{text}</text>')
        x += 110
    for mark, text in (("old", "old position"), ("new", "new position")):
        parts.append(_marker(mark, x + 6, middle - 6))
        parts.append(f'<text class="quiet" x="{x + 18}" y="{middle + 4}">{text}</text>')
        x += 110
    return y + _LINE + _EDGE


def _marker(kind: str, x: float, y: float) -> str:
    """A triangle that points down to the old position or up to the new position."""
    points = f"{x - 5:.1f},{y:.1f} {x + 5:.1f},{y:.1f} {x:.1f},{y + 8:.1f}"
    if kind == "new":
        points = f"{x - 5:.1f},{y + 8:.1f} {x + 5:.1f},{y + 8:.1f} {x:.1f},{y:.1f}"
    return f'<polygon class="{kind}" points="{points}"/>'


def _split(split: SplitPreview, y: int) -> Iterator[str]:
    """The bar of one split, with a linear scale from the smallest to the largest known offset."""
    name = f"{split.reader} {split.split}".strip()
    top = y + 16
    yield f"<g><title>{xml_text(_in_words(split))}</title>"
    yield f'<text x="{_EDGE}" y="{top + 11}">{xml_text(shortened(name, _MOST_NAME))}</text>'
    known = [at for at in (split.start, split.end, split.old, split.new) if at is not None]
    low, high = min(known, default=0), max(known, default=0)

    def x(at: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * ((at - low) / (high - low) if high > low else 0.5)

    if split.start is not None and split.end is not None:
        width = max(1.0, x(split.end) - x(split.start))
        yield f'<rect class="log" x="{x(split.start):.1f}" y="{top}" width="{width:.1f}" height="{_BAR}"/>'
    else:
        yield f'<rect class="unknown" x="{_LEFT}" y="{top}" width="{_RIGHT - _LEFT}" height="{_BAR}"/>'
    yield from _effect(split, x, top)
    for kind, at, label_y, mark_y in (("old", split.old, y + 6, top - 9), ("new", split.new, top + 30, top + _BAR + 1)):
        if at is not None:
            yield _marker(kind, x(at), mark_y)
            yield f'<text class="quiet" x="{x(at) + 8:.1f}" y="{label_y + 2}">{kind} {at}</text>'
    verdict = shortened(_effect_text(split), _MOST_VERDICT)
    yield f'<text x="{_RIGHT + 14}" y="{top + 11}">{xml_text(verdict)}</text></g>'


def _effect(split: SplitPreview, x: object, top: int) -> Iterator[str]:
    """Draws the range that is repeated or skipped. If the old and the new position are known, this is the range between
    them. Otherwise, the range starts at the beginning of the log."""
    assert callable(x)
    first, last = split.old, split.new
    if first is None or last is None or first == last:
        return
    kind = "repeats" if last < first else "gap"
    if not (split.duplicates if kind == "repeats" else split.gaps):
        return
    left, right = sorted((x(first), x(last)))
    yield f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{max(2.0, right - left):.1f}" height="{_BAR}"/>'


def _effect_text(split: SplitPreview) -> str:
    most = "" if split.is_exact else "at most "
    duplicates, gaps = split.shown
    said = [f"repeats {_amount(most, duplicates)}"] if split.duplicates else []
    said += [f"skips {_amount(most, gaps)}"] if split.gaps else []
    return ", ".join(said) or split.verdict


def _amount(most: str, number: int) -> str:
    return "an unknown number" if number >= MOST_COUNTED - 1 else f"{most}{number}"


def _in_words(split: SplitPreview) -> str:
    log = "unknown" if split.start is None else f"[{split.start}, {split.end})"
    return f"{split.split}: the log holds {log}, old {split.old}, new {split.new}: {split.verdict}"
