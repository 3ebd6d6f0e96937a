"""Manages the shell's warehouse. Spark starts in the background, and the shell runs some statements before Spark has
started."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from rw_sql.cli.spark_start import start_spark, stop_spark
from rw_sql.cli.terminal.status_line import Doing
from rw_sql.errors import NO_SESSION, UNDEFINED_OBJECT, SqlError
from rw_sql.session.java import check_java

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from rw_sql.cli.terminal.status_line import Progress
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.result.plan import Table
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.session.attach import Attached
    from rw_sql.syntax.statements import Statement

_STILL_STARTING = "Spark is still starting: the shell ends when Spark has started (Ctrl-C ends it at once)"


class Backend:
    """A warehouse with or without Spark.

    Only the methods that completion uses may be called from other threads than the main thread.
    """

    def __init__(self, warehouse: str | None) -> None:
        self._warehouse = warehouse
        self._thread: threading.Thread | None = None
        self._imported = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._messages = ""
        self._spark: SparkSession | None = None
        self._attached: Attached | None = None
        self._early = threading.Lock()
        self._left = ExitStack()
        self._context: Context | None = None
        self._has_context = False

    @property
    def is_up(self) -> bool:
        """True if Spark has started and is attached to the warehouse."""
        return self._attached is not None

    @property
    def is_starting(self) -> bool:
        """True while Spark is being started."""
        return self._thread is not None and not self._ended.is_set()

    def start(self) -> None:
        """Starts Spark in a separate thread, unless Spark is already running or being started."""
        if self._thread is not None:
            return
        self._ended.clear()
        self._error, self._messages = None, ""
        self._thread = threading.Thread(target=self._start, name="rw_sql-start", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            # The two threads do their imports one after the other, because both need the same hundred modules.
            from rw_sql.session.attach import attach

            self._imported.set()
            spark = start_spark(self._warehouse, on_failure=self._keep_messages, is_beside_prompt=True)
            self._spark = spark
            self._attached = attach(spark, self._warehouse)
        except BaseException as error:  # noqa: BLE001 - raised where the main thread needs Spark
            self._error = error
        finally:
            self._imported.set()
            self._ended.set()

    def _keep_messages(self, text: str) -> None:
        self._messages = text

    def attached(self) -> Attached:
        """Waits until Spark has started, and returns the attached session.

        If the start of Spark has failed, raises the error. The next call tries to start Spark again.
        """
        if self._attached is None:
            if self._thread is None:
                check_java()
            self.start()
            self._ended.wait()
            if self._error is not None:
                error, self._error, self._thread = self._error, None, None
                sys.stderr.write(self._messages)
                raise error
        assert self._attached is not None
        return self._attached

    def abort_block(self) -> None:
        """Aborts an open BEGIN UNSAFE block, because one of its statements has not run."""
        if self._attached is not None:
            self._attached.abort_block()

    def go_to(self, warehouse: str) -> Attached:
        """Attaches to another warehouse. If this warehouse does not exist, creates it.

        Afterwards, this process no longer runs the jobs of the previous warehouse. If attaching fails, the shell stays
        in the previous warehouse. If Ctrl-C arrives after the shell has attached to the new warehouse, the shell stays
        in the new warehouse.
        """
        from rw_sql.session.attach import attach, attached_to

        attached = self.attached()
        try:
            return attach(attached.spark, warehouse)
        finally:
            # Ctrl-C may arrive after the change to the new warehouse.
            attached = attached_to(attached.spark) or attached
            self._warehouse, self._attached = attached.warehouse, attached

    def close(self) -> None:
        """Stops Spark, if it was started."""
        try:
            if self.is_starting:
                sys.stderr.write(_STILL_STARTING + "\n")
                self._ended.wait()
        finally:
            self._left.close()
        if self._spark is not None:
            stop_spark(self._spark)

    @property
    def location(self) -> str:
        """The warehouse's path or URI."""
        from rw_sql.session.location import warehouse_at

        return self._attached.warehouse if self._attached is not None else warehouse_at(self._warehouse).uri

    @property
    def block_state(self) -> str | None:
        """``'open'`` or ``'aborted'`` inside a BEGIN UNSAFE block; None outside a block."""
        return self._attached.block_state if self._attached is not None else None

    def progress(self) -> Progress:
        """The activity of the running statement, for the status line."""
        if self._attached is not None:
            from rw_sql.session.attach import statement_progress

            return statement_progress(self._attached)
        return Doing(self.phase or "reading the catalog")

    @property
    def phase(self) -> str | None:
        """The phase of Spark's start; None if Spark is not being started."""
        if not self.is_starting:
            return None
        if not self._imported.is_set():
            return "starting Spark: loading"
        from rw_sql.runtime.spark.jvm import active_context, gateway

        if gateway() is None:
            return "starting Spark: launching Java (the first start also downloads Delta Lake)"
        if active_context() is None:
            return "starting Spark"
        return "opening the warehouse and starting its jobs"

    def answer_early(self, text: str) -> Table | None:
        """Returns the rows of a statement that only reads the catalog, if Spark has not started. Returns None if the
        statement must be run with Spark.

        Raises SqlError for a statement that is wrong whatever the state of Spark and of the upstreams is. The error's
        position refers to ``text``.
        """
        if self.is_up:
            return None
        if self._thread is not None:
            self._imported.wait()
        from rw_sql.cli.empty_catalog import EmptyCatalog
        from rw_sql.cli.shell.early_errors import refuse_unparsed
        from rw_sql.runtime.control.dry_run import DryRun
        from rw_sql.runtime.support.store_errors import store_errors
        from rw_sql.syntax import could_be_ours, route

        try:
            refuse_unparsed(text)
            context = self._early_context() if could_be_ours(text) else None
            if context is None:
                statement = route(text, EmptyCatalog()) if could_be_ours(text) else None
                return None if statement is None else self._read(None, statement)
            with store_errors(context.sessions.require_alive):
                statement = route(text, DryRun(context, {}))
                return None if statement is None else self._read(context, statement)
        except SqlError as error:
            if error.kind is NO_SESSION:
                return None
            raise error.located(text) from error.__cause__

    def answer(self, statement: Statement, text: str) -> Table | None:
        """Returns the rows of a statement that only reads the catalog; None if ``text`` must be sent to Spark."""
        return None if self.is_up else self._read(self._early_context(), statement)

    def _read(self, context: Context | None, statement: Statement) -> Table | None:
        """The rows of a statement; None if the statement must be run with Spark.

        ``context`` is None if the warehouse does not exist yet.
        """
        from rw_sql.cli.shell.early_errors import answer_for_new, refuse_unplanned
        from rw_sql.metastore import Snapshot
        from rw_sql.session.sparkless import answer
        from rw_sql.syntax import statements as ast

        reads = (
            ast.ShowObjects
            | ast.ShowColumns
            | ast.ShowSourceSplits
            | ast.ShowSourceContinuity
            | ast.ShowUnsafeOperations
            | ast.ShowLineage
            | ast.ShowCheckpoint
            | ast.ShowCreate
            | ast.ShowParameter
            | ast.Describe
            | ast.DescribeFragments
        )
        shown = statement.statement if isinstance(statement, ast.Explain) else statement
        if not isinstance(shown, reads) and shown is statement:
            refuse_unplanned(statement, Snapshot() if context is None else context.metastore.snapshot())
            return None
        if context is None:
            is_of_session = isinstance(statement, ast.Explain | ast.ShowParameter)
            return None if is_of_session else answer_for_new(statement)
        return answer(context, statement)

    def _early_context(self) -> Context | None:
        """Returns the warehouse without Spark; None if the warehouse does not exist yet. Raises SqlError if the
        warehouse cannot be read."""
        if self._thread is not None:
            self._imported.wait()
        from rw_sql.session.sparkless import sparkless

        with self._early:
            if not self._has_context:
                try:
                    self._context = self._left.enter_context(sparkless(self._warehouse, only_reads=True))
                except SqlError as error:
                    if error.kind is not UNDEFINED_OBJECT:
                        raise
                self._has_context = self._context is not None
            return self._context

    def snapshot(self) -> Snapshot | None:
        """The catalog; None if the warehouse does not exist yet."""
        if self._attached is not None:
            from rw_sql.session.attach import catalog_of

            return catalog_of(self._attached)
        context = self._early_context()
        if context is None:
            return None
        from rw_sql.runtime.support.store_errors import store_errors

        with store_errors(context.sessions.require_alive):
            return context.metastore.snapshot()


class CatalogReader(Protocol):
    """Reads the catalog of a backend's warehouse for completion."""

    @property
    def _attached(self) -> Attached | None: ...

    def snapshot(self) -> Snapshot | None:
        """The current catalog; None if the catalog cannot be read yet."""
        ...


class CatalogNames:
    """The names that completion offers, from the warehouse of a backend or of a notebook's session."""

    def __init__(self, backend: CatalogReader) -> None:
        self._backend = backend

    def objects(self) -> dict[str, str]:
        """Maps the name of each object to its kind. Spark's own tables and views have the kind ``spark``."""
        from deltalake.exceptions import DeltaError
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        found: dict[str, str] = {}
        try:
            attached = self._backend._attached
            if attached is not None:
                found |= {table.name: "spark" for table in attached.spark.catalog.listTables()}
            snapshot = self._backend.snapshot()
            if snapshot is not None:
                found |= {
                    record.name: kind
                    for kind in ("source", "table", "materialized_view", "sink", "connection", "secret")
                    for record in snapshot.all(kind)
                    if kind != "source" or snapshot.find("table", record.name) is None
                }
                found |= {"public": "schema", **{record.name: "schema" for record in snapshot.all("schema")}}
        except (SqlError, OSError, DeltaError, Py4JError, PySparkException):
            pass  # Completion offers the names that could be read.
        return found

    def columns(self, relation: str) -> tuple[str, ...]:
        """The columns of a relation; empty if the columns cannot be read."""
        from deltalake.exceptions import DeltaError
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from rw_sql.model.object_lookup import find_relation
        from rw_sql.model.relations import relation_of

        try:
            snapshot = self._backend.snapshot()
            record = None if snapshot is None else find_relation(snapshot, relation)
            if record is not None:
                return tuple(name for name, _ in relation_of(record).columns)
            attached = self._backend._attached
            if attached is not None:
                return tuple(column.name for column in attached.spark.catalog.listColumns(relation))
        except (SqlError, OSError, DeltaError, Py4JError, PySparkException):
            pass
        return ()

    def connector(self, name: str) -> str | None:
        """The connector of a source, table, sink or connection."""
        from deltalake.exceptions import DeltaError

        try:
            snapshot = self._backend.snapshot()
        except (SqlError, OSError, DeltaError):
            return None
        if snapshot is None:
            return None
        for kind in ("source", "sink", "connection"):
            record = snapshot.find(kind, name)
            if record is not None:
                return getattr(record, "connector", None)
        return None


def listed(snapshot: Snapshot) -> Iterable[tuple[str, str]]:
    """The name and kind of each object, sorted by name. Schemas, and the source that belongs to a table, are
    omitted."""
    kinds = ("source", "table", "materialized_view", "sink", "connection", "secret")
    rows = [(record.name, kind.replace("_", " ")) for kind in kinds for record in snapshot.all(kind)]
    tables = {name for name, kind in rows if kind == "table"}
    return sorted(row for row in rows if row[1] != "source" or row[0] not in tables)
