"""Statements about materialized views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.syntax.rules.parts import query, refuse_twice
from rw_sql.syntax.statements.materialized_view import CreateMaterializedView, DropMaterializedView

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.scan import Token
    from rw_sql.syntax.statements.common import Name, Option


def create_materialized_view(
    if_not_exists: bool | None,
    name: Name,
    columns: tuple[str, ...],
    options: tuple[Option, ...],
    text: Token,
    is_emit_on_window_close: bool | None,
) -> CreateMaterializedView:
    return CreateMaterializedView(
        name=name,
        query=query(text),
        if_not_exists=bool(if_not_exists),
        columns=columns,
        options=options,
        is_emit_on_window_close=bool(is_emit_on_window_close),
    )


def column_names(*names: Token) -> tuple[str, ...]:
    refuse_twice("column", [(n.value, n.span) for n in names])
    return tuple(n.value for n in names)


def drop_materialized_view(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropMaterializedView:
    return DropMaterializedView(name=name, if_exists=bool(if_exists), is_cascade=bool(is_cascade))


MATERIALIZED_VIEW_RULES: dict[str, Callable[..., Any]] = {
    "create_materialized_view": create_materialized_view,
    "column_names": column_names,
    "drop_materialized_view": drop_materialized_view,
}
