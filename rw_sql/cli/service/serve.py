"""Implements ``rw-sql serve``, a process that owns a warehouse and runs the warehouse's jobs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import typer

from rw_sql.cli.service.log_lines import said, start_log
from rw_sql.errors import FILE_UNREADABLE, INVALID_PARAMETER, SqlError
from rw_sql.model.resource_groups import require_group_name
from rw_sql.session.java import check_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.runtime.status.http_server import StatusServer
    from rw_sql.runtime.status.served import ServedWarehouse

_LOOK_SECONDS = 0.5

_STANDING_BY = "standing by: another process runs the jobs; SIGTERM or Ctrl-C stops"


def serve_until_told(
    *,
    warehouse: str | None,
    metrics: str | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    has_http: bool = True,
    token_file: str | None = None,
    log: str = "text",
    config: Mapping[str, str] | None = None,
    resource_group: str | None = None,
) -> None:
    """Attaches to a warehouse and runs the warehouse's jobs until SIGTERM or SIGINT. Afterwards, stops the jobs and
    releases the lease.

    If ``resource_group`` is given, only the jobs of that group run. ``config`` are Spark's settings. If another process
    already runs these jobs, this process waits, and takes over after the other process has ended. This process exits
    with status 1 if Spark ends, or if this process can no longer run the jobs for another reason.
    """
    if resource_group is not None:
        resource_group = require_group_name(resource_group)
    told = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        told.set()

    # The handlers are set before Spark starts. A signal that arrives while Spark starts takes effect as soon as Spark
    # has started.
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    start_log(log)
    check_java()  # Java is checked before the status page is served, and before the log reports that Spark is starting.
    server = listen(host, port, token_file) if has_http else None

    from rw_sql.runtime.support.background import run_in_background
    from rw_sql.session.attach import attach, connect, detach

    said.info("starting Spark")
    spark = connect(warehouse, config=config, resource_group=resource_group)
    signal.signal(signal.SIGINT, on_signal)  # PySpark has replaced this handler with its own
    attached = attach(spark, warehouse)
    served = attached.served()
    ended = threading.Event()
    last: bool | None = None
    try:
        run_in_background(partial(count_until, ended, served), "count")
        if server is not None:
            server.show(served)
        if metrics is not None:
            said.info("metrics at port %d", attached.serve_metrics(metrics))
        while not told.is_set() and attached.why_ended is None:
            if attached.is_owner != last:
                last = attached.is_owner
                said.info("serving; SIGTERM or Ctrl-C stops" if last else _STANDING_BY)
            told.wait(_LOOK_SECONDS)
        why = attached.why_ended
        if why is not None:
            said.error("%s: this process cannot run the jobs any more", why)
            print(f"{why}: this process cannot run the jobs any more", file=sys.stderr)
            raise typer.Exit(1)
        said.info("stopping")
    finally:
        ended.set()
        detach(spark)
        if server is not None:
            server.close()
        if attached.is_alive:
            spark.stop()


def count_until(ended: threading.Event, served: ServedWarehouse) -> None:
    """Until ``ended`` is set, repeatedly updates the metrics that count the rows that jobs have committed.

    This function runs on its own thread, because a store that responds slowly must not delay the reaction to a signal.
    """
    while not ended.is_set():
        served.count()
        ended.wait(_LOOK_SECONDS)


def listen(host: str, port: int | None, token_file: str | None) -> StatusServer:
    """Starts the status page's server. Raises SqlError if the server cannot listen on the port.

    If ``port`` is not given, the server uses the default port. If another process already uses the default port, the
    server uses a free port. For example, suppose that two processes on one machine serve the same warehouse. The
    process that runs the jobs uses the default port, and the process that waits to take over uses another port.
    """
    from rw_sql.runtime.status.http_server import DEFAULT_PORT, StatusServer

    token = _token(token_file)
    try:
        server = StatusServer(host, DEFAULT_PORT if port is None else port, token=token)
    except SqlError as error:
        if port is not None or not isinstance(error.__cause__, OSError):
            raise
        server = StatusServer(host, 0, token=token)
    said.info("status page at %s", server.url)
    return server


def _token(file: str | None) -> str | None:
    """Returns the token for the status page from a file or from the environment, without surrounding blanks and line
    breaks. Returns None if neither a file nor the environment variable is set. Raises SqlError if the file cannot be
    read, or if the file or the variable contains only blanks."""
    from rw_sql.runtime.status.http_server import TOKEN_VARIABLE

    if file is None:
        text = os.environ.get(TOKEN_VARIABLE, "")
        if text and not text.strip():
            raise SqlError(
                INVALID_PARAMETER,
                f"{TOKEN_VARIABLE} contains no token",
                hint=f"export {TOKEN_VARIABLE}=$(openssl rand -hex 16)",
            )
        return text.strip() or None
    try:
        with open(file, encoding="utf-8") as opened:
            token = opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise SqlError(
            FILE_UNREADABLE, f"cannot read file {file!r}: {reason}", hint="specify another file: --token-file PATH"
        ) from error
    if not token:
        raise SqlError(INVALID_PARAMETER, f"file {file!r} contains no token", hint=f"openssl rand -hex 16 > {file}")
    return token
