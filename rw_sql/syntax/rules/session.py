"""Statements about parameters, confirmation and waiting; EXPLAIN, SHOW and DESCRIBE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.syntax.rules.parts import expression
from rw_sql.syntax.statements.session import AlterSystemSet, Confirm, Explain, Flush, ParameterValue, SetParameter
from rw_sql.syntax.statements.show import Describe, ShowCreate, ShowObjects, ShowSourceSplits, ShowUnsafeOperations

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.scan import Token
    from rw_sql.syntax.statements.common import Name, Statement


def alter_system_set(parameter: Token, _to: None, value: ParameterValue | None) -> AlterSystemSet:
    return AlterSystemSet(parameter=parameter.value, value=value, parameter_span=parameter.span)


def set_parameter(parameter: Token, _to: None, value: ParameterValue | None) -> SetParameter:
    return SetParameter(parameter=parameter.value, value=value, parameter_span=parameter.span)


def confirm(token: Token) -> Confirm:
    return Confirm(token=token.value, token_span=token.span)


def flush() -> Flush:
    return Flush()


def explain(statement: Statement) -> Explain:
    return Explain(statement=statement)


def words(*tokens: Token) -> str:
    """The words as a kind of object: ``MATERIALIZED VIEWS``."""
    return " ".join(token.upper for token in tokens)


def show_objects(kind: str, schema: Token | None, wanted: tuple[str, str] | None) -> ShowObjects:
    by, text = wanted or (None, None)
    return ShowObjects(
        kind=kind,
        schema=schema.value if schema is not None else None,
        like=text if by == "LIKE" else None,
        ilike=text if by == "ILIKE" else None,
        where=text if by == "WHERE" else None,
    )


def show_like(pattern: Token) -> tuple[str, str]:
    return "LIKE", pattern.value


def show_ilike(pattern: Token) -> tuple[str, str]:
    return "ILIKE", pattern.value


def show_where(condition: Token) -> tuple[str, str]:
    return "WHERE", expression(condition).text


def show_source_splits(name: Name) -> ShowSourceSplits:
    return ShowSourceSplits(name=name)


def show_unsafe_operations(name: Name | None) -> ShowUnsafeOperations:
    return ShowUnsafeOperations(name=name)


def show_create(kind: str, name: Name) -> ShowCreate:
    return ShowCreate(kind=kind, name=name)


def describe(name: Name) -> Describe:
    return Describe(name=name)


SESSION_RULES: dict[str, Callable[..., Any]] = {
    "alter_system_set": alter_system_set,
    "set_parameter": set_parameter,
    "confirm": confirm,
    "flush": flush,
    "explain": explain,
    "object_kind": words,
    "created_kind": words,
    "show_objects": show_objects,
    "show_like": show_like,
    "show_ilike": show_ilike,
    "show_where": show_where,
    "show_source_splits": show_source_splits,
    "show_unsafe_operations": show_unsafe_operations,
    "show_create": show_create,
    "describe": describe,
}
