"""Compares two column lists of a table: finds the columns to rename, drop and add, or the reason why such changes
cannot convert one list into the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.model.definitions import field_of
from rw_sql.plan.statements.replace.normal_form import IN_SPARK, compared_column, plain_column
from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.rendering.parts import column_text
from rw_sql.syntax.statements import AlterAddColumn, AlterTableDropColumn, AlterTableRenameColumn, ColumnDefinition

if TYPE_CHECKING:
    from rw_sql.plan.statements.replace.normal_form import Dialects
    from rw_sql.syntax.statements import CreateTable, Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChanges:
    """The statements that produce the requested columns; or, in ``refusal``, the reason why there are no such
    statements.
    """

    statements: tuple[AlterTableRenameColumn | AlterTableDropColumn | AlterAddColumn, ...] = ()
    refusal: str = ""


def column_changes(
    name: Name, current: CreateTable, wanted: CreateTable, dialects: Dialects = IN_SPARK
) -> ColumnChanges:
    """The statements that change the columns of a table to the columns of another definition."""
    old, new = _by_name(current), _by_name(wanted)
    renamed = _renamed(old, new)
    statements: list[AlterTableRenameColumn | AlterTableDropColumn | AlterAddColumn] = [
        AlterTableRenameColumn(name=name, column=before, new_column=after) for before, after in renamed.items()
    ]
    kept = [renamed.get(column, column) for column in old if renamed.get(column, column) in new]
    statements += [
        AlterTableDropColumn(name=name, column=column) for column in old if renamed.get(column, column) not in new
    ]
    added = [column for column in new.values() if column.name not in kept]
    if list(new) != [*kept, *(column.name for column in added)]:
        return ColumnChanges(refusal="the columns are in another order, but a new column can only be added at the end")
    for before in old.values():
        after = new.get(renamed.get(before.name, before.name))
        if after is None:
            continue
        now = replace(before, name=after.name, field=after.field)
        if compared_column(now, dialects[0]) != compared_column(after, dialects[1]):
            return ColumnChanges(
                refusal=f"column {quoted(after.name)} is {_shown(before)} in the table, but {_shown(after)} in the new "
                "definition"
            )
    for after in new.values():
        before_name = next((b for b, a in renamed.items() if a == after.name), after.name)
        was = old.get(before_name)
        if was is not None and before_name == after.name and field_of(was) != field_of(after):
            return ColumnChanges(refusal=f"the new definition reads column {quoted(after.name)} from another field")
    for column in added:
        if column.is_not_null:
            return ColumnChanges(
                refusal=f"column {quoted(column.name)} is new and NOT NULL, but existing rows have no value"
            )
        if compared_column(column, dialects[0]) != compared_column(column, dialects[1]):
            return ColumnChanges(
                refusal=f"the expression of the new column {quoted(column.name)} has another meaning in the dialect of "
                f"the table, which is {dialects[0]}"
            )
    statements += [AlterAddColumn(kind="TABLE", name=name, column=column) for column in added]
    return ColumnChanges(statements=tuple(statements))


def _by_name(table: CreateTable) -> dict[str, ColumnDefinition]:
    return {column.name: plain_column(column) for column in table.columns}


def _renamed(old: dict[str, ColumnDefinition], new: dict[str, ColumnDefinition]) -> dict[str, str]:
    """Maps old names to new names.

    If a new column is read from the same field as a removed column, the removed column counts as renamed.
    """
    gone = {field_of(column): column for name, column in old.items() if name not in new and column.generated is None}
    found: dict[str, str] = {}
    for column in new.values():
        before = gone.get(field_of(column))
        if column.name in old or before is None or column.generated is not None:
            continue
        if before.data_type == column.data_type:
            found[before.name] = column.name
    return found


def _shown(column: ColumnDefinition) -> str:
    return column_text(column).removeprefix(quoted(column.name)).strip()
