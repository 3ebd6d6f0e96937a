"""Upkeep of a job's table.

The job that writes the table also runs its upkeep, between two batches, because no other process may write to the
table.

One run of upkeep performs these steps:

- save the metadata of the table's commits elsewhere
- compact small files
- drop the hours that a source's log need not keep
- write a checkpoint
- delete the commits and files that no view, sink, rewind point or query on an older version needs

After a crash at any step, the next run completes the remaining steps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError

from rw_sql.connectors.spec import duration_seconds
from rw_sql.object_stores import delta_errors
from rw_sql.runtime.decoding.decoder import BUCKET
from rw_sql.runtime.delta.compaction import compact, maintenance_properties
from rw_sql.runtime.delta.delta_log import job_commits
from rw_sql.runtime.delta.table_files import live_files
from rw_sql.runtime.jobs.downtime import downtime_until, waited_ms
from rw_sql.runtime.positions.log_size import MILLISECONDS_PER_BUCKET
from rw_sql.runtime.positions.pins import least_needed_version
from rw_sql.runtime.positions.table_consumers import readers_of
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.upkeep.known_commits import known_commits
from rw_sql.runtime.upkeep.last_upkeep import last_upkeep

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.delta.job_output import JobOutput
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.positions.table_consumers import Reader
    from rw_sql.runtime.upkeep.known_commits import KnownCommits
    from rw_sql.runtime.upkeep.unread_buckets import UnreadBuckets

logger = logging.getLogger(__name__)

EVERY_VERSIONS = 100
"""After this number of commits since the last upkeep, the next batch triggers a run of upkeep."""

EVERY_SECONDS = 600.0
"""This number of seconds after the last upkeep, the next batch triggers a run of upkeep."""

WHOLE_EVERY_SECONDS = 600.0
"""The minimum interval in seconds between two compactions of all small files. A compaction of all small files may take
seconds, during which the job writes no batch. A run of upkeep within the interval compacts only the tiny files."""

ORPHANS_EVERY_SECONDS = 24 * 3600.0
"""The minimum interval in seconds between two searches for files that killed writers left behind."""

MAX_HOLD_SECONDS = 7 * 24 * 3600.0
"""The default number of seconds for which a table keeps rows that a reader has not read although the reader makes no
progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The retention of a source's log: the maximum age of its rows in ``seconds``, and the maximum size of its files in
    ``bytes``. None means no limit.

    ``max_hold_seconds`` is the maximum time for which older rows are kept because a reader without progress has not
    read them.
    """

    seconds: float | None = None
    bytes: int | None = None
    max_hold_seconds: float = MAX_HOLD_SECONDS


def retention_of(options: Mapping[str, str]) -> Retention:
    """The retention from ``log.retention``, ``log.retention.bytes`` and ``log.max_hold``."""
    kept = options.get("log.retention")
    most = options.get("log.retention.bytes")
    hold = duration_seconds(options.get("log.max_hold", ""))
    return Retention(
        seconds=None if kept is None else duration_seconds(kept),
        bytes=None if most is None else int(most),
        max_hold_seconds=MAX_HOLD_SECONDS if hold is None else hold,
    )


@dataclass(slots=True, kw_only=True)
class Upkeep:
    """The upkeep of the table that one run of a job writes. Not thread-safe: upkeep must run between two batches.

    ``note`` is a function that saves the metadata of the commits up to a version. Upkeep calls ``note`` before it
    deletes these commits. ``is_log`` is true if the table is a source's log, whose rows are in hourly buckets.
    ``retention`` applies only to a log.
    """

    context: Context
    object_id: int
    generation: int
    output: JobOutput
    retention: Retention = Retention()
    is_log: bool = False
    note: Callable[[int], None] | None = None
    clock: Callable[[], float] = time.time

    def run_if_due(self) -> None:
        """Runs upkeep if it is due. Raises FencedError if another run has taken over. Other failures, such as an
        unreadable file, are logged and do not stop the job."""
        version, now = self.output.table.version(), self.clock()
        try:
            with delta_errors():
                last = last_upkeep(self.context, self.object_id, self.generation, now=now)
                if not last.is_due(version, now, every_versions=EVERY_VERSIONS, every_seconds=EVERY_SECONDS):
                    return
                last.version, last.at = version, now
                is_search_due = last.is_search_due(now, every_seconds=ORPHANS_EVERY_SECONDS)
                is_whole_due = last.is_whole_due(now, every_seconds=WHOLE_EVERY_SECONDS)
                self.run(searches_orphans=is_search_due, is_brief=not is_whole_due)
                last.orphans_at = now if is_search_due else last.orphans_at
                last.whole_at = now if is_whole_due else last.whole_at
                last.write(self.context, self.object_id, self.generation)
        except (DeltaError, OSError, ValueError) as error:
            # The next run of upkeep repeats the failed steps. The table's rows do not depend on upkeep.
            if not self.context.explains(error):
                logger.warning("upkeep of %s: %s", self.output.path, error)

    def run(self, *, searches_orphans: bool = True, is_brief: bool = False) -> None:
        """Runs upkeep once. If ``searches_orphans`` is true, upkeep also deletes the files that killed writers left
        behind. To find these files, upkeep lists all files of the table. If ``is_brief`` is true, upkeep compacts only
        the tiny files (:func:`rw_sql.runtime.delta.compaction.compact`). Raises FencedError if another run has taken
        over."""
        output = self.output
        output.require_own_run()
        table_id = str(output.table.metadata().id)
        with known_commits(
            self.context, self.object_id, self.generation, table=output.path, table_id=table_id
        ) as known:
            self._run(known, searches_orphans=searches_orphans, is_brief=is_brief)

    def _run(self, known: KnownCommits, *, searches_orphans: bool, is_brief: bool) -> None:
        output, files = self.output, known.files
        try:
            self._compact(is_brief=is_brief)
            fault("upkeep.compacted")
            snapshot = self.context.metastore.snapshot()
            readers = self._held_readers(snapshot)
            if self.is_log:
                self._drop_buckets(readers, known.unread)
            output.write_checksum(recount=True)
            fault("upkeep.dropped")
        except CommitFailedError:
            # Another process has committed in between, and the run of that process takes over.
            output.require_own_run()
            return
        files.write_checkpoint(output.table)
        fault("upkeep.checkpointed")
        # A view or sink that has not begun to read may be choosing its start version now, so no commits are deleted.
        if all(reader.needs is not None for reader in readers):
            keep_from = files.oldest_needed(self._bound(readers), keeps_restores=self.note is not None)
            if keep_from is not None and self.note is not None:
                self.note(keep_from - 1)
            fault("upkeep.noted")
            if keep_from is not None:
                files.clean_commits(keep_from)
        files.clean_checksums(output.table.version())
        fault("upkeep.cleaned")
        live = live_files(output.table)
        files.remove_replaced(live)
        if searches_orphans:
            files.remove_orphans(live)
        fault("upkeep.done")

    def _compact(self, *, is_brief: bool) -> None:
        """Compacts small files, or only the tiny ones if ``is_brief`` is true. If delta-rs cannot read a file, upkeep
        continues without compaction, and still deletes old commits and files. Raises CommitFailedError if another
        process has committed in between."""
        try:
            compact(self.output.table, BUCKET if self.is_log else None, is_brief=is_brief)
        except CommitFailedError:
            raise
        except DeltaError as error:
            if not self.context.explains(error):
                logger.warning("compaction of %s: %s", self.output.path, error)

    def _held_readers(self, snapshot: Snapshot) -> list[Reader]:
        """The readers for which the table keeps unread rows: all readers except those without progress for more than
        ``max_hold_seconds``.

        Periods in which no process ran the jobs of a reader's group do not count, because the reader could not make
        progress then.
        """
        table = self.output.table
        found = readers_of(self.context.warehouse, snapshot, self.object_id, self.output.path, str(table.metadata().id))
        now_ms, hold_ms = int(self.clock() * 1000), self.retention.max_hold_seconds * 1000
        if all(reader.waits_since_ms is None or now_ms - reader.waits_since_ms <= hold_ms for reader in found):
            return found
        groups = {reader.group for reader in found}
        stretches = {group: downtime_until(self.context, group, now_ms) for group in groups}

        def is_held(reader: Reader) -> bool:
            since = reader.waits_since_ms
            return since is None or waited_ms(since, now_ms, stretches[reader.group]) <= hold_ms

        return [reader for reader in found if is_held(reader)]

    def _bound(self, readers: list[Reader]) -> int:
        """The oldest version whose commit is needed: by a reader, by a rewind point, or by the table's own job."""
        newest_of_job = next((version for version, _ in job_commits(self.context.warehouse, self.output.path)), 0)
        pinned = least_needed_version(self.context, self.object_id, self.generation)
        pins = [] if pinned is None else [pinned]
        needed: list[int] = [reader.needs for reader in readers if reader.needs is not None]
        return min([newest_of_job, *pins, *needed])

    def _drop_buckets(self, readers: list[Reader], commits: UnreadBuckets) -> None:
        """Deletes the rows of the oldest hourly buckets that exceed the retention and that every reader in ``readers``
        has read."""
        due = self._due_buckets()
        if not due or any(reader.needs is None for reader in readers):
            return
        first = min((reader.needs for reader in readers if reader.needs is not None), default=None)
        unread = None
        if first is not None:
            unread = commits.oldest_from(first, self.output.table.version(), least=due[0])
        read = [bucket for bucket in due if unread is None or bucket < unread]
        if read:
            self.output.table.delete(f"{BUCKET} <= {read[-1]}", commit_properties=maintenance_properties("retention"))

    def _due_buckets(self) -> list[int]:
        """The hourly buckets that exceed the retention, oldest first. A bucket exceeds the retention if it is too old,
        or if the log would still be too large after all older buckets were dropped. The result never contains the
        newest bucket."""
        if self.retention.seconds is None and self.retention.bytes is None:
            return []
        sizes = _bucket_sizes(self.output.table)
        left = sum(sizes.values())
        now_ms = self.clock() * 1000
        due: list[int] = []
        for bucket in sorted(sizes)[:-1]:
            age_seconds = (now_ms - (bucket + 1) * MILLISECONDS_PER_BUCKET) / 1000
            is_old = self.retention.seconds is not None and age_seconds >= self.retention.seconds
            is_much = self.retention.bytes is not None and left > self.retention.bytes
            if not (is_old or is_much):
                break
            due.append(bucket)
            left -= sizes[bucket]
        return due


def _bucket_sizes(table: DeltaTable) -> dict[int, int]:
    files = pa.table(table.get_add_actions(flatten=True))
    sizes: dict[int, int] = {}
    buckets = files.column(f"partition.{BUCKET}").to_pylist()
    for bucket, size in zip(buckets, files.column("size_bytes").to_pylist(), strict=True):
        sizes[bucket] = sizes.get(bucket, 0) + size
    return sizes
