"""Tells a restart for splits that were found from one that somebody asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.plan.desired import IngestSpec
from rw_sql.plan.lower_undo import DISCOVERY

if TYPE_CHECKING:
    from rw_sql.plan.desired import JobSpec
    from rw_sql.runtime.context import Context


def was_discovered(context: Context, running: IngestSpec, wanted: JobSpec | None) -> bool:
    """Whether a reader is only to take up splits that were found: it may end its batch first."""
    if not isinstance(wanted, IngestSpec) or not only_adds_splits(running, wanted):
        return False
    operation = context.metastore.operation(wanted.since)
    return operation is not None and operation.kind == DISCOVERY


def only_adds_splits(running: IngestSpec, wanted: IngestSpec) -> bool:
    """Whether a reader is to go on as it does, with more splits."""
    is_more = set(running.splits) < set(wanted.splits)
    return is_more and replace(wanted, splits=running.splits, since=running.since) == running
