"""Renames a column in the definition of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.model.definitions import field_of
from rw_sql.syntax.query.rename_column import renamed_column

if TYPE_CHECKING:
    from rw_sql.syntax.statements import ColumnDefinition, CreateTable, Expression


def with_renamed_column(table: CreateTable, old: str, new: str, dialect: str) -> CreateTable:
    """A table's definition with all occurrences of a column renamed. The column is still read from the same field.

    ``dialect`` is the dialect of the expressions, except for the expression of the watermark, which is in RisingWave's
    SQL. Raises SqlError if it is not certain which names in an expression refer to the column.
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
