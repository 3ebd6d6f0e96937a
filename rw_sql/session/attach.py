"""The entry points ``connect`` and ``attach``. When they return, ``spark.sql`` of the session accepts rw_sql's
statements."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rw_sql.errors import DELTA_MISSING, INVALID_PARAMETER, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.model.resource_groups import require_group_name
from rw_sql.plan.result.confirmation import Question
from rw_sql.runtime.jobs.lease import serve_command
from rw_sql.runtime.spark.executors import remove_files
from rw_sql.runtime.spark.interrupts import StatementInterrupted, interruptible, shielded, watch
from rw_sql.runtime.spark.jar_cache import are_jars_ours, jar_settings, remember_jars
from rw_sql.runtime.spark.jvm import gateway, hadoop_configuration, java_class
from rw_sql.runtime.spark.sessions import leave_dead_jvm
from rw_sql.session.attached import (
    Attached,
    WarehouseRuntime,
    catalog_of,
    end_servers,
    statement_progress,
)
from rw_sql.session.connect_session import ConnectAttached, ConnectRuntime, is_connect_session, wrap_connect
from rw_sql.session.java import check_java
from rw_sql.session.location import warehouse_at
from rw_sql.session.shown_status import shown
from rw_sql.session.spark_failure import not_started
from rw_sql.session.spark_settings import session_settings
from rw_sql.session.spark_sql import wrap_shell_sql, wrap_sql
from rw_sql.session.spark_writers import wrap_writers
from rw_sql.session.start_messages import without_start_messages
from rw_sql.session.store_settings import EXCLUDED, require_store, store_packages, store_settings
from rw_sql.spark_jars import installed_jars, jars_of
from rw_sql.syntax.lexing.nesting import allow_nesting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.session.attached import AttachedRuntime

logger = logging.getLogger(__name__)

METRICS_VARIABLE = "RW_SQL_METRICS"

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

__all__ = [
    "Attached",
    "Question",
    "attach",
    "attached_to",
    "catalog_of",
    "connect",
    "delta_options",
    "detach",
    "statement_progress",
]


_lock = threading.RLock()
_runtimes: dict[str, WarehouseRuntime] = {}
_connected: list[ConnectRuntime] = []
_ATTRIBUTE = "_rw_sql_attached"


def connect(
    warehouse: str | None = None,
    *,
    run_jobs: bool = True,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    resource_group: str | None = None,
) -> SparkSession:
    """Returns a Spark session with Delta that accepts rw_sql's statements. If a session is already running, returns
    this session; otherwise, starts a new one.

    ``warehouse`` is a path or URI (default: ``$RW_SQL_WAREHOUSE`` or, if that is not set, ``./rw_warehouse``).
    ``master`` is Spark's master (default: ``local[*]``), and ``config`` adds Spark settings. ``master`` and ``config``
    take precedence over ``spark-defaults.conf``, which takes precedence over rw_sql's own settings. With
    ``run_jobs=False``, this process only commits statements. The process does not run the jobs, unless another of its
    sessions is attached with ``run_jobs=True``. ``resource_group`` is the resource group whose jobs this process runs
    (default: ``default``). Raises SqlError JAVA_MISSING if Java is missing or too old, and SPARK_START if Spark cannot
    be started.
    """
    if resource_group is not None:
        resource_group = require_group_name(resource_group)
    check_java()
    leave_dead_jvm()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    location = warehouse_at(warehouse)
    builder: Any = SparkSession.builder
    given = {**(config or {}), **({} if master is None else {"spark.master": master})}
    folder = str(Path(location.uri.removeprefix("file://")) / "spark") if location.is_local else None
    packages = _packages(location)
    needed = {**DELTA_SETTINGS, **initial_jars(warehouse, given)}
    if packages != installed_jars().delta:
        needed["spark.jars.excludes"] = EXCLUDED
    defaults = store_settings(location.uri, os.environ)
    for key, value in session_settings(needed, given, warehouse_dir=folder, defaults=defaults).items():
        builder = builder.config(key, value)
    with without_start_messages() if gateway() is None else nullcontext():
        try:
            spark: SparkSession = builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as error:
            raise not_started(error) from error
    if "spark.jars.packages" in needed and are_jars_ours(given):
        remember_jars(packages, (spark.sparkContext.getConf().get("spark.jars") or "").split(","))
    if location.is_local:
        _leave_out_checksums(spark)
    attach(spark, location.uri, run_jobs=run_jobs, resource_group=resource_group)
    return spark


def _packages(location: Warehouse) -> str:
    return ",".join((installed_jars().delta, *store_packages(location.uri)))


def initial_jars(warehouse: str | None, config: Mapping[str, str]) -> dict[str, str]:
    """The Spark settings with which :func:`connect` adds jars to a new session: the jars of Delta, and the jars for the
    warehouse's object store, if any.

    If ``PYSPARK_GATEWAY_PORT`` is set, spark-submit has already started the JVM, so the returned settings contain no
    options for the start of the JVM.
    """
    starts_jvm = gateway() is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    return jar_settings(_packages(warehouse_at(warehouse)), config, starts_jvm=starts_jvm)


def _leave_out_checksums(spark: SparkSession) -> None:
    """Makes Hadoop in this JVM write local files without a hidden ``.crc`` checksum file for each file. (The library
    delta-rs writes no such files either.)

    If Hadoop's native library is missing, Hadoop starts a process for every file that it creates, which takes
    milliseconds. Without this function, a streaming batch would write eight files, four of them ``.crc`` files.
    """
    local = java_class(spark, "java.net.URI")("file:///")
    files = java_class(spark, "org.apache.hadoop.fs.FileSystem").get(local, hadoop_configuration(spark))
    files.setWriteChecksum(False)


def attach(
    spark: SparkSession | ConnectSession,
    warehouse: str | None = None,
    *,
    run_jobs: bool = True,
    resource_group: str | None = None,
) -> Attached:
    """Attaches an existing session to a warehouse. Afterwards, the session's ``spark.sql`` accepts rw_sql's statements.

    If no other process runs the jobs of the resource group (default: ``default``), this process runs them. With
    ``run_jobs=False``, this session does not make this process run jobs, but another session of the process may do so.
    A session of Spark Connect never runs jobs: it passes its statements to the process that runs the jobs.

    If the session is attached to another warehouse, the call detaches the session from that warehouse. If the call
    fails, the session stays attached to that warehouse.

    Raises SqlError DELTA_MISSING, with the command line to use, if the session was built without Delta. For a session
    of Spark Connect, raises UNDEFINED_OBJECT if the warehouse does not exist, and NOT_SUPPORTED if the warehouse must
    be migrated first.
    """
    allow_nesting()
    if resource_group is not None:
        resource_group = require_group_name(resource_group)
    is_remote = is_connect_session(spark)
    # The session classes of Connect and of classic Spark both have the methods used here.
    spark = cast("SparkSession", spark)
    ended = attached_to(spark)
    if ended is not None:
        ended._runtime.context.sessions.require_alive()
    _require_delta(spark, is_remote=is_remote)
    location = warehouse_at(warehouse)
    if not is_remote:
        require_store(spark, location.uri)
    with _lock:
        present = attached_to(spark)
        if present is not None and present.warehouse == location.uri:
            _require_group(present._runtime, resource_group)
            if run_jobs:
                present._runtime.run_jobs()
            return present
        with nullcontext() if present is None else interruptible():
            runtime = _open_connect(location) if is_remote else _open(spark, location, resource_group)
            attached = _attach(spark, runtime, present, run_jobs=run_jobs)
        if is_remote:
            wrap_connect(attached_to, _for_spark, status_shown)
        else:
            watch(spark)
            wrap_sql(attached_to, _for_spark, status_shown)
            wrap_writers(_refuse_call)
            wrap_shell_sql(spark)
        return attached


def _open(spark: SparkSession, location: Warehouse, resource_group: str | None) -> WarehouseRuntime:
    """Returns the object that represents the warehouse in this process. If no session of this process is attached to
    the warehouse, opens the warehouse."""
    runtime = _runtimes.get(location.uri)
    if runtime is not None and not runtime.context.sessions.is_alive():
        runtime.stop()
        runtime = None
    if runtime is None:
        runtime = WarehouseRuntime(spark, location, group=resource_group or DEFAULT_GROUP)
        _runtimes[location.uri] = runtime
    else:
        _require_group(runtime, resource_group)
    return runtime


def _open_connect(location: Warehouse) -> ConnectRuntime:
    runtime = ConnectRuntime(location)
    _connected.append(runtime)
    return runtime


def _attach(spark: SparkSession, runtime: AttachedRuntime, present: Attached | None, *, run_jobs: bool) -> Attached:
    """Attaches a session to an open warehouse. ``present`` is the session's present attachment to another warehouse;
    None if the session is not attached yet. The jobs of the other warehouse run until the new attachment replaces
    ``present``. If attaching fails, the session keeps ``present``, and these jobs are not interrupted."""
    undo = ExitStack()
    try:
        if present is not None:
            undo.callback(_return_to, present, _servers_to_end(present))
        runtime.users += 1
        undo.callback(_release, runtime)
        if present is not None:
            _set_aside(present)
        # Creates the session's views before the jobs start: creating a view takes fifty times as long while jobs start.
        attached = ConnectAttached(spark, runtime) if isinstance(runtime, ConnectRuntime) else Attached(spark, runtime)
        undo.callback(attached._remove_views)
        if run_jobs:
            runtime.run_jobs()
        where = os.environ.get(METRICS_VARIABLE)
        if where and not runtime.serves_metrics:
            attached.serve_metrics(where)
            runtime.serves_metrics = True
        setattr(spark, _ATTRIBUTE, attached)
    except BaseException:
        with shielded():
            undo.close()
        raise
    if present is not None:
        try:
            with shielded():
                _release(present._runtime)
        except KeyboardInterrupt:
            raise StatementInterrupted(f"the session is attached to {attached.warehouse}") from None
    return attached


def _servers_to_end(attached: Attached) -> tuple[str, ...]:
    """The addresses of the metrics servers that stop when this session is detached from its warehouse. There are none
    if other sessions stay attached to the warehouse."""
    runtime = attached._runtime
    if runtime.users > 1:
        return ()
    return tuple(f"{server.server_address[0]!s}:{server.server_port}" for server in runtime.servers)


def _set_aside(attached: Attached) -> None:
    """Drops the views of an attachment and ends its metrics servers, because a new attachment of the same session needs
    the same names and ports."""
    attached._remove_views()
    if attached._runtime.users == 1:
        end_servers(attached._runtime.servers)


def _return_to(attached: Attached, served: Sequence[str]) -> None:
    """Reverts :func:`_set_aside`. ``served`` are the addresses of the metrics servers that :func:`_set_aside` has
    ended. A failure is logged as a warning and not raised."""
    attached._restore_views()
    for where in served[len(attached._runtime.servers) :]:
        try:
            attached.serve_metrics(where)
        except SqlError as error:
            logger.warning("%s", error.message)


def _require_group(runtime: AttachedRuntime, group: str | None) -> None:
    """Raises SqlError if ``group`` is not None and differs from the resource group for which this process is
    attached."""
    present = runtime.context.group
    if group is not None and group != present:
        raise SqlError(
            INVALID_PARAMETER,
            f'this process is attached for resource group "{present}", and a process runs the jobs of only one group',
            hint=f"{serve_command(runtime.context.warehouse.uri, group)} starts another process",
        )


def detach(spark: SparkSession) -> None:
    """Reverts :func:`attach`; does nothing if the session is not attached. Detaching a warehouse's last session in this
    process stops the jobs that this process runs. The jobs keep their positions."""
    with _lock:
        attached = attached_to(spark)
        if attached is None:
            return
        delattr(attached.spark, _ATTRIBUTE)
        attached._remove_views()
        _release(attached._runtime)


def _release(runtime: AttachedRuntime) -> None:
    """Decreases the number of sessions that are attached to a warehouse by one. If no session is left, stops the
    warehouse's jobs in this process."""
    runtime.users -= 1
    if runtime.users == 0:
        for uri in [uri for uri, known in _runtimes.items() if known is runtime]:
            del _runtimes[uri]
        if isinstance(runtime, ConnectRuntime):
            _connected.remove(runtime)
        runtime.stop()
        _remove_files(runtime)


def _remove_files(runtime: AttachedRuntime) -> None:
    """Deletes, on the executors, the files that contain secrets, unless this process still has a warehouse open."""
    if isinstance(runtime, WarehouseRuntime) and not _runtimes and runtime.context.sessions.is_alive():
        remove_files(runtime.context.sessions.spark)


def _for_spark(spark: SparkSession, text: str) -> str:
    """Rewrites the names in a Spark statement so that Spark can resolve them. Returns the text unchanged if the session
    is not attached."""
    attached = attached_to(spark)
    return text if attached is None else attached.for_spark(text)


def _refuse_call(spark: SparkSession, call: str, name: str) -> None:
    """Raises SqlError if ``call``, a method of PySpark, would write or cache ``name``, and ``name`` is an object of
    rw_sql."""
    attached = attached_to(spark)
    if attached is not None:
        with attached._store_errors():
            attached._views.refuse_call(call, name)


@atexit.register
def _stop_all() -> None:
    with _lock:
        stopped = list(_runtimes.values())
        for runtime in stopped:
            runtime.stop()
        for remote in _connected:
            remote.stop()
        _runtimes.clear()
        _connected.clear()
        for runtime in stopped:
            _remove_files(runtime)


def status_shown(attached: Attached) -> AbstractContextManager[None]:
    """A context manager for running a session's statement. Inside the ``with`` block, the statement's status is shown
    at a prompt or in a notebook."""
    return shown(attached, partial(statement_progress, attached))


def attached_to(spark: SparkSession) -> Attached | None:
    """The attachment of a session; None if the session is not attached."""
    found = spark.__dict__.get(_ATTRIBUTE)
    return found if isinstance(found, Attached) else None


def delta_options() -> list[str]:
    """The command-line options with which ``pyspark`` and ``spark-submit`` start a session with Delta."""
    settings = (word for key, value in DELTA_SETTINGS.items() for word in ("--conf", f"{key}={value}"))
    return ["--packages", installed_jars().delta, *settings]


def _require_delta(spark: SparkSession, *, is_remote: bool) -> None:
    if not is_remote:  # The jobs of a Spark Connect session run in another process, with that process's Spark.
        jars_of(spark.version)
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if DELTA_SETTINGS["spark.sql.extensions"] in extensions:
        return
    command = " ".join(f'"{word}"' if "=" in word else word for word in delta_options())
    if is_remote:
        raise SqlError(
            DELTA_MISSING,
            "the server of this session of Spark Connect was started without Delta Lake",
            hint=f"start it with: start-connect-server.sh {command}",
        )
    raise SqlError(
        DELTA_MISSING,
        "this Spark session was built without Delta Lake, which cannot be added to a running one",
        hint=f"start it with: pyspark {command}  (or: rw-sql pyspark, or rw_sql.connect())",
    )
