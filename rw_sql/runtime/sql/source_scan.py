"""Implements ``SELECT … FROM source`` in plain Spark. Such a query reads the upstream once and stores nothing. The
query reads each split from the position that the source's startup mode determines up to the split's present end.

While Spark plans the query, a temporary view represents the source. The predicates in the plan show which part of the
upstream the query needs. Spark then plans the query again, and the new plan reads only this part.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from rw_sql.connectors.base import TermConnector, look_anew, missing_hint
from rw_sql.connectors.fetching import UnreadableRecordError
from rw_sql.connectors.registry import connector, sends_once
from rw_sql.connectors.support.startup_mode import MODE
from rw_sql.errors import (
    NOT_SUPPORTED,
    PACKAGE_MISSING,
    STORE_UNREACHABLE,
    UPSTREAM_MISSING,
    UPSTREAM_UNREACHABLE,
    SqlError,
)
from rw_sql.model.backfill_ranges import History
from rw_sql.model.definitions import definition_of, source_columns
from rw_sql.model.offset_ranges import same_incarnation
from rw_sql.model.options import source_options, visible
from rw_sql.model.startup import births_in_doubt
from rw_sql.plan.checks.upstreams import require_usable
from rw_sql.plan.queries.scan_bounds import ScanBounds, below, bounds_of, hull, narrowed
from rw_sql.plan.statements.table.source_of_table import added_fields
from rw_sql.runtime.decoding.decoder import ERROR, decode
from rw_sql.runtime.decoding.upstream_records import packages_of, packages_on_executors, read_records
from rw_sql.runtime.spark.executor_pythons import LIBRARIES
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.spark.interrupts import shielded
from rw_sql.runtime.spark.jvm import (
    analyzed_plan,
    java_class,
    java_session,
    optimized_plan,
    parsed_plan,
    time_zone_of_texts,
)
from rw_sql.runtime.spark.sessions import activate_in_jvm
from rw_sql.runtime.sql.source_logs import readable_log
from rw_sql.runtime.support.failures import StalledError
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import Connector, Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context

_OF_SPARKS_READER, _OF_OUR_READERS = frozenset({"topic", "partition", "offset", "timestamp"}), frozenset({"_rw_offset"})
"""The columns by which the output of a reader is recognized in a query plan: first for Spark's Kafka source, then for
rw_sql's readers."""

_OPAQUE = ("ExplainCommand", "UnresolvedExecuteImmediate", "PlanWithUnresolvedIdentifier", "CreateTableLike")
"""Plan nodes that may refer to relations that the plan's text does not show: each of these nodes contains another
statement, or computes a name with an expression."""

_WORD = re.compile(r"\w[\w$]*|`(?:[^`]|``)+`")

_making = threading.Lock()
_scanning: WeakKeyDictionary[SparkSession, AbstractContextManager[bool]] = WeakKeyDictionary()
"""For each session, the lock that a thread holds while sources exist as temporary views in the session. Without the
lock, another thread would mistake the temporary view of a source for a view of the user, although the view contains
only the records that one query needs."""


def sources_in(snapshot: Snapshot, text: str) -> tuple[SourceRecord, ...]:
    """Returns the sources whose names occur among the words of a Spark statement. The statement cannot read any other
    source.

    Sources that were created for a table (CREATE TABLE with a connector) are left out, because their names refer to the
    tables.
    """
    if not snapshot.kinds.get("source"):
        return ()
    words = {(word[1:-1].replace("``", "`") if word.startswith("`") else word).lower() for word in _WORD.findall(text)}
    known = _folded(snapshot)
    found = (known.get(name) for name in sorted(words))
    return tuple(source for source in found if source is not None and snapshot.table_of(source.id) is None)


_newest: tuple[Snapshot, dict[str, SourceRecord]] | None = None
"""A cache of the latest snapshot's sources, by their names in lower case. Without the cache, each statement would
iterate over all sources, of which there may be ten thousand."""


def _folded(snapshot: Snapshot) -> dict[str, SourceRecord]:
    global _newest
    found = _newest
    if found is None or found[0] is not snapshot:
        found = _newest = (snapshot, {source.name.lower(): source for source in reversed(snapshot.all("source"))})
    return found[1]


@dataclass(slots=True)
class SourceScan:
    """One source in a Spark query, with the range of offsets to read in each split. A range starts at the offset that
    the startup mode determines, and ends at the upstream's end at the time of the request."""

    context: Context
    source: SourceRecord
    kind: Connector
    options: Mapping[str, str]
    ranges: Mapping[str, tuple[int, int]]
    lives: Mapping[str, str | None]

    @staticmethod
    def at(context: Context, snapshot: Snapshot, source: SourceRecord) -> SourceScan:
        """Requests the splits of the upstream and determines their ranges. Raises SqlError if the upstream does not
        respond, if it lacks a part that the source names, or if a split has no end because its rows are generated."""
        kind = connector(source.connector)
        if sends_once(source.connector):
            return SourceScan(context=context, source=source, kind=kind, options={}, ranges={}, lives={})
        options = context.options_of(source, snapshot)
        upstream = look_anew(kind, options)
        require_usable(upstream, f'the upstream of source "{source.name}"')
        if upstream.error is not None:
            raise _silent(source, upstream.error)
        if upstream.missing:
            raise SqlError(
                UPSTREAM_MISSING,
                f'the upstream of source "{source.name}" has no {upstream.part} "{upstream.missing[0]}"',
                hint=missing_hint(upstream.missing[0], upstream.present, upstream.remedy),
            )
        if any(split.is_endless for split in upstream.splits.values()):
            raise SqlError(
                NOT_SUPPORTED,
                f'source "{source.name}" has no end: its rows are generated while they are read',
                hint="CREATE MATERIALIZED VIEW v AS SELECT … and query that",
            )
        starts = _starts(kind, options, visible(source_options(snapshot, source)), source, upstream)
        ranges = {name: (starts[name], max(starts[name], split.end)) for name, split in upstream.splits.items()}
        lives = {name: split.incarnation for name, split in upstream.splits.items()}
        return SourceScan(context=context, source=source, kind=kind, options=options, ranges=ranges, lives=lives)

    def narrowed(self, bounds: ScanBounds) -> SourceScan:
        """Returns the scan with shorter ranges, which still contain all records within the bounds."""
        since: Mapping[str, int] = {}
        if bounds.since_ms is not None and self.ranges:
            since = self.kind.offsets_at(self.options, bounds.since_ms, tuple(self.ranges))
        partitions = {split: _partition(split) for split in self.ranges}
        return replace(self, ranges=narrowed(self.ranges, bounds, partitions, since))

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows, with the source's columns, for queries of ``spark``.

        The sessions for jobs and ``spark`` may have different settings. The rows are decoded with the settings of the
        sessions for jobs, and are therefore the rows that a materialized view would read.
        """
        own = self.context.sessions.new()
        try:
            activate_in_jvm(own)
            return of_session(self._rows(own), spark)
        finally:
            with shielded():
                self.context.sessions.release(own)
                activate_in_jvm(spark)

    def _rows(self, spark: SparkSession) -> DataFrame:
        statement = definition_of(self.source)
        names = [f"`{name}`" for name, _ in source_columns(statement)]
        if sends_once(self.source.connector):  # The upstream sends each change only once, so the log is read instead.
            log = spark.read.format("delta").load(readable_log(self.context, self.source))
            return log.where(f"{ERROR} IS NULL").select(*names)
        ranges = {split: (start, end) for split, (start, end) in self.ranges.items() if end > start}
        if not ranges:
            columns = [f"CAST(NULL AS {kind}) AS {quoted_for_spark(name)}" for name, kind in source_columns(statement)]
            return spark.range(0).selectExpr(*columns)
        self.context.sessions.load(packages_of(self.kind, statement))
        try:
            records = read_records(self.kind, spark, self.options, ranges, statement, self.lives)
        except UnreadableRecordError as error:
            raise SqlError(
                NOT_SUPPORTED,
                f'source "{self.source.name}" cannot be read: {error}',
                hint="query a source of the same topic without INCLUDE header",
            ) from error
        try:
            require_executors(self.context.warehouse, spark, packages_on_executors(self.kind, statement))
        except StalledError as error:
            code = PACKAGE_MISSING if error.reason.startswith(LIBRARIES) else STORE_UNREACHABLE
            message = f'source "{self.source.name}" cannot be read by executors: {error.reason}'
            raise SqlError(code, message, hint="run the query again after that") from error
        added = added_fields(self.context.metastore.snapshot(), self.source)
        rows = decode(records, statement, self.options, run=0, batch=0, bucket=0, added=added)
        return rows.where(f"{ERROR} IS NULL").select(*names)


def _silent(source: SourceRecord, why: str) -> SqlError:
    return SqlError(
        UPSTREAM_UNREACHABLE,
        f'the upstream of source "{source.name}" does not answer: {why}',
        hint="query a materialized view over the source, or run the query again once the upstream answers",
    )


def of_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """A frame that belongs to the session ``spark`` and has the same rows as ``frame``, which belongs to another
    session. The result keeps the types and casts that the other session's analysis has given to ``frame``."""
    frames = java_class(spark, "org.apache.spark.sql.classic.Dataset")
    return ClassicDataFrame(frames.ofRows(java_session(spark), analyzed_plan(frame)), spark)


def _partition(split: str) -> str:
    """The value that INCLUDE partition has for the records of a split: the partition number for Kafka, and the split's
    id for other connectors."""
    topic, colon, number = split.rpartition(":")
    return number if colon and topic else split


def _starts(
    kind: Connector, options: Mapping[str, str], shown: Mapping[str, str], source: SourceRecord, upstream: Upstream
) -> dict[str, int]:
    """The start offset of each split according to ``scan.startup.mode``. The mode ``latest`` means the split's end at
    the time of CREATE SOURCE.

    If the upstream has since lost records before this end, the split starts at the first lost offset. Raises SqlError
    if the upstream does not respond.
    """
    at_time = kind.startup_time(options)
    times = kind.offsets_at(options, at_time, tuple(upstream.splits)) if at_time is not None and upstream.splits else {}
    starts = {name: kind.start_offset(options, split, times) for name, split in upstream.splits.items()}
    if shown.get(MODE, "earliest").strip().lower() != "latest":
        return starts
    born = {split.split: split for split in History.from_text(source.birth).splits} if source.birth else {}
    in_doubt = births_in_doubt(source, upstream.splits)
    cuts: Mapping[str, int] = {}
    if in_doubt and isinstance(kind, TermConnector):
        try:
            cuts = kind.diverged(options, in_doubt)
        except OSError as error:
            raise _silent(source, str(error)) from error
    for name, split in upstream.splits.items():
        then = born.get(name)
        if then is None:
            starts[name] = split.start
        elif same_incarnation(then.cluster, then.incarnation, split.cluster, split.incarnation):
            starts[name] = min(max(cuts.get(name, then.start), split.start), split.end)
    return starts


def scanned(
    context: Context, spark: SparkSession, sources: tuple[SourceRecord, ...], read: Callable[[], DataFrame], text: str
) -> DataFrame:
    """Calls ``read``, which runs a Spark statement that may read ``sources``. During the call, the sources that the
    statement reads are temporary views.

    A user's own relation with the name of a source takes precedence over the source. If several threads of a session
    call this function, their calls run one after the other.
    """
    tree = _parsed(spark, text)
    named = [source for source in sources if tree is None or _is_relation(source.name, tree)]
    if not named:
        return read()
    with _making:
        turn = _scanning.setdefault(spark, threading.RLock())
    with turn:
        return _scanned(context, spark, named, read, text)


def _scanned(
    context: Context, spark: SparkSession, named: list[SourceRecord], read: Callable[[], DataFrame], text: str
) -> DataFrame:
    meant = [source for source in named if not spark.catalog.tableExists(quoted_for_spark(source.name))]
    if not meant:
        return read()
    snapshot = context.metastore.snapshot()
    scans = [SourceScan.at(context, snapshot, source) for source in meant]
    if len(scans) == 1 and not _is_command(spark, text):
        with _shown(spark, scans):
            is_sparks = bool(scans[0].kind.spark_packages())
            bounds = _needed(read(), _OF_SPARKS_READER if is_sparks else _OF_OUR_READERS)
        if not bounds.is_open:
            scans = [scans[0].narrowed(bounds)]
    with _shown(spark, scans):
        return read()


def _parsed(spark: SparkSession, text: str) -> str | None:
    """The text of the plan that Spark's parser returns for a statement. None if the statement does not parse, or if the
    plan does not show which relations the statement names.

    With this text, a string, column or alias that has a source's name can be told apart from the source. Such a name
    must not cause a request to the upstream.
    """
    try:
        tree = str(parsed_plan(spark, text).treeString())
    except (PySparkException, Py4JError):
        return None  # The statement is invalid, or has a parameter marker where Spark allows no literal.
    return None if any(node in tree for node in _OPAQUE) else tree


def _is_relation(name: str, tree: str) -> bool:
    written = f"(?:{re.escape(name)}|{re.escape(quoted_for_spark(name))})"
    return re.search(rf"'Unresolved(?:Relation|TableOrView|Table|View) \[{written}\]", tree, re.I) is not None


@contextmanager
def _shown(spark: SparkSession, scans: list[SourceScan]) -> Iterator[None]:
    """A context manager inside which the sources exist as temporary views.

    Plans that are made inside the context manager remain valid afterwards.
    """
    try:
        for scan in scans:
            scan.frame(spark).createOrReplaceTempView(quoted_for_spark(scan.source.name))
        yield
    finally:
        # If a view remained, later queries would mistake it for a view of the user. The views of all sources are
        # dropped, because the call that creates a view may raise KeyboardInterrupt after the view was created. Dropping
        # a view that does not exist does nothing.
        with shielded():
            for scan in scans:
                spark.catalog.dropTempView(scan.source.name)


def _is_command(spark: SparkSession, text: str) -> bool:
    """True if Spark may execute a statement while it plans the statement. Such a statement must be planned only
    once."""
    try:
        parsed = parsed_plan(spark, text)
    except (PySparkException, Py4JError):
        return True  # The statement is invalid, or has a parameter marker where Spark allows no literal.
    classes = java_class(spark, "java.lang.Class")
    command = classes.forName("org.apache.spark.sql.catalyst.plans.logical.Command")
    statement = classes.forName("org.apache.spark.sql.catalyst.plans.logical.ParsedStatement")
    return bool(command.isInstance(parsed) or statement.isInstance(parsed))


def _needed(frame: DataFrame, reader: frozenset[str]) -> ScanBounds:
    """Returns bounds that contain all records that the query needs. The bounds come from the filters above the reads of
    the source in the optimized plan.

    A leaf of the plan is a read of the source if it has all columns in ``reader``. A leaf with only some of these
    columns may be a user's own table.
    """
    found: list[ScanBounds] = []
    plan = optimized_plan(frame)
    _visit(plan, [], found, reader, time_zone_of_texts(frame.sparkSession))
    return hull(found)


def _conjuncts(condition: Any) -> list[str]:
    """Splits a condition into its conjuncts. If only Spark can parse one of them, the other conjuncts can still be
    used."""
    if str(condition.getClass().getSimpleName()) == "And":
        return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]
    return [str(condition.sql())]


def _outputs(project: Any) -> dict[str, str]:
    """The expression of each column of a projection, by the column's name. The result omits a name that several columns
    have."""
    chosen = project.projectList()
    found: dict[str, str] = {}
    twice: set[str] = set()
    for at in range(chosen.size()):
        column = chosen.apply(at)
        name = str(column.name())
        if name in found:
            twice.add(name)
        is_alias = str(column.getClass().getSimpleName()) == "Alias"
        found[name] = str((column.child() if is_alias else column).sql())
    return {name: made for name, made in found.items() if name not in twice}


def _visit(node: Any, conditions: list[str], found: list[ScanBounds], reader: frozenset[str], zone: str) -> None:
    children = node.children()
    if children.size() == 0:
        names = {str(node.output().apply(at).name()) for at in range(node.output().size())}
        if reader <= names:
            found.append(bounds_of(conditions, zone))
        return
    if str(node.nodeName()) == "Filter":
        conditions = [*conditions, *_conjuncts(node.condition())]
    elif str(node.nodeName()) == "Project":
        conditions = below(conditions, _outputs(node)) if conditions else []
    else:
        # Conditions above a join or an aggregate do not apply to its input's rows.
        conditions = []
    for at in range(children.size()):
        _visit(children.apply(at), conditions, found, reader, zone)
