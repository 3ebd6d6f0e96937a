"""Whether a source has one reader for all its views, or each view its own: said once, when the source is made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.ranged import RangedConnector
from rw_sql.errors import CONNECTOR_IS_FIXED, INVALID_PROPERTY, SqlError
from rw_sql.model.definitions import option_text
from rw_sql.syntax.statements import Option, OptionKey, TextValue

if TYPE_CHECKING:
    from rw_sql.connectors.base import Connector
    from rw_sql.syntax.statements import CreateSource

SHARED = "shared"
"""The property: ``WITH (shared = 'false')``."""


def is_to_be_shared(statement: CreateSource, kind: Connector) -> bool:
    """Whether a definition makes a shared source. Raises SqlError where the connector cannot have one."""
    for option in statement.options:
        if option.key == SHARED:
            is_shared = option_text(option.value).strip().lower() == "true"
            if is_shared and not kind.is_shareable():
                raise SqlError(
                    INVALID_PROPERTY,
                    f"a source of connector '{kind.spec.name}' cannot be shared",
                    span=option.value.span,
                    hint="leave the property out: each view then reads the source by itself",
                )
            return is_shared
    return kind.is_shareable()


def with_sharing(statement: CreateSource, kind: Connector, *, is_shared: bool) -> CreateSource:
    """The definition that makes such a source anywhere: a session's wish that is no default is written into it."""
    if (
        is_shared
        or isinstance(kind, RangedConnector)
        or not kind.is_shareable()
        or any(option.key == SHARED for option in statement.options)
    ):
        return statement
    said = Option(key=SHARED, value=TextValue(text="false", span=statement.span), span=statement.span)
    return replace(statement, options=(*statement.options, said))


def refuse_sharing(name: str, options: tuple[Option | OptionKey, ...]) -> None:
    """Raises SqlError where a statement would change it."""
    for option in options:
        if option.key == SHARED:
            raise SqlError(
                CONNECTOR_IS_FIXED,
                f'whether source "{name}" is shared cannot change',
                span=option.span,
                hint="create another source; views can be made on it while this one runs",
            )
