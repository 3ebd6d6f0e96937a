"""Converts Spark's exceptions to rw_sql's errors, which are shorter, contain the position in the statement, and suggest
similar names."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from rw_sql.errors import SPARK_ERROR, Span, SqlError
from rw_sql.model.object_lookup import RELATION_KINDS
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.model.relations import relation_of
from rw_sql.runtime.spark.jvm import java_session
from rw_sql.syntax.dialect.spark_faults import KnownNames, SparkFault, spark_error
from rw_sql.syntax.lexing.identifiers import PUBLIC
from rw_sql.syntax.lexing.tokens import span_of
from rw_sql.syntax.parsing.script import refuse_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord

# For failures of analysis and parsing, Spark appends the place to its message and counts from 0. For a running query,
# Spark puts the place in a heading after the message and counts from 1.
_PLACE = re.compile(r"[;\s]*\(?line (\d+),? pos (\d+)\)?")
_HEADING = re.compile(r"\s*== SQL[^=]*\(line (\d+), position (\d+)\) ==")
_BEHIND = re.compile(r"\n\n|\nJVM stacktrace|\n== SQL")
_PART = re.compile(r"`((?:[^`]|``)+)`")
_WORD = re.compile(r"[\w$]+|`[^`]*`|\S")


def known_names(spark: SparkSession, read_catalog: Callable[[], Snapshot] | None = None) -> KnownNames:
    """The names to which a statement of a session may refer. ``read_catalog`` returns the warehouse's catalog; if it is
    None, the result contains only Spark's names."""

    def catalog() -> Snapshot | None:
        try:
            return None if read_catalog is None else read_catalog()
        except (SqlError, OSError):  # If the catalog cannot be read, the error of the statement matters more.
            return None

    def records(*kinds: str) -> list[ObjectRecord]:
        snapshot = catalog()
        return [] if snapshot is None else [record for kind in kinds for record in snapshot.all(kind)]

    def own() -> list[str]:
        return sorted({record.name for record in records(*RELATION_KINDS)})

    def others() -> dict[str, str]:
        return {record.name: record.kind for record in records("connection", "sink")}

    def relations() -> list[str]:
        try:
            tables = java_session(spark).sessionState().catalog()
            return [*own(), *_last_parts(tables.listTables(tables.getCurrentDatabase()))]
        except (PySparkException, Py4JError):
            return own()

    def functions() -> list[str]:
        try:
            return _last_parts(java_session(spark).sessionState().functionRegistry().listFunction())
        except (PySparkException, Py4JError):
            return []

    def columns(relation: str) -> list[str]:
        try:
            return [str(name) for name in java_session(spark).table(relation).columns()]
        except (PySparkException, Py4JError):  # A source is in Spark only while a query reads it.
            key = relation.replace("`", "").casefold().removeprefix("default.").removeprefix(f"{PUBLIC}.")
            found = next((record for record in records(*RELATION_KINDS) if record.name.casefold() == key), None)
            return [] if found is None else [name for name, _ in relation_of(found).columns]

    def is_database(name: str) -> bool:
        try:
            state = java_session(spark).sessionState()
            return bool(state.catalog().databaseExists(name) or state.catalogManager().isCatalogRegistered(name))
        except (PySparkException, Py4JError):
            return True

    return KnownNames(
        relations=relations,
        functions=functions,
        others=others,
        columns=columns,
        is_database=is_database,
        parameters=tuple(SESSION_PARAMETERS),
    )


def _last_parts(identifiers: Any) -> list[str]:
    """The names in a JVM sequence of identifiers, read in one call.

    This function does not use a SQL statement, because a statement would notify query listeners.
    """
    return [line.rpartition(".")[2].strip("`") for line in str(identifiers.mkString("\n")).splitlines()]


def missing_relation(error: AnalysisException) -> list[str]:
    """The parts of the name, as written in the statement, of the table or view that Spark did not find. Empty if the
    error has another cause."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return []
    name = (error.getMessageParameters() or {}).get("relationName", "")
    return [part.replace("``", "`") for part in _PART.findall(name)]


def as_sql_error(error: PySparkException, text: str, known: KnownNames) -> SqlError:
    """Converts Spark's error for a statement to an rw_sql error that is located in the statement's text."""
    try:
        refuse_invisible(text)
    except SqlError as invisible:
        return invisible.located(text)
    told = query_error(error, text, known)
    told.span = told.span or _word_at(text, 1, 0)
    return told


def query_error(error: PySparkException, text: str, known: KnownNames) -> SqlError:
    """Does the same as :func:`as_sql_error`, but the result has no span if Spark's error has no position."""
    if isinstance(error, CapturedException):
        return spark_error(_fault_of(error, text), text, known)
    told = str(error).strip()
    place = _PLACE.search(told) or _HEADING.search(told)
    message = told[: place.start()] if place else _BEHIND.split(told)[0]
    return SqlError(SPARK_ERROR, message, span=_span(error, told, text)).located(text)


def _fault_of(error: CapturedException, text: str) -> SparkFault:
    """The condition, the parameters and the message of an error, and the error's position in the statement ``text``."""
    told = str(error).strip()
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    message = told
    if condition:
        with suppress(Py4JError):  # Spark has no templates for the messages of other libraries, such as Delta Lake
            message = error.getMessage()
    return SparkFault(condition=condition, parameters=parameters, message=message, span=_span(error, told, text))


def _span(error: PySparkException, told: str, text: str) -> Span | None:
    """The position of the error's context in the text. If the error has no context, the result is the position of the
    word at the error's line and column."""
    for start, fragment in _contexts(error):
        # Java counts in units of UTF-16.
        at = len(text.encode("utf-16-le")[: 2 * start].decode("utf-16-le", "ignore"))
        if fragment and text[at : at + len(fragment)] == fragment:
            return span_of(text, at, at + len(fragment))
    if place := _PLACE.search(told):
        return _word_at(text, int(place[1]), int(place[2]))
    if place := _HEADING.search(told):
        return _word_at(text, int(place[1]), int(place[2]) - 1)
    return None


def _contexts(error: PySparkException) -> list[tuple[int, str]]:
    """The fragments of the statement to which an error refers, each with its start position.

    Fragments of view definitions are left out.
    """
    found = []
    try:
        for context in error.getQueryContext():
            if not context.objectType():
                found.append((context.startIndex(), context.fragment()))
    except (Py4JError, PySparkException, TypeError, AttributeError):
        return found
    return found


def _word_at(text: str, line: int, position: int) -> Span | None:
    """The word that starts at a 1-based line and a 0-based column; None if the text has no such position."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines) or not 0 <= position <= len(lines[line - 1]):
        return None
    start = sum(len(before) + 1 for before in lines[: line - 1]) + position
    word = _WORD.match(text, start)
    return span_of(text, start, word.end() if word else start + 1)


@cache
def _both(kind: type[PySparkException]) -> type[SqlError]:
    """Returns a class that inherits both from ``kind``, an error class of Spark, and from SqlError. A user's code that
    catches Spark's class therefore also catches the converted error."""
    return cast("type[SqlError]", type(kind.__name__, (SqlError, kind), {"__module__": kind.__module__}))


@contextmanager
def readable_errors(
    spark: SparkSession, text: str, read_catalog: Callable[[], Snapshot] | None = None
) -> Iterator[None]:
    """A context manager that converts Spark's errors. The converted error is an instance of Spark's class and of
    SqlError, with a message in rw_sql's form."""
    try:
        yield
    except CapturedException as error:
        if isinstance(error, SqlError):
            raise
        raise _readable(error, as_sql_error(error, text, known_names(spark, read_catalog))) from None


def _readable(error: CapturedException, told: SqlError) -> SqlError:
    kind: Any = type(error)
    both: Any = _both(kind).__new__(_both(kind), told.message)
    both.__dict__.update(error.__dict__)
    both.__dict__.update(told.__dict__)
    return cast("SqlError", both)
