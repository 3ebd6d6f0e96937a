"""Actions for the statements about materialized views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.syntax.parsing.actions.parts import dropped, query
from rw_sql.syntax.statements.materialized_view import (
    CreateMaterializedView,
    DropMaterializedView,
    RebuildMaterializedView,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.statements.common import Name, Option


def create_materialized_view(
    or_replace: bool | None,
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
        or_replace=bool(or_replace),
        columns=columns,
        options=options,
        is_emit_on_window_close=bool(is_emit_on_window_close),
    )


def drop_materialized_view(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropMaterializedView:
    return DropMaterializedView(name=dropped(name), if_exists=bool(if_exists), is_cascade=bool(is_cascade))


def rebuild_materialized_view(name: Name, is_cascade: bool | None, reason: str | None) -> RebuildMaterializedView:
    return RebuildMaterializedView(name=name, is_cascade=bool(is_cascade), reason=reason)


MATERIALIZED_VIEW_RULES: dict[str, Callable[..., Any]] = {
    "create_materialized_view": create_materialized_view,
    "rebuild_materialized_view": rebuild_materialized_view,
    "drop_materialized_view": drop_materialized_view,
}
