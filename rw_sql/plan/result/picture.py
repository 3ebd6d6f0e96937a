"""Renders the result of EXPLAIN as JSON, as a Mermaid flowchart or as SVG."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, assert_never

from rw_sql.plan.result.explain import explain_lines, explain_table
from rw_sql.plan.result.graph import Graph, GraphNode, mermaid_label, to_mermaid
from rw_sql.plan.result.graph_svg import to_svg
from rw_sql.plan.result.move_svg import MOST_SPLITS, move_svg
from rw_sql.plan.result.plan import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from rw_sql.plan.result.plan import Plan, Preview, SplitPreview
    from rw_sql.syntax.statements import Explain

    Form = Literal["TEXT", "JSON", "MERMAID", "SVG"]


def form_of(statement: Explain) -> Form:
    """The requested output format, as in ``EXPLAIN (FORMAT SVG) …``."""
    named = [option.removeprefix("FORMAT ") for option in statement.options]
    match named[-1] if named else "TEXT":
        case "JSON":
            return "JSON"
        case "MERMAID":
            return "MERMAID"
        case "SVG":
            return "SVG"
        case _:
            return "TEXT"


def explained(plan: Plan, statement: Explain) -> Table:
    """The rows of EXPLAIN in the requested output format. For text, the result has one row per line. For the other
    formats, the result has one row, which contains the entire document."""
    form = form_of(statement)
    match form:
        case "TEXT":
            return explain_table(plan)
        case "JSON":
            text = json.dumps(plan_json(plan), indent=2, ensure_ascii=False)
        case "MERMAID":
            text = plan_mermaid(plan)
        case "SVG":
            text = plan_svg(plan)
        case _:
            assert_never(form)
    return Table(columns=(("plan", "STRING"),), rows=((text.rstrip("\n"),),))


def plan_json(plan: Plan) -> dict[str, object]:
    """The plan as dicts and lists for JSON. All keys are always present."""
    has_steps = plan.operation is not None
    return {
        "lines": explain_lines(plan),
        "is_unsafe": plan.is_unsafe,
        "commit": [step.describe() for step in plan.steps if has_steps and step.is_catalog],
        "then": [step.describe() for step in plan.steps if has_steps and not step.is_catalog],
        "preview": None if plan.preview is None else _preview_json(plan.preview),
        "lineage": None if plan.graph is None else plan.graph.to_json(),
    }


def _preview_json(preview: Preview) -> dict[str, object]:
    return {
        "title": preview.title,
        "epoch": preview.epoch,
        "dependents": list(preview.dependents),
        "properties": [
            {"property": key, "old": old or None, "new": new or None} for key, old, new in preview.properties
        ],
        "splits": [_json_of(split) for split in preview.splits],
        "notices": list(preview.notices),
        "parts": [_preview_json(part) for part in preview.parts],
    }


def plan_mermaid(plan: Plan) -> str:
    """The plan as a flowchart. Depending on the plan, it shows a lineage, a move with its splits and dependents, or the
    sequence of steps."""
    if plan.graph is not None:
        return to_mermaid(plan.graph)
    if not _is_move(plan.preview):
        return to_mermaid(_steps(plan))
    assert plan.preview is not None
    lines = ["flowchart LR"]
    for number, part in enumerate(plan.preview.parts or (plan.preview,)):
        lines.append(f'  m{number}["{mermaid_label(part.title)}"]')
        for at, split in enumerate(part.splits[:MOST_SPLITS]):
            label = "<br/>".join(mermaid_label(line) for line in _split_lines(split))
            lines.append(f'  m{number} --> m{number}s{at}["{label}"]')
        if len(part.splits) > MOST_SPLITS:
            lines.append(f'  m{number} --> m{number}more["{len(part.splits) - MOST_SPLITS} more splits"]')
        for at, dependent in enumerate(part.dependents):
            lines.append(f'  m{number} -.-> m{number}d{at}(["{mermaid_label(dependent)}"])')
    return "\n".join(lines) + "\n"


def _json_of(split: SplitPreview) -> dict[str, object]:
    """The fields of a split. The result includes ``written`` only if the upstream does not write positions as numbers,
    and ``sizes`` only if offsets do not count bytes."""
    made = asdict(split)
    return {name: value for name, value in made.items() if name not in ("written", "sizes") or value is not None}


def _split_lines(split: SplitPreview) -> Iterator[str]:
    yield f"{split.reader} {split.split}".strip()
    yield f"{'-' if split.old is None else split.old} to {'-' if split.new is None else split.new}"
    yield "log unknown" if split.start is None else f"log {split.start} to {split.end}"
    yield split.verdict


def plan_svg(plan: Plan) -> str:
    """The plan as a picture. Depending on the plan, it shows a lineage, the splits of a move as bars, or the steps as
    boxes."""
    if plan.graph is not None:
        return to_svg(plan.graph)
    if _is_move(plan.preview):
        assert plan.preview is not None
        return move_svg(plan.preview)
    return to_svg(_steps(plan), label="plan")


def _is_move(preview: Preview | None) -> bool:
    return preview is not None and any(part.splits or part.properties for part in (preview, *preview.parts))


def _steps(plan: Plan) -> Graph:
    """The steps as a chain of boxes. For a statement that commits nothing, the boxes contain the lines of EXPLAIN
    instead."""
    steps = [(step.describe(), "in one commit" if step.is_catalog else "then") for step in plan.steps]
    if plan.operation is None or not steps:
        steps = [(line.strip(), "") for line in explain_lines(plan) if not line.endswith(":")]
    nodes = tuple(GraphNode(id=at, name=text, kind=kind) for at, (text, kind) in enumerate(steps))
    return Graph(nodes=nodes, edges=tuple((at, at + 1) for at in range(len(nodes) - 1)))
