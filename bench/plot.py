"""Draws the results as SVG without a chart library, which would be the largest dependency of the benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import log10

_LEFT, _WIDTH, _ROW, _TOP, _BOTTOM = 250, 520, 18, 34, 26
_LEAST, _MOST = 0.01, 10.0
_STYLE = (
    "text{font:11px sans-serif;fill:#444}.name{text-anchor:end}.tick{text-anchor:middle}"
    ".grid{stroke:#ddd}.goal{stroke:#444;stroke-dasharray:4 3}.met{fill:#2a7f62}.missed{fill:#c0392b}"
)


def _x(share: float) -> float:
    """The horizontal position of a share on a logarithmic scale; shares beyond the scale are drawn at its end."""
    held = min(max(share, _LEAST), _MOST)
    return _LEFT + _WIDTH * (log10(held) - log10(_LEAST)) / (log10(_MOST) - log10(_LEAST))


def plot(bars: Mapping[str, tuple[float, bool]]) -> str:
    """Draws one bar per case: the share of the goal that the case uses, and whether the goal is met."""
    height = _TOP + _ROW * len(bars) + _BOTTOM
    foot = height - _BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 60}" height="{height}" role="img">',
        f"<style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="16">share of its goal that each case uses (left of the line: the goal is met)</text>',
    ]
    for tick in (0.01, 0.1, 1.0, 10.0):
        kind, x = "goal" if tick == 1.0 else "grid", f"{_x(tick):.1f}"
        lines.append(f'<line class="{kind}" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{foot}"/>')
        lines.append(f'<text class="tick" x="{x}" y="{foot + 16}">{tick:g}</text>')
    for at, (name, (share, is_met)) in enumerate(sorted(bars.items(), key=lambda bar: -bar[1][0])):
        y, width, kind = _TOP + _ROW * at, max(_x(share) - _LEFT, 1), "met" if is_met else "missed"
        lines.append(f'<text class="name" x="{_LEFT - 8}" y="{y + 11}">{escape(name)}</text>')
        lines.append(f'<rect class="{kind}" x="{_LEFT}" y="{y + 2}" width="{width:.1f}" height="{_ROW - 6}"/>')
        lines.append(f'<text x="{_LEFT + width + 5:.1f}" y="{y + 11}">{share:.2g}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
