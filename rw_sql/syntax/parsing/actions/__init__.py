"""Contains the actions of grammar rules. An action is a function for one rule, or for one alias of a rule. The function
computes the rule's value from the values of the rule's parts.

The value of a rule without a function is the value of the rule's only part, or None if the rule's parts have no value.

From ``syntax``, this package imports ``statements``, ``sql_reader`` and ``lexing``. Begin with the module for one kind
of statement: ``source``, ``table``, ``sink``, …
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.syntax.parsing.actions.alter import ALTER_RULES
from rw_sql.syntax.parsing.actions.checkpoint import CHECKPOINT_RULES
from rw_sql.syntax.parsing.actions.columns import COLUMN_RULES
from rw_sql.syntax.parsing.actions.connection import CONNECTION_RULES
from rw_sql.syntax.parsing.actions.materialized_view import MATERIALIZED_VIEW_RULES
from rw_sql.syntax.parsing.actions.parts import PART_RULES
from rw_sql.syntax.parsing.actions.schema import SCHEMA_RULES
from rw_sql.syntax.parsing.actions.session import SESSION_RULES
from rw_sql.syntax.parsing.actions.sink import SINK_RULES
from rw_sql.syntax.parsing.actions.source import SOURCE_RULES
from rw_sql.syntax.parsing.actions.table import TABLE_RULES
from rw_sql.syntax.parsing.actions.types import TYPE_RULES

if TYPE_CHECKING:
    from collections.abc import Callable

RULES: dict[str, Callable[..., Any]] = {
    **ALTER_RULES,
    **COLUMN_RULES,
    **CONNECTION_RULES,
    **MATERIALIZED_VIEW_RULES,
    **PART_RULES,
    **CHECKPOINT_RULES,
    **SCHEMA_RULES,
    **SESSION_RULES,
    **SINK_RULES,
    **SOURCE_RULES,
    **TABLE_RULES,
    **TYPE_RULES,
}
