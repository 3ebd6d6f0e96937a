"""Formats the result of EXPLAIN for an rw_sql statement: the preview and the steps, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.plan.result.plan import Table
from rw_sql.plan.result.preview_text import render_preview

if TYPE_CHECKING:
    from rw_sql.plan.result.plan import Plan


def explain_lines(plan: Plan) -> list[str]:
    """The effect of the statement, as lines of text."""
    lines: list[str] = []
    if plan.preview is not None:
        lines += render_preview(plan.preview).splitlines()
    lines += plan.notes
    if plan.is_unsafe and plan.operation is not None:
        lines.append("unsafe: needs enable_unsafe_ops and a confirmation")
    catalog = [step for step in plan.steps if step.is_catalog]
    jobs = [step for step in plan.steps if not step.is_catalog]
    if catalog and plan.operation is not None:
        lines.append("in one commit:")
        lines += [f"  {step.describe()}" for step in catalog]
    if jobs and plan.operation is not None:
        lines.append("then:")
        lines += [f"  {step.describe()}" for step in jobs]
    if plan.effect is not None:
        lines += ["then, outside the catalog:", f"  {plan.effect.describe()}"]
    if plan.table is not None:
        lines.append("reads the catalog and changes nothing")
    elif plan.session is not None:
        lines.append(f"sets {plan.session[0]} in this session")
    elif plan.operation is None:
        notes = [row for row in plan.changes if row.change == "NOTHING"]
        lines += [f"changes nothing: {row.detail}" if row.object else row.detail for row in notes]
    return lines


def explain_table(plan: Plan) -> Table:
    """The rows of EXPLAIN."""
    return Table(columns=(("plan", "STRING"),), rows=tuple((line,) for line in explain_lines(plan)))
