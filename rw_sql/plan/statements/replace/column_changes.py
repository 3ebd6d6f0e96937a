"""Compares two column lists of a table. Finds the columns to rename, drop and add, or the reason why renaming, dropping
and adding columns cannot convert one list into the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.model.definitions import field_of, primary_key
from rw_sql.plan.statements.replace.normal_form import IN_SPARK, compared_column, plain_column
from rw_sql.plan.statements.table.renamed_column import with_renamed_column
from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.rendering.parts import column_text
from rw_sql.syntax.statements import AlterAddColumn, AlterTableDropColumn, AlterTableRenameColumn, ColumnDefinition

if TYPE_CHECKING:
    from rw_sql.plan.statements.replace.normal_form import Dialects
    from rw_sql.syntax.statements import CreateTable


_Change = AlterTableRenameColumn | AlterTableDropColumn | AlterAddColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChanges:
    """The statements that produce the requested columns. If there are no such statements, ``refusal`` is the reason.

    ``left`` is the current definition without the dropped columns, and with the renamed columns. Renaming a column also
    changes the keys and expressions that name the column.
    """

    left: CreateTable
    statements: tuple[_Change, ...] = ()
    refusal: str = ""


def column_changes(current: CreateTable, wanted: CreateTable, dialects: Dialects = IN_SPARK) -> ColumnChanges:
    """The statements that change the columns of a table to the columns of another definition."""
    old, new = _by_name(current), _by_name(wanted)
    renames = _renames(old, new)
    gone = [column for name, column in old.items() if name not in new and name not in renames]
    names = {column.name for column in gone}
    if not names.isdisjoint(primary_key(current)):
        return ColumnChanges(left=current, refusal="PRIMARY KEY cannot change")
    left = replace(current, columns=tuple(column for column in current.columns if column.name not in names))
    # A column can be dropped only after the columns that are computed from it.
    statements: list[_Change] = [
        AlterTableDropColumn(name=wanted.name, column=column.name)
        for column in sorted(gone, key=lambda column: column.generated is None)
    ]
    for before, after in renames.items():
        statements.append(AlterTableRenameColumn(name=wanted.name, column=before, new_column=after))
        try:
            left = with_renamed_column(left, before, after, dialects[0])
        except SqlError as error:
            return ColumnChanges(left=left, refusal=error.message)
    kept = _by_name(left)
    added = [column for name, column in new.items() if name not in kept]
    if refusal := _refusal(kept, new, added, dialects):
        return ColumnChanges(left=left, refusal=refusal)
    statements += [AlterAddColumn(kind="TABLE", name=wanted.name, column=column) for column in added]
    return ColumnChanges(left=left, statements=tuple(statements))


def _refusal(
    kept: dict[str, ColumnDefinition],
    new: dict[str, ColumnDefinition],
    added: list[ColumnDefinition],
    dialects: Dialects,
) -> str:
    """Returns the reason why adding columns to the kept columns cannot produce the new column list; empty if there is
    no such reason."""
    if list(new) != [*kept, *(column.name for column in added)]:
        return "the columns are in another order, but a new column can only be added at the end"
    for name, before in kept.items():
        after = new[name]
        if compared_column(replace(before, field=after.field), dialects[0]) != compared_column(after, dialects[1]):
            return f"column {quoted(name)} is {_shown(before)} in the table, but {_shown(after)} in the new definition"
    for name, before in kept.items():
        if field_of(before) != field_of(new[name]):
            return f"the new definition reads column {quoted(name)} from another field"
    for column in added:
        if column.is_not_null:
            return f"column {quoted(column.name)} is new and NOT NULL, but existing rows have no value"
        if compared_column(column, dialects[0]) != compared_column(column, dialects[1]):
            return (
                f"the expression of the new column {quoted(column.name)} has another meaning in the dialect of the "
                f"table, which is {dialects[0]}"
            )
    return ""


def _by_name(table: CreateTable) -> dict[str, ColumnDefinition]:
    return {column.name: plain_column(column) for column in table.columns}


def _renames(old: dict[str, ColumnDefinition], new: dict[str, ColumnDefinition]) -> dict[str, str]:
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
