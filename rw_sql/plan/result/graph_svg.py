"""Draws a graph as SVG. The boxes are in layers from left to right. The picture is readable in light and dark mode, and
without colour."""

from __future__ import annotations

from html import escape
from itertools import count
from typing import TYPE_CHECKING

from rw_sql.plan.result.graph_layout import layout

if TYPE_CHECKING:
    from rw_sql.plan.result.graph import Graph, GraphNode

_WIDTH, _HEIGHT, _GAP, _BETWEEN, _EDGE, _LINE = 190, 60, 60, 14, 8, 17
_MOST_LETTERS = 24
"""The maximum number of characters per line in a box. Even in the widest common font, such a line fits into the box."""

STYLE = """\
.graph text { font: 12px system-ui, sans-serif; fill: #1b1f24; }
.graph .name { font-weight: 600; }
.graph .kind { fill: #57606a; }
.graph .back { fill: #ffffff; }
.graph .box { fill: #ffffff; stroke: #6b7785; stroke-width: 1.2; }
.graph .line { fill: none; stroke: #8a96a3; stroke-width: 1.2; }
.graph .head { fill: #8a96a3; }
.graph .running .box { stroke: #1a7f43; }
.graph .stalled .box { stroke: #b42318; stroke-width: 3; }
.graph .paused .box, .graph .throttled .box { stroke-dasharray: 5 3; }
@media (prefers-color-scheme: dark) {
  .graph text { fill: #e6e9ed; }
  .graph .kind { fill: #9aa4ae; }
  .graph .back { fill: #13171b; }
  .graph .box { fill: #1d232a; stroke: #8a96a3; }
  .graph .running .box { stroke: #4cc38a; }
  .graph .stalled .box { stroke: #ff6b5e; }
}
"""


def to_svg(graph: Graph, *, has_style: bool = True, label: str = "lineage") -> str:
    """The graph as an SVG element. If ``has_style`` is False, the element has no styles, and the surrounding page must
    contain STYLE."""
    placed = layout(graph)

    def left(layer: int) -> float:
        return _EDGE + layer * (_WIDTH + _GAP)

    def middle(row: float) -> float:
        return _EDGE + row * (_HEIGHT + _BETWEEN) + _HEIGHT / 2

    width = max(1, 2 * _EDGE + placed.layers * (_WIDTH + _GAP) - _GAP)
    height = max(1, 2 * _EDGE + placed.rows * (_HEIGHT + _BETWEEN) - _BETWEEN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" aria-label="{label}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">',
    ]
    if has_style:
        # The program that shows the picture may use a dark background on a system in light mode. The picture therefore
        # has its own background.
        parts.append(f'<style>{STYLE}</style>\n<rect class="back" width="100%" height="100%"/>')
    for (start, end), bends in placed.ways.items():
        layer, row = placed.places[start]
        points = [(left(layer) + _WIDTH, middle(row))]
        for at, bend in bends:
            points += [(left(at), middle(bend)), (left(at) + _WIDTH, middle(bend))]
        layer, row = placed.places[end]
        points.append((left(layer) - 7, middle(row)))
        parts.append(f'<path class="line" d="{_way(points)}"/>')
        x, y = left(layer), middle(row)
        parts.append(f'<path class="head" d="M{x:.0f} {y:.0f}l-8 -4v8z"/>')
    for node in graph.nodes:
        layer, row = placed.places[node.id]
        parts.append(_box(node, left(layer), middle(row) - _HEIGHT / 2))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _way(points: list[tuple[float, float]]) -> str:
    """The SVG path of a line through points. The line is curved between layers, and straight inside a layer."""
    (x, y), *rest = points
    parts = [f"M{x:.0f} {y:.1f}"]
    for to_x, to_y in rest:
        half = (x + to_x) / 2
        parts.append(
            f"H{to_x:.0f}" if y == to_y else f"C{half:.0f} {y:.1f} {half:.0f} {to_y:.1f} {to_x:.0f} {to_y:.1f}"
        )
        x, y = to_x, to_y
    return "".join(parts)


def _box(node: GraphNode, x: float, y: float) -> str:
    state = f" {node.state.lower()}" if node.state.isalpha() else ""
    lines = _lines(node)
    top = (_HEIGHT - _LINE * len(lines)) / 2 + 13
    return (
        f'<g class="node{state}"><title>{xml_text(node.name)} ({xml_text(node.said)})</title>'
        f'<rect class="box" x="{x:.0f}" y="{y:.1f}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        + "".join(
            f'<text{mark} x="{x + 10:.0f}" y="{below:.1f}">{xml_text(shortened(line, _MOST_LETTERS))}</text>'
            for below, (mark, line) in zip(count(y + top, _LINE), lines, strict=False)
        )
        + "</g>"
    )


def _lines(node: GraphNode) -> list[tuple[str, str]]:
    """Returns the text lines of a box, each with its CSS class. The lines are the name, the kind and, if the box has a
    state or a note, the state with the note."""
    state = " · ".join(part for part in (node.state, node.note) if part)
    return [
        (' class="name"', node.name),
        (' class="kind"', node.kind.replace("_", " ")),
        *([("", state)] if state else []),
    ]


def shortened(text: str, most: int) -> str:
    """Returns the text, shortened to at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def xml_text(text: str) -> str:
    """Escapes text for XML, and replaces control characters that XML cannot represent."""
    return escape("".join(letter if letter.isprintable() or letter == " " else "\ufffd" for letter in text))
