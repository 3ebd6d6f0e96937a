"""Determines whether a reader's specification changed only because splits were added."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import DISCOVERY
from rw_sql.model.job_specs import IngestSpec, ViewSpec

if TYPE_CHECKING:
    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.jobs.context import Context


def was_discovered(context: Context, running: IngestSpec, wanted: JobSpec | None) -> bool:
    """True if a restart only adds splits that the process discovered upstream, and no splits that a statement added.
    Before a restart for this reason, the reader may finish its batch."""
    if not isinstance(wanted, IngestSpec) or not only_adds_splits(running, wanted):
        return False
    operation = context.metastore.operation(wanted.since)
    return operation is not None and operation.kind == DISCOVERY


def only_adds_splits(running: IngestSpec, wanted: IngestSpec) -> bool:
    """True if ``wanted`` differs from ``running`` only in additional splits."""
    is_more = set(running.splits) < set(wanted.splits)
    return is_more and replace(wanted, splits=running.splits, since=running.since) == running


def goes_on_with_more(before: JobSpec, wanted: JobSpec) -> bool:
    """True if ``wanted`` only adds splits to ``before``, the specification of a failed run. The additional splits have
    probably not removed the cause of the failure."""
    if isinstance(before, IngestSpec) and isinstance(wanted, IngestSpec):
        return only_adds_splits(before, wanted)
    if not isinstance(before, ViewSpec) or not isinstance(wanted, ViewSpec):
        return False
    if len(before.readers) != len(wanted.readers):
        return False
    readers = tuple(zip(before.readers, wanted.readers, strict=True))
    is_more = all(set(old.splits) <= set(new.splits) for old, new in readers)
    is_more = is_more and any(set(old.splits) < set(new.splits) for old, new in readers)
    same = tuple(replace(new, splits=old.splits, since=old.since) for old, new in readers)
    return is_more and replace(wanted, readers=same) == before
