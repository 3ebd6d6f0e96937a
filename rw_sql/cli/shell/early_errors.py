"""Determines errors and empty results without Spark and without an upstream, for statements that are typed while Spark
is starting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import (
    DUPLICATE_OBJECT,
    INVALID_OPTION,
    INVALID_PARAMETER,
    INVALID_PROPERTY,
    MISSING_PROPERTY,
    NOT_SUPPORTED,
    UNDEFINED_OBJECT,
    UNDEFINED_SCHEMA,
    UNKNOWN_OPTION,
    UNKNOWN_PARAMETER,
    UNKNOWN_PROPERTY,
    WRONG_KIND,
    SqlError,
)
from rw_sql.metastore import Snapshot
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.lower import lower
from rw_sql.plan.offline.inspector import OfflineInspector, OfflineJobs, Unanswerable
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.spark_words import could_be_sparks
from rw_sql.syntax.near_statements import near_statement
from rw_sql.syntax.parsing.script import refuse_invisible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.plan.result.plan import Table
    from rw_sql.syntax.statements import Statement

_CERTAIN = frozenset({
    DUPLICATE_OBJECT, INVALID_OPTION, INVALID_PARAMETER, INVALID_PROPERTY, MISSING_PROPERTY, NOT_SUPPORTED,
    UNDEFINED_OBJECT, UNDEFINED_SCHEMA, UNKNOWN_OPTION, UNKNOWN_PARAMETER, UNKNOWN_PROPERTY, WRONG_KIND,
})  # fmt: skip
"""The codes of errors that can be found with nothing but the catalog and the statement."""

_WITH_QUERY = ast.CreateMaterializedView | ast.AlterMaterializedViewQuery | ast.CreateSink
_EMPTY = Snapshot()


def refuse_unparsed(text: str) -> None:
    """Raises SqlError for a statement that neither rw_sql nor Spark accepts. Only two kinds of statements are refused:
    a statement with an invisible character, and a statement that is similar to a known statement. Any other text may be
    a statement of a Spark extension.
    """
    refuse_invisible(text)
    error = None if could_be_sparks(text) else near_statement(text, SESSION_PARAMETERS)
    if error is not None:
        raise error.located(text)


def refuse_unplanned(statement: Statement, snapshot: Snapshot) -> None:
    """Raises SqlError if the catalog alone shows that a statement is wrong, for example because the statement names an
    object that does not exist.

    A query may read Spark's tables, so statements with a query are not checked.
    """
    if isinstance(statement, _WITH_QUERY) and statement.query is not None:
        return
    try:
        lower(statement, snapshot, OfflineInspector(snapshot))
    except Unanswerable:
        pass
    except SqlError as error:
        if error.kind in _CERTAIN:
            raise


def answer_for_new(statement: Statement) -> Table | None:
    """Returns the rows of a statement that reads the catalog of a warehouse that does not exist yet; None if the rows
    depend on anything except the catalog."""
    try:
        return lower(statement, _EMPTY, _NewWarehouse(_EMPTY)).table
    except Unanswerable:
        return None


class _NewWarehouse(OfflineInspector):
    """The Inspector of a warehouse that does not exist yet. Such a warehouse has no jobs."""

    @property
    def jobs(self) -> _NoJobs:
        return _NoJobs()


class _NoJobs(OfflineJobs):
    def backfills(self) -> Mapping[str, BackfillProgress]:
        return {}
