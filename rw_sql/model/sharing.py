"""Determines whether a source has one shared reader or a separate direct reader for each view.

CREATE SOURCE makes this choice, which no later statement can change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.changes import ChangeConnector
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.errors import CONNECTOR_IS_FIXED, INVALID_PROPERTY, SqlError
from rw_sql.model.definitions import has_schema, option_text
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import Option, OptionKey, TextValue

if TYPE_CHECKING:
    from rw_sql.connectors.base import Connector
    from rw_sql.syntax.statements import CreateSource

SHARED = "shared"
"""The name of the property of a source that chooses between one reader for all views (``true``) and a direct reader for
each view (``false``)."""


def is_to_be_shared(statement: CreateSource, kind: Connector) -> bool:
    """True if the statement creates a shared source. Raises SqlError if the source does not support the value of the
    property ``shared``."""
    for option in statement.options:
        if option.key == SHARED:
            is_shared = option_text(option.value).strip().lower() == "true"
            if is_shared and not kind.is_shareable():
                raise SqlError(
                    INVALID_PROPERTY,
                    f"a source of connector '{kind.spec.name}' cannot be shared",
                    span=option.value.span,
                    hint="omit the property: each view then reads the source separately",
                )
            if not is_shared and isinstance(kind, ChangeConnector):
                raise SqlError(
                    INVALID_PROPERTY,
                    f"a source of connector '{kind.spec.name}' is always shared: one reader reads all changes",
                    span=option.value.span,
                    hint="omit the property",
                )
            if not is_shared and has_schema(statement):
                raise SqlError(
                    INVALID_PROPERTY,
                    "a source with a schema registry is shared: its reader asks the registry before each batch",
                    span=option.value.span,
                    hint="omit the property",
                )
            return is_shared
    return kind.is_shareable()


def with_sharing(statement: CreateSource, kind: Connector, *, is_shared: bool) -> CreateSource:
    """Returns the statement. Adds ``shared = 'false'`` to it if the session's setting ``is_shared`` is false.

    Returns the statement unchanged if it already has the property ``shared``, or if the session's setting does not
    apply to the source. For example, a source with a schema registry is always shared.
    """
    if (
        is_shared
        or isinstance(kind, RangedConnector | ChangeConnector)
        or not kind.is_shareable()
        or has_schema(statement)
        or any(option.key == SHARED for option in statement.options)
    ):
        return statement
    said = Option(key=SHARED, value=TextValue(text="false", span=statement.span), span=statement.span)
    return replace(statement, options=(*statement.options, said))


def refuse_sharing(name: str, options: tuple[Option | OptionKey, ...]) -> None:
    """Raises SqlError if the options of an ALTER statement include ``shared``, because no statement can change this
    property."""
    for option in options:
        if option.key == SHARED:
            raise SqlError(
                CONNECTOR_IS_FIXED,
                f'whether source "{name}" is shared cannot change',
                span=option.key_place,
                hint=f"CREATE SOURCE {sql_name(name + '_2')} (…) WITH (shared = …); views can read both sources",
            )
