"""Places the boxes of a graph in layers from left to right, and reduces crossings with medians (Sugiyama's method)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.plan.result.graph import Graph

_SWEEPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The position (layer, row) of each box, and for each arrow the rows at which it crosses the layers between its two
    boxes.

    A row may be a fraction, which makes arrows straighter. The rows of two boxes in a layer differ by at least 1.
    """

    places: Mapping[int, tuple[int, float]]
    ways: Mapping[tuple[int, int], tuple[tuple[int, float], ...]]
    layers: int
    rows: float


# A point is a box (the box's id), or the bend of an arrow in a layer that the arrow crosses (the arrow's edge and the
# layer).
_Point = int | tuple[tuple[int, int], int]


def layout(graph: Graph) -> Layout:
    """Lays out a graph.

    The same graph always gets the same layout. An arrow that closes a cycle is drawn but does not affect the layers.
    """
    layer_of = _layers([node.id for node in graph.nodes], graph.edges)
    columns: list[list[_Point]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for node in graph.nodes:
        columns[layer_of[node.id]].append(node.id)
    before: dict[_Point, list[_Point]] = {}
    after: dict[_Point, list[_Point]] = {}
    chains: dict[tuple[int, int], list[_Point]] = {}
    for edge in dict.fromkeys(graph.edges):
        start, end = edge
        bends: list[_Point] = [(edge, at) for at in range(layer_of[start] + 1, layer_of[end])]
        for at, bend in zip(range(layer_of[start] + 1, layer_of[end]), bends, strict=True):
            columns[at].append(bend)
        chains[edge] = bends
        if layer_of[start] < layer_of[end]:
            for left, right in zip([start, *bends], [*bends, end], strict=True):
                after.setdefault(left, []).append(right)
                before.setdefault(right, []).append(left)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        order = range(1, len(columns)) if forward else range(len(columns) - 2, -1, -1)
        for at in order:
            neighbours, beside = (before, columns[at - 1]) if forward else (after, columns[at + 1])
            _sort(columns[at], neighbours, beside)
    rows = _rows(columns, before, after)
    return Layout(
        places={node.id: (layer_of[node.id], rows[node.id]) for node in graph.nodes},
        ways={
            edge: tuple((layer_of[edge[0]] + 1 + at, rows[bend]) for at, bend in enumerate(bends))
            for edge, bends in chains.items()
        },
        layers=len(columns),
        rows=max(rows.values(), default=0.0) + 1,
    )


def _layers(ids: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Returns the layer of each box. A box is one layer after the last of its inputs."""
    readers: dict[int, list[int]] = {id_: [] for id_ in ids}
    open_inputs = dict.fromkeys(ids, 0)
    for start, end in dict.fromkeys(edges):
        readers[start].append(end)
        open_inputs[end] += 1
    layer = dict.fromkeys(ids, 0)
    ready = [id_ for id_ in ids if open_inputs[id_] == 0]
    left = set(ids)
    while left:
        if not ready:  # a cycle is broken at its first box
            ready = [next(id_ for id_ in ids if id_ in left)]
        id_ = ready.pop()
        if id_ not in left:
            continue
        left.discard(id_)
        for reader in readers[id_]:
            if reader in left:
                layer[reader] = max(layer[reader], layer[id_] + 1)
                open_inputs[reader] -= 1
                if open_inputs[reader] == 0:
                    ready.append(reader)
    return layer


def _sort(column: list[_Point], neighbours: Mapping[_Point, list[_Point]], beside: Sequence[_Point]) -> None:
    """Sorts the boxes of a layer by the medians of their neighbours' positions. A box without neighbours keeps its
    position."""
    place = {point: at for at, point in enumerate(beside)}
    wanted: dict[_Point, float] = {}
    for at, point in enumerate(column):
        found = sorted(place[other] for other in neighbours.get(point, ()))
        wanted[point] = float(found[len(found) // 2] + found[(len(found) - 1) // 2]) / 2 if found else float(at)
    column.sort(key=lambda point: wanted[point])


def _rows(
    columns: Sequence[Sequence[_Point]],
    before: Mapping[_Point, list[_Point]],
    after: Mapping[_Point, list[_Point]],
) -> dict[_Point, float]:
    """Returns the row of each point, as near as possible to the mean row of the point's neighbours. The points of a
    layer keep their order, and their rows differ by at least 1."""
    rows: dict[_Point, float] = {point: float(at) for column in columns for at, point in enumerate(column)}
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            neighbours = before if forward else after
            wanted = [
                sum(rows[other] for other in found) / len(found) if (found := neighbours.get(point)) else rows[point]
                for point in column
            ]
            for point, row in zip(column, _apart(wanted), strict=True):
                rows[point] = row
    least = min(rows.values(), default=0.0)
    return {point: row - least for point, row in rows.items()}


def _apart(wanted: Sequence[float]) -> list[float]:
    """Returns positions that are as near as possible to the requested positions (isotonic regression). The returned
    positions keep the order of the requested positions and are at least 1 apart."""
    blocks: list[tuple[float, int]] = []
    for at, row in enumerate(wanted):
        total, size = row - at, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / size:
            other, more = blocks.pop()
            total, size = total + other, size + more
        blocks.append((total, size))
    placed: list[float] = []
    for total, size in blocks:
        placed += [total / size + len(placed) + step for step in range(size)]
    return placed
