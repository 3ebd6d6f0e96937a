"""Defines the forms in which the shell prints some results instead of a table: a statement to copy, or a short list of
jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.first_words import is_show_create

if TYPE_CHECKING:
    from rw_sql.session.results import Rows

JOBS = ("job", "kind", "object", "state", "reason", "last_error", "lag", "run", "restarts")
"""The columns of SHOW JOBS."""


def jobs_in_short(rows: Rows) -> tuple[Rows, str]:
    """Returns a compact form of SHOW JOBS for terminals that are too narrow for the full table. The compact form has
    the most important columns, and below them the reasons as text."""
    from rw_sql.session.results import Rows

    at = [rows.columns.index(column) for column in ("job", "object", "kind", "state", "lag")]
    short = Rows(
        columns=tuple(rows.columns[index] for index in at),
        rows=tuple(tuple(row[index] for index in at) for row in rows.rows),
        has_more=rows.has_more,
    )
    named = (dict(zip(rows.columns, row, strict=True)) for row in rows.rows)
    reasons = [f"{job['object']} is {job['state']}: {job['reason']}\n" for job in named if job["reason"]]
    return short, "".join([*reasons, "\\x shows all columns\n"])


def definition_of(statement: str, rows: Rows) -> str | None:
    """The result of SHOW CREATE as a statement that can be copied; None for other statements."""
    if not is_show_create(statement) or len(rows.rows) != 1:
        return None
    text = rows.rows[0][-1]
    return None if text is None else text.rstrip().rstrip(";") + ";"
