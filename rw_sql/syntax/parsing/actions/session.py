"""Actions for the statements about parameters, confirmation and waiting, and for EXPLAIN, SHOW and DESCRIBE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import SYNTAX_ERROR, SqlError
from rw_sql.syntax.parsing.actions.columns import one_of
from rw_sql.syntax.parsing.actions.parts import expression, whole, words
from rw_sql.syntax.statements.common import NOWHERE, TextValue
from rw_sql.syntax.statements.session import (
    AlterSystemSet,
    BeginTransaction,
    BeginUnsafe,
    CancelJobs,
    Commit,
    Confirm,
    Explain,
    Flush,
    ParameterValue,
    Recover,
    Rollback,
    SetParameter,
    SetTimeZone,
    UndoOperation,
    Wait,
)
from rw_sql.syntax.statements.show import (
    Describe,
    DescribeFragment,
    DescribeFragments,
    ShowColumns,
    ShowCreate,
    ShowLineage,
    ShowMetrics,
    ShowObjects,
    ShowParameter,
    ShowSourceContinuity,
    ShowSourceSplits,
    ShowUnsafeOperations,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.statements.common import Name, Statement, WordValue


def alter_system_set(parameter: Token, _to: None, values: tuple[ParameterValue, ...] | None) -> AlterSystemSet:
    if values is not None and len(values) > 1:
        raise SqlError(
            SYNTAX_ERROR, "a system parameter takes one value", span=values[1].span, hint="omit the second value"
        )
    return AlterSystemSet(parameter=parameter.value, value=values[0] if values else None, parameter_span=parameter.span)


def set_parameter(
    is_local: bool | None, parameter: Token, _to: None, values: tuple[ParameterValue, ...] | None
) -> SetParameter:
    return SetParameter(
        parameter=parameter.value,
        value=values[0] if values else None,
        more_values=values[1:] if values else (),
        is_local=bool(is_local),
        parameter_span=parameter.span,
    )


def set_time_zone(is_local: bool | None, zone: TextValue | WordValue | None) -> SetTimeZone:
    return SetTimeZone(zone=zone, is_local=bool(is_local))


def interval_zone(text: Token) -> TextValue:
    """``INTERVAL '+00:00' HOUR TO MINUTE``, a time zone in the form that JDBC drivers send."""
    if text.value != "+00:00":
        raise SqlError(SYNTAX_ERROR, 'only support "+00:00"', span=text.span, hint="INTERVAL '+00:00' HOUR TO MINUTE")
    return TextValue(text="UTC", span=text.span)


def begin_unsafe(reason: str | None) -> BeginUnsafe:
    return BeginUnsafe(reason=reason)


def begin_transaction(*words: None) -> BeginTransaction:
    return BeginTransaction(is_start=not words)


def commit(_word: None) -> Commit:
    return Commit()


def rollback(_word: None) -> Rollback:
    return Rollback()


def undo_operation(operation: Token, allow: tuple[str, ...], reason: str | None) -> UndoOperation:
    return UndoOperation(operation=whole(operation), allow=allow, reason=reason, operation_span=operation.span)


def wait_all() -> Wait:
    return Wait()


def wait(kind: str, name: Name) -> Wait:
    return Wait(kind=kind, name=name)


def recover() -> Recover:
    return Recover()


def cancel_jobs(ids: tuple[int, ...]) -> CancelJobs:
    return CancelJobs(ids=ids)


def confirm(token: Token) -> Confirm:
    return Confirm(token=token.value, token_span=token.span)


def flush() -> Flush:
    return Flush()


def explain(is_analyze: bool | None, options: tuple[str, ...], statement: Statement) -> Explain:
    if isinstance(statement, Explain):
        raise SqlError(SYNTAX_ERROR, "EXPLAIN is given twice", hint="omit one EXPLAIN")
    return Explain(statement=statement, is_analyze=bool(is_analyze), options=options)


def explain_options(*options: str) -> tuple[str, ...]:
    return options


_EXPLAIN_FORMATS = ("TEXT", "JSON", "MERMAID", "SVG", "XML", "YAML", "DOT")


def explain_option(word: Token, value: Token | str | None = None) -> str:
    if word.upper == "FORMAT" and not isinstance(value, str) and value is not None:
        return f"FORMAT {one_of(value, _EXPLAIN_FORMATS, 'expected a format')}"
    if value is None or value == "":
        return word.upper
    return f"{word.upper} {value if isinstance(value, str) else value.upper}"


def show_objects(kind: str, schema: Token | None, wanted: tuple[str, str] | None) -> ShowObjects:
    by, text = wanted or (None, None)
    return ShowObjects(
        kind=kind,
        schema=schema.value if schema is not None else None,
        schema_span=schema.span if schema is not None else NOWHERE,
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


def show_other_objects(kind: str, wanted: tuple[str, str] | None) -> ShowObjects:
    return show_objects(kind, None, wanted)


def show_columns(kind: str, name: Name, wanted: tuple[str, str] | None) -> ShowColumns:
    by, text = wanted or (None, None)
    return ShowColumns(
        kind=kind,
        name=name,
        like=text if by == "LIKE" else None,
        ilike=text if by == "ILIKE" else None,
        where=text if by == "WHERE" else None,
    )


def show_source_splits(name: Name) -> ShowSourceSplits:
    return ShowSourceSplits(name=name)


def show_unsafe_operations(name: Name | None) -> ShowUnsafeOperations:
    return ShowUnsafeOperations(name=name)


def show_create(kind: str, name: Name) -> ShowCreate:
    return ShowCreate(kind=kind, name=name)


def show_source_continuity(name: Name) -> ShowSourceContinuity:
    return ShowSourceContinuity(name=name)


def show_metrics() -> ShowMetrics:
    return ShowMetrics()


def show_lineage(name: Name | None) -> ShowLineage:
    return ShowLineage(name=name)


def show_parameter(name: Name) -> ShowParameter:
    return ShowParameter(parameter=str(name))


def show_all() -> ShowParameter:
    return ShowParameter(parameter="all")


def show_time_zone() -> ShowParameter:
    return ShowParameter(parameter="time zone")


def show_isolation() -> ShowParameter:
    return ShowParameter(parameter="transaction isolation level")


def describe_fragments(name: Name) -> DescribeFragments:
    return DescribeFragments(name=name)


def describe_fragment(number: Token) -> DescribeFragment:
    return DescribeFragment(id=whole(number))


def describe(name: Name) -> Describe:
    return Describe(name=name)


SESSION_RULES: dict[str, Callable[..., Any]] = {
    "alter_system_set": alter_system_set,
    "set_parameter": set_parameter,
    "set_time_zone": set_time_zone,
    "interval_zone": interval_zone,
    "begin_unsafe": begin_unsafe,
    "begin_transaction": begin_transaction,
    "commit": commit,
    "rollback": rollback,
    "confirm": confirm,
    "undo_operation": undo_operation,
    "flush": flush,
    "wait_all": wait_all,
    "wait": wait,
    "waited_kind": words,
    "recover": recover,
    "cancel_jobs": cancel_jobs,
    "explain": explain,
    "explain_options": explain_options,
    "explain_option": explain_option,
    "switched": words,
    "schema_kind": words,
    "other_kind": words,
    "part_kind": words,
    "created_kind": words,
    "show_objects": show_objects,
    "show_other_objects": show_other_objects,
    "show_columns": show_columns,
    "show_like": show_like,
    "show_ilike": show_ilike,
    "show_where": show_where,
    "show_source_splits": show_source_splits,
    "show_source_continuity": show_source_continuity,
    "show_unsafe_operations": show_unsafe_operations,
    "show_metrics": show_metrics,
    "show_lineage": show_lineage,
    "show_create": show_create,
    "show_parameter": show_parameter,
    "show_all": show_all,
    "show_time_zone": show_time_zone,
    "show_isolation": show_isolation,
    "describe": describe,
    "describe_fragments": describe_fragments,
    "describe_fragment": describe_fragment,
}
