"""EXPLAIN as JSON, Mermaid and SVG."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from rw_sql.errors import SqlError
from rw_sql.plan.result.explain import explain_lines
from rw_sql.plan.result.graph import Graph, GraphNode
from rw_sql.plan.result.move_svg import MOST_SPLITS, move_svg
from rw_sql.plan.result.picture import explained
from rw_sql.plan.result.plan import Plan, Preview, ResultRow, SplitPreview
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.parsing.unsupported import unsupported
from rw_sql.syntax.statements import Explain

if TYPE_CHECKING:
    from collections.abc import Sequence

SPLITS = (
    SplitPreview(split="o:0", old=120, new=40, start=0, end=200, verdict="DUPLICATES 80", duplicates=80),
    SplitPreview(split="o:1", old=20, new=150, start=10, end=180, verdict="GAP 130", gaps=130),
    SplitPreview(split="o:2", old=50, new=50, start=0, end=50, verdict="NONE"),
    SplitPreview(split="o:3", old=None, new=0, start=0, end=0, verdict="NEW"),
    SplitPreview(split="<b>", old=12, new=5, start=None, end=None, verdict="UNKNOWN", duplicates=7, is_exact=False),
)
STATEMENT = parse_statement("FLUSH")


def move(splits: Sequence[SplitPreview] = SPLITS) -> Preview:
    properties = (("topic", "a", ""),)
    return Preview(title="INJECT into o", dependents=("totals",), properties=properties, splits=tuple(splits), epoch=3)


def told(plan: Plan, form: str) -> str:
    statement = parse_statement(f"EXPLAIN (FORMAT {form}) FLUSH")
    assert isinstance(statement, Explain)
    ((text,),) = explained(plan, statement).rows
    return str(text)


def test_the_bar_of_each_split() -> None:
    svg = told(Plan(statement=STATEMENT, preview=move()), "SVG")
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    rows = [group for group in root.iter(f"{space}g") if group.find(f"{space}title") is not None]
    assert len(rows) == len(SPLITS)
    found = []
    for row in rows:
        marks = [str(rect.get("class")) for rect in row.iter(f"{space}rect")]
        texts = [str(text.text) for text in row.iter(f"{space}text")]
        found.append((marks, texts))
    # What repeats and what is skipped is a pattern and a word: no colour is needed.
    assert found == [
        (["log", "repeats"], ["o:0", "old 120", "new 40", "repeats 80"]),
        (["log", "gap"], ["o:1", "old 20", "new 150", "skips 130"]),
        (["log"], ["o:2", "old 50", "new 50", "NONE"]),
        (["log"], ["o:3", "new 0", "NEW"]),
        (["unknown", "repeats"], ["<b>", "old 12", "new 5", "repeats at most 7"]),
    ]
    (repeats,) = [rect for rect in rows[0].iter(f"{space}rect") if rect.get("class") == "repeats"]
    assert (float(repeats.get("x") or 0), float(repeats.get("width") or 0)) == (264.0, 168.0)
    words = "".join(root.itertext())
    assert "DUPLICATES at most 87, GAP at most 130" in words
    assert "topic: a → (not set)" in words
    assert "prefers-color-scheme: dark" in words


def test_many_splits_are_counted() -> None:
    svg = move_svg(move(SPLITS[:1] * (MOST_SPLITS + 3)))
    assert "… and 3 more splits" in svg
    assert svg.count("<g>") == MOST_SPLITS


def test_parts_are_below_each_other() -> None:
    both = Preview(title="COMMIT", parts=(move(), move(SPLITS[:1])), notices=("one commit",))
    svg = move_svg(both)
    heights = [int(found) for found in re.findall(r'<text class="title" x="10" y="(\d+)"', svg)]
    assert heights == sorted(heights)
    assert svg.count("INJECT into o") == 2
    assert "note: one commit" in svg


def test_mermaid() -> None:
    lines = told(Plan(statement=STATEMENT, preview=move()), "MERMAID").splitlines()
    assert lines[:3] == [
        "flowchart LR",
        '  m0["INJECT into o"]',
        '  m0 --> m0s0["o:0<br/>120 to 40<br/>log 0 to 200<br/>DUPLICATES 80"]',
    ]
    assert '["#60;b#62;<br/>' in lines[6]
    assert lines[-1] == '  m0 -.-> m0d0(["totals"])'


def test_json_has_what_the_text_has() -> None:
    plan = Plan(statement=STATEMENT, preview=move(), is_unsafe=True)
    found = json.loads(told(plan, "JSON"))
    assert found["lines"] == explain_lines(plan)
    assert found["preview"]["splits"][0] == {
        "split": "o:0",
        "old": 120,
        "new": 40,
        "start": 0,
        "end": 200,
        "verdict": "DUPLICATES 80",
        "duplicates": 80,
        "gaps": 0,
        "is_exact": True,
        "reader": "",
    }
    assert found["preview"]["properties"] == [{"property": "topic", "old": "a", "new": None}]
    assert (found["is_unsafe"], found["commit"], found["then"], found["lineage"]) == (True, [], [], None)


def test_lineage_and_other_statements() -> None:
    graph = Graph(
        nodes=(GraphNode(id=1, name="s", kind="source"), GraphNode(id=2, name="v", kind="view")), edges=((1, 2),)
    )
    plan = Plan(statement=STATEMENT, graph=graph)
    assert "n1 --> n2" in told(plan, "MERMAID")
    assert ElementTree.fromstring(told(plan, "SVG")).get("aria-label") == "lineage"
    assert json.loads(told(plan, "JSON"))["lineage"]["edges"] == [{"from": 1, "to": 2}]
    nothing = Plan(statement=STATEMENT, changes=(ResultRow(object="s", change="NOTHING", detail="it is paused"),))
    assert "it is paused" in told(nothing, "SVG")
    assert "it is paused" in told(nothing, "MERMAID")


def test_text_is_a_row_per_line() -> None:
    statement = parse_statement("EXPLAIN (FORMAT TEXT) FLUSH")
    assert isinstance(statement, Explain)
    plan = Plan(statement=STATEMENT, preview=move())
    assert explained(plan, statement).rows == tuple((line,) for line in explain_lines(plan))


@pytest.mark.parametrize("form", ["TEXT", "JSON", "MERMAID", "SVG"])
def test_the_forms_are_statements(form: str) -> None:
    statement = parse_statement(f"explain (format {form.lower()}) flush")
    assert render(statement) == f"EXPLAIN (FORMAT {form}) FLUSH"
    assert unsupported(statement) is None


@pytest.mark.parametrize("options", ["(FORMAT XML)", "(VERBOSE)", "ANALYZE", "(VERBOSE, FORMAT SVG)"])
def test_other_options_are_not_supported(options: str) -> None:
    error = unsupported(parse_statement(f"EXPLAIN {options} FLUSH"))
    assert error is not None
    assert "FORMAT JSON" in (error.hint or "")


def test_a_form_that_there_is_not() -> None:
    with pytest.raises(SqlError, match="expected a format"):
        parse_statement("EXPLAIN (FORMAT PNG) FLUSH")
