"""Renames a column in the definition of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.model.definitions import field_of
from rw_sql.syntax.query.rename_column import renamed_column

if TYPE_CHECKING:
    from rw_sql.syntax.statements import ColumnDefinition, CreateTable, Expression


def with_renamed_column(table: CreateTable, old: str, new: str, dialect: str) -> CreateTable:
    """Returns the definition of ``table`` in which the new name replaces every occurrence of the column's old name. The
    column is still read from the field from which it was read before.

    ``dialect`` is the dialect of the expressions in the columns. The expression of the watermark is always in
    RisingWave's SQL. Raises SqlError if a name in an expression may refer to the column or to something else.
    """

    def computed(expression: Expression | None, language: str = dialect) -> Expression | None:
        if expression is None:
            return None
        text = renamed_column(expression.text, old, new, relation=table.name.last, dialect=language)
        return replace(expression, text=text)

    def renamed(column: ColumnDefinition) -> ColumnDefinition:
        if column.name != old:
            return replace(column, generated=computed(column.generated), default=computed(column.default))
        field = field_of(column)
        return replace(column, name=new, field=None if field == new or column.generated is not None else field)

    def listed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    return replace(
        table,
        columns=tuple(renamed(column) for column in table.columns),
        constraints=tuple(replace(found, columns=listed(found.columns)) for found in table.constraints),
        version_columns=listed(table.version_columns),
        watermarks=tuple(
            replace(
                found,
                column=new if found.column == old else found.column,
                expression=computed(found.expression, "risingwave") or found.expression,
            )
            for found in table.watermarks
        ),
    )
