"""Finds all rows of a batch that violate constraints of a Delta table. The library delta-rs itself reports only one
such row."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.sink import Refusal
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import deltalake
    import pyarrow as pa
else:
    deltalake, pa = deferred("deltalake"), deferred("pyarrow")

_CONSTRAINT = "delta.constraints."
_INVARIANTS = "delta.invariants"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A condition that every row must satisfy."""

    condition: str
    column: str | None
    reason: str


def refused_by_constraints(table: deltalake.DeltaTable, rows: pa.Table, index: str) -> list[Refusal]:
    """Returns the rows that violate a constraint of the table, each with the first constraint that it violates.
    ``index`` is the name of the column with the row numbers.

    The conditions are evaluated in DataFusion, as in delta-rs, on a copy of the rows.
    """
    found: dict[int, Refusal] = {}
    with tempfile.TemporaryDirectory(prefix="rw_sql-rows-") as folder:
        deltalake.write_deltalake(folder, rows)
        for check in _checks(table, rows.column_names):
            for at in _indexes_without(folder, check.condition, index):
                found.setdefault(at, Refusal(index=at, column=check.column, reason=check.reason))
    return [found[at] for at in sorted(found)]


def _indexes_without(folder: str, condition: str, index: str) -> list[int]:
    query = deltalake.QueryBuilder().register("batch", deltalake.DeltaTable(folder))
    read = query.execute(f"SELECT {index} FROM batch WHERE ({condition}) IS NOT TRUE")
    return [int(value) for value in pa.table(read.read_all()).column(0).to_pylist()]


def _checks(table: deltalake.DeltaTable, given: Sequence[str]) -> Iterator[_Check]:
    for field in table.schema().fields:
        if not field.nullable and field.name in given:
            quoted = field.name.replace('"', '""')
            yield _Check(condition=f'"{quoted}" IS NOT NULL', column=field.name, reason="the table does not allow NULL")
        if invariant := (field.metadata or {}).get(_INVARIANTS):
            condition = json.loads(invariant)["expression"]["expression"]
            yield _Check(condition=condition, column=field.name, reason=f"the invariant {condition} is violated")
    for key, condition in table.metadata().configuration.items():
        if key.startswith(_CONSTRAINT):
            name = key.removeprefix(_CONSTRAINT)
            named = [column for column in given if re.search(rf"(?<!\w){re.escape(column)}(?!\w)", condition)]
            yield _Check(
                condition=condition,
                column=", ".join(named) or None,
                reason=f'the constraint "{name}" CHECK ({condition}) is violated',
            )
