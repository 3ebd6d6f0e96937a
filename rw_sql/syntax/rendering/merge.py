"""Merges an ALTER into a stored statement. Only the options that the ALTER statement names change. Everything else
stays as written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.syntax.statements.connection import CreateConnection
from rw_sql.syntax.statements.materialized_view import CreateMaterializedView
from rw_sql.syntax.statements.sink import CreateSink
from rw_sql.syntax.statements.source import CreateSource
from rw_sql.syntax.statements.table import CreateTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.syntax.statements.common import Option, OptionKey

WithOptions = TypeVar(
    "WithOptions", bound=CreateSource | CreateTable | CreateSink | CreateConnection | CreateMaterializedView
)


def merge_options(
    statement: WithOptions, set_options: Iterable[Option], unset_keys: Iterable[OptionKey | str] = ()
) -> WithOptions:
    """Returns the statement after the change. Changed options keep their places, new options are added at the end, and
    options in UNSET are removed."""
    changed = {option.key: option for option in set_options}
    gone = {key if isinstance(key, str) else key.key for key in unset_keys}
    kept = [changed.pop(option.key, option) for option in statement.options if option.key not in gone]
    return replace(statement, options=(*kept, *changed.values()))
