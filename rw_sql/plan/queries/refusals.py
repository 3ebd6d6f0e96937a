"""Creates the errors for queries that cannot be run. If possible, an error points at the wrong word.

If the analysis without Spark also finds the error, its code and message are used. Therefore, ``rw-sql check`` reports
the same error as a statement that Spark has analyzed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_QUERY, SPARK_ERROR, UNDEFINED_OBJECT, SqlError
from rw_sql.model.object_lookup import RELATION_KINDS, other_than_relation
from rw_sql.model.relations import relation_of
from rw_sql.plan.queries.analysis.analyze import analyze
from rw_sql.plan.queries.analysis.findings import Column
from rw_sql.plan.queries.places import place_in_query, place_of
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.ports.queries import QueryAnalysis
    from rw_sql.syntax.statements import Query


def refused_query(
    snapshot: Snapshot, query: Query, records: Sequence[ObjectRecord], dialect: str, refused: QueryAnalysis
) -> SqlError:
    """The error for a query that Spark refuses, or that cannot be kept up to date."""
    found = None
    if refused.kind is not None:
        # Only Spark can tell whether a function is user-defined.
        is_function = refused.kind is UNDEFINED_OBJECT and not refused.relation
        missing = {refused.relation} if refused.relation else ()
        found = _first_finding(snapshot, query, records, dialect, missing=missing, knows_functions=is_function)
    if found is not None:
        return found
    kind = INVALID_QUERY if refused.kind in (None, SPARK_ERROR) else refused.kind
    return SqlError(kind, refused.refusal or "", hint=refused.hint, span=place_of(query, refused.word))


def query_without_inputs(
    snapshot: Snapshot, query: Query, dialect: str, what: str, missing: Collection[str]
) -> SqlError:
    """The error for the query of ``what`` (a kind and a name) if the query reads no relation that a stream can read.

    ``missing`` are names that neither the catalog nor Spark has.
    """
    return _first_finding(snapshot, query, (), dialect, missing=missing) or SqlError(
        INVALID_QUERY,
        f"the query of {what} reads no source, table or materialized view, and no Delta table",
        span=query.span,
        hint=f"add FROM and a relation{_such_as(snapshot)}; SHOW SOURCES and SHOW MATERIALIZED VIEWS list all sources "
        "and views",
    )


def _such_as(snapshot: Snapshot) -> str:
    names = [record.name for kind in RELATION_KINDS for record in snapshot.all(kind)]
    return f", such as FROM {sql_name(names[0])}" if names else ""


def unstorable_query(
    snapshot: Snapshot, query: Query, records: Sequence[ObjectRecord], dialect: str
) -> SqlError | None:
    """The error for a query whose columns a table cannot store; None if the analysis without Spark finds no such
    error."""
    return _first_finding(snapshot, query, records, dialect, is_stored=True)


def _may_be_function(name: str) -> bool:
    """True if a user may have defined the function ``name``. The result is False for RisingWave's functions in FROM,
    because a query that calls one of them is most probably written in RisingWave's SQL. This check is used only if
    Spark has not analyzed the query."""
    return name not in _RISINGWAVE_RELATIONS


_RISINGWAVE_RELATIONS = ("hop", "tumble", "unnest")


def _first_finding(
    snapshot: Snapshot,
    query: Query,
    records: Sequence[ObjectRecord],
    dialect: str,
    *,
    missing: Collection[str] = (),
    knows_functions: bool = False,
    is_stored: bool = False,
) -> SqlError | None:
    gone = tuple(f".{name.replace('`', '')}".lower() for name in missing)
    inputs: dict[str, Sequence[Column] | None] = {}
    for kind in RELATION_KINDS:
        inputs.update((record.name, None) for record in snapshot.all(kind))
    inputs.update((record.name, [Column(*column) for column in relation_of(record).columns]) for record in records)
    found = analyze(
        query.text,
        inputs,
        # Spark may put a catalog and a database before a name.
        is_relation=lambda name: not any(other.endswith(f".{name.lower()}") for other in gone),
        is_function=None if knows_functions else _may_be_function,
        is_stored=is_stored,
        dialect=dialect,
    ).findings
    if not found:
        return None
    first = found[0]
    span = place_in_query(query, first.offset, first.offset + first.length)
    if first.kind is UNDEFINED_OBJECT:
        other = other_than_relation(snapshot, query.text[first.offset : first.offset + first.length].lower(), span)
        if other is not None:
            return other
    return SqlError(first.kind, first.message, hint=first.hint, span=span)
