"""Graphs as text, Mermaid and SVG: the layout is the same each time, arrows go forward, all text is escaped."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from rw_sql.plan.result.graph import Graph, GraphNode, to_mermaid, to_text
from rw_sql.plan.result.graph_layout import layout
from rw_sql.plan.result.graph_svg import to_svg

SVG = "{http://www.w3.org/2000/svg}"


def graph(edges: list[tuple[int, int]], *more: int, names: dict[int, str] | None = None) -> Graph:
    """A graph of sources called n1, n2, …"""
    ids = sorted({id_ for edge in edges for id_ in edge} | set(more))
    nodes = (GraphNode(id=id_, name=(names or {}).get(id_, f"n{id_}"), kind="source", state="RUNNING") for id_ in ids)
    return Graph(nodes=tuple(nodes), edges=tuple(edges))


def random_graph(seed: int, size: int) -> Graph:
    """A graph without circles, in which objects read some that were made before them."""
    chosen = random.Random(seed)
    edges = {
        (chosen.randrange(1, reader), reader) for reader in range(2, size + 1) for _ in range(chosen.randrange(0, 4))
    }
    return graph(sorted(edges), *range(1, size + 1))


@pytest.mark.parametrize("seed", range(20))
def test_boxes_do_not_overlap_and_arrows_go_forward(seed: int) -> None:
    drawn = random_graph(seed, 40)
    placed = layout(drawn)
    assert layout(drawn) == placed
    assert set(placed.places) == {node.id for node in drawn.nodes}
    by_layer: dict[int, list[float]] = {}
    for layer, row in placed.places.values():
        by_layer.setdefault(layer, []).append(row)
    for start, end in drawn.edges:
        assert placed.places[start][0] < placed.places[end][0]
        for layer, row in placed.ways[start, end]:
            by_layer[layer].append(row)
        assert [layer for layer, _ in placed.ways[start, end]] == list(
            range(placed.places[start][0] + 1, placed.places[end][0])
        )
    for rows in by_layer.values():
        assert all(after - before > 0.999 for before, after in pairwise(sorted(rows)))
        assert min(rows) >= 0
        assert max(rows) <= placed.rows - 1 + 1e-9


def test_a_chain_is_straight_and_a_circle_is_drawn() -> None:
    placed = layout(graph([(1, 2), (2, 3), (3, 4)]))
    assert placed.places == {1: (0, 0.0), 2: (1, 0.0), 3: (2, 0.0), 4: (3, 0.0)}
    circle = graph([(1, 2), (2, 3), (3, 1)])
    assert {layer for layer, _ in layout(circle).places.values()} == {0, 1, 2}
    assert len(ElementTree.fromstring(to_svg(circle)).findall(f"{SVG}g")) == 3


def test_nothing_is_a_picture_too() -> None:
    empty = Graph(nodes=(), edges=())
    assert ElementTree.fromstring(to_svg(empty)).tag == f"{SVG}svg"
    assert (to_text(empty), to_mermaid(empty)) == ("", "flowchart LR\n")


def test_crossings_that_need_not_be_are_not() -> None:
    # Two pairs that were made crosswise.
    placed = layout(graph([(1, 4), (2, 3)]))
    assert (placed.places[1][1] - placed.places[2][1]) * (placed.places[4][1] - placed.places[3][1]) > 0


def test_text_draws_each_object_once() -> None:
    drawn = graph([(1, 2), (1, 3), (2, 4), (3, 4), (4, 5)], 9, names={1: "orders", 9: "alone"})
    assert to_text(drawn).splitlines() == [
        "orders (source · RUNNING)",
        "├─ n2 (source · RUNNING)",
        "│  └─ n4 (source · RUNNING)",
        "│     └─ n5 (source · RUNNING)",
        "└─ n3 (source · RUNNING)",
        "   └─ n4 (above)",
        "alone (source · RUNNING)",
    ]


def test_a_long_chain_needs_no_deep_stack() -> None:
    drawn = graph(list(pairwise(range(1, 3000))))
    assert to_text(drawn).count("\n") == 2999
    assert to_svg(drawn, has_style=False).count("<rect") == 2999


HOSTILE = "<script>alert(1)</script>\"'&\x00\x1b[31m\n]; click n1"


def test_names_are_text_everywhere() -> None:
    drawn = graph([(1, 2)], names={1: HOSTILE})
    svg = to_svg(drawn)
    assert "<script" not in svg
    root = ElementTree.fromstring(svg)
    title = root.find(f"{SVG}g/{SVG}title")
    assert title is not None
    assert (title.text or "").startswith("<script>alert(1)</script>\"'&")
    mermaid = to_mermaid(drawn)
    assert len(mermaid.splitlines()) == 4
    label = mermaid.splitlines()[1].removeprefix('  n1["').removesuffix('"]').replace("<br/>", "")
    assert not set("<>\"'&\x1b[]();") - {";"} & set(label)
    assert "\x1b" not in to_text(drawn)
    assert len(to_text(drawn).splitlines()) == 2


def test_state_is_shown_without_colour() -> None:
    drawn = Graph(
        nodes=(GraphNode(id=1, name="v", kind="materialized_view", state="STALLED", note="5 behind"),), edges=()
    )
    assert ">materialized view</text>" in to_svg(drawn)
    assert ">STALLED · 5 behind</text>" in to_svg(drawn)
    assert "class n1 stalled" in to_mermaid(drawn)
    assert "<style>" in to_svg(drawn)
    assert 'class="back"' in to_svg(drawn)
    assert "<style>" not in to_svg(drawn, has_style=False)
    assert 'class="back"' not in to_svg(drawn, has_style=False)


def test_every_line_is_inside_of_its_box() -> None:
    long = "m" * 60
    drawn = Graph(
        nodes=(GraphNode(id=1, name=long, kind=long, state="STALLED", note="5,000,000,000 behind"),), edges=()
    )
    box = ElementTree.fromstring(to_svg(drawn)).find(f"{SVG}g")
    assert box is not None
    rect = box.find(f"{SVG}rect")
    assert rect is not None
    texts = box.findall(f"{SVG}text")
    assert len(texts) == 3
    top, height = float(rect.get("y") or 0), float(rect.get("height") or 0)
    for text in texts:
        assert top + 12 <= float(text.get("y") or 0) <= top + height - 4
        assert len(text.text or "") <= 24  # seven pixels for a letter of the widest usual font, in 170


def test_a_thousand_boxes_are_placed_soon() -> None:
    drawn = random_graph(1, 1000)
    started = time.process_time()
    assert to_svg(drawn, has_style=False).count("<rect") == 1000
    assert time.process_time() - started < 30  # no test of speed: a method that is cubic takes minutes
