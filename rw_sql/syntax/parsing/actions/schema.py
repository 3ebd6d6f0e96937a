"""Actions for the statements about schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.syntax.parsing.actions.parts import dropped
from rw_sql.syntax.statements.schema import CreateSchema, DropSchema, UseSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.statements.common import Name


def create_schema(if_not_exists: bool | None, name: Name) -> CreateSchema:
    return CreateSchema(name=name, if_not_exists=bool(if_not_exists))


def drop_schema(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropSchema:
    return DropSchema(name=dropped(name), if_exists=bool(if_exists), is_cascade=bool(is_cascade))


def use_schema(name: Name) -> UseSchema:
    return UseSchema(name=name)


SCHEMA_RULES: dict[str, Callable[..., Any]] = {
    "create_schema": create_schema,
    "drop_schema": drop_schema,
    "use_schema": use_schema,
}
