"""Lowers SHOW JOBS and SHOW METRICS. This module defines the columns of both results and computes their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.plan.statements.show.job_states import job_states
from rw_sql.plan.statements.show.listing import listing, matches

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.plan import Plan
    from rw_sql.syntax.statements import ShowMetrics, ShowObjects


def show_jobs(statement: ShowObjects, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW JOBS, which shows the state of each job, with the lag in records and the number of restarts.

    The modules ``rw_sql.runtime.status.reading`` and ``rw_sql.cli.shell.result_forms`` depend on the names of all
    columns of this result.
    """
    behind = inspector.jobs.lags()
    rows: list[tuple[object, ...]] = [
        (
            shown.job,
            shown.kind,
            shown.object,
            shown.state,
            shown.reason,
            shown.status.last_error if shown.status else None,
            behind.get(shown.job),
            shown.status.run if shown.status else None,
            shown.status.restarts if shown.status else 0,
        )
        for shown in job_states(snapshot, inspector.jobs.statuses(), inspector.jobs.backfills())
        if matches(statement, snapshot, shown.object)
    ]
    columns = (
        ("job", "STRING"),
        ("kind", "STRING"),
        ("object", "STRING"),
        ("state", "STRING"),
        ("reason", "STRING"),
        ("last_error", "STRING"),
        ("lag", "BIGINT"),
        ("run", "BIGINT"),
        ("restarts", "INT"),
    )
    return listing(statement, columns, rows)


def lower_show_metrics(statement: ShowMetrics, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW METRICS, which shows the values of the metrics server, one value per row."""
    rows: list[tuple[object, ...]] = [
        (sample.name, ", ".join(f"{name}={value}" for name, value in sample.labels), float(sample.value))
        for sample in inspector.jobs.metrics()
    ]
    return listing(statement, (("name", "STRING"), ("labels", "STRING"), ("value", "DOUBLE")), rows)
