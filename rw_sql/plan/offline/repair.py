"""Removes or corrects the part of a statement that causes an error. The check can then find further errors in the
statement, and later statements can find the object that the statement creates."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.formats import CONNECTION, LOCATION
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.connectors.schemas.client import ADDRESSES
from rw_sql.errors import (
    DUPLICATE_CLAUSE,
    MISSING_PROPERTY,
    NOT_ALTERABLE,
    UNKNOWN_PROPERTY,
    UNSUPPORTED_TYPE,
    near_names,
)
from rw_sql.model.definitions import connector_of
from rw_sql.syntax.statements import (
    ColumnDefinition,
    CreateSink,
    CreateSource,
    CreateTable,
    DataType,
    FormatEncode,
    IncludeColumn,
    Option,
    OptionKey,
    SecretValue,
    TableConstraint,
    TextValue,
    Watermark,
)

if TYPE_CHECKING:
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.errors import Span, SqlError
    from rw_sql.syntax.statements import Statement

_PARTS = (Option, OptionKey, ColumnDefinition, IncludeColumn, TableConstraint, Watermark)
_AS_JSON = FormatEncode(format="PLAIN", encode="JSON")
_SCHEMA_PLACES = (ADDRESSES, CONNECTION, LOCATION)
_TEXT = DataType(name="CHARACTER VARYING")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A statement in which one error has been repaired.

    ``hides_columns`` is True if the repair removed a column. The created object then lacks a column that the user
    intended.

    If the repair removed an option, ``removed`` is the option's key; otherwise None.
    """

    statement: Statement
    hides_columns: bool = False
    removed: str | None = None


def repaired(statement: Statement, error: SqlError) -> Repair | None:
    """Returns the statement after the option, column or clause to which an error points has been removed or corrected.
    Returns None if the error does not point to an option, column or clause."""
    if error.span is None or error.kind is MISSING_PROPERTY:
        return None
    changed = _without(statement, statement, error)
    if changed is None:
        return None
    mended, removed = changed
    if mended == statement:
        return None
    is_column = isinstance(removed, ColumnDefinition | IncludeColumn)
    key = removed.key if isinstance(removed, Option | OptionKey) else None
    left = {option.key for option in getattr(mended, "options", ())}
    is_left_out = key is not None and key not in left and error.kind is not UNKNOWN_PROPERTY
    return Repair(statement=mended, hides_columns=is_column, removed=key if is_left_out else None)


def is_of_a_part(statement: Statement, error: SqlError) -> bool:
    """True if an error points to an option, a column or a clause. False if it points to the statement as a whole."""
    return error.span is not None and _without(statement, statement, error) is not None


def _without(whole: Statement, holder: Any, error: SqlError) -> tuple[Any, object] | None:
    """Repairs the part of ``holder`` to which an error points. Returns ``holder`` with the repaired part, and the
    original part."""
    for slot in fields(holder):
        value = getattr(holder, slot.name)
        if isinstance(value, tuple):
            for at, part in enumerate(value):
                if not hasattr(part, "__dataclass_fields__"):
                    break
                if isinstance(part, _PARTS) and _points_at(part, error):
                    instead = _instead(whole, part, value, error)
                    return replace(holder, **{slot.name: (*value[:at], *instead, *value[at + 1 :])}), part
                found = _without(whole, part, error) if not isinstance(part, _PARTS) else None
                if found is not None:
                    return replace(holder, **{slot.name: (*value[:at], found[0], *value[at + 1 :])}), found[1]
        elif isinstance(value, FormatEncode):
            if error.span == value.span and value != _AS_JSON:
                return replace(holder, **{slot.name: _AS_JSON}), value
            found = _without(whole, value, error)
            if found is not None:
                # Without the option that locates the schema, the format would cause another error, so plain JSON
                # replaces the format.
                is_place = isinstance(found[1], Option) and found[1].key in _SCHEMA_PLACES
                return replace(holder, **{slot.name: _AS_JSON if is_place else found[0]}), found[1]
    return None


def _points_at(part: Any, error: SqlError) -> bool:
    if isinstance(part, TableConstraint) and part.kind == "PRIMARY KEY":
        return False  # If the key were removed, the table would cause another error.
    spans: list[Span] = [part.span]
    if isinstance(part, Option):
        spans += part.places
    if isinstance(part, ColumnDefinition):
        spans += [found.span for found in (part.generated, part.default) if found is not None]
    if isinstance(part, Watermark):
        spans.append(part.expression.span)
    return error.span in spans and error.span is not None and error.span.end > error.span.start


def _instead(whole: Statement, part: Any, siblings: tuple[Any, ...], error: SqlError) -> tuple[Any, ...]:
    match part:
        case Option():
            return _instead_of_option(whole, part, siblings, error)
        case ColumnDefinition() if error.kind is DUPLICATE_CLAUSE:
            return ()
        case ColumnDefinition() if error.kind is UNSUPPORTED_TYPE:
            return (replace(part, data_type=_TEXT),)
        case ColumnDefinition():
            plain = replace(
                part, field=None, generated=None, default=None, is_not_null=False, is_primary_key=False,
                other_constraints=(),
            )  # fmt: skip
            return (plain,) if plain != part else ()
        case _:
            return ()


def _instead_of_option(
    whole: Statement, option: Option, siblings: tuple[Option, ...], error: SqlError
) -> tuple[Option, ...]:
    """Returns the option with its misspelt name corrected; for the option ``connector``, returns the option with its
    misspelt value corrected.

    Returns an empty tuple if the option must be removed. This is the case if the correct name is already used, if no
    similar name exists, or if the error is not about a misspelling.
    """
    if option.key == "connector":
        names = sink_connector_names() if isinstance(whole, CreateSink) else connector_names()
        near = near_names(option.value.text.lower(), names) if isinstance(option.value, TextValue) else []
        return (replace(option, value=TextValue(text=near[0], span=option.value.span)),) if near else ()
    if error.kind is UNKNOWN_PROPERTY:
        spec = _spec_of(whole)
        near = spec.near(option.key) if spec is not None else []
        taken = {each.key for each in siblings}
        return (replace(option, key=near[0]),) if near and near[0] not in taken else ()
    if error.kind is NOT_ALTERABLE or isinstance(option.value, SecretValue):
        return ()
    return ()


def _spec_of(statement: Statement) -> ConnectorSpec | None:
    if not isinstance(statement, CreateSource | CreateTable | CreateSink):
        return None
    name = connector_of(statement)
    if isinstance(statement, CreateSink):
        return sink_connector(name).spec if name in sink_connector_names() else None
    return connector(name).spec if name in connector_names() else None
