"""Decides which jobs rest because they have no new input. Wakes a job at rest when its upstream has new records, when
an input has a new commit, or on request.

The reconciler calls this module in each pass. A pass checks a job at rest only if the job of one of its inputs is not
at rest, so most jobs at rest cost no time in a pass.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from rw_sql.errors import SqlError
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.model.options import secrets_in
from rw_sql.model.parameters import idle_job_seconds
from rw_sql.runtime.control.rest_conditions import (
    IdleReader,
    IdleSource,
    has_been_quiet,
    idle_state,
    kind_of,
    options_of,
    read_stored,
    stored,
)
from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.observe.upstream_watcher import UpstreamWatcher, Watched
from rw_sql.runtime.observe.watched_options import WatchedOptions
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.views.job import View

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from concurrent.futures import Future

    from rw_sql.metastore import Snapshot
    from rw_sql.model.options import SecretReference
    from rw_sql.runtime.control.job_slot import JobSlot
    from rw_sql.runtime.control.rest_conditions import Idle
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.observe.upstream_watcher import Finding

logger = logging.getLogger(__name__)

_REMOTE_SECONDS = 2.0
"""The interval in seconds at which the input tables in an object store are checked for commits that are not batches of
a job."""

_NOTE_SECONDS = 1.0
"""The minimum interval between two writes of the list of jobs at rest, in seconds."""


class Rests:
    """The jobs at rest of one resource group, in the process that owns the group.

    ``wake`` ends the reconciler's wait between two passes. The watcher's threads call only :meth:`_report`. All other
    methods are called by the reconciler's thread, or by the thread that starts or stops a slot's job, unless their
    docstring names another thread.
    """

    def __init__(self, context: Context, wake: Callable[[], None]) -> None:
        self._context = context
        self._wake = wake
        self._watcher = UpstreamWatcher(self._report)
        # The slots of views and sinks at rest by the id of an input.
        self._readers: defaultdict[int, dict[str, JobSlot]] = defaultdict(dict)
        # The objects whose jobs could commit at the last pass, and the readers that came to rest since then.
        self._active: frozenset[int] = frozenset()
        self._fresh: list[JobSlot] = []
        self._batches: dict[str, tuple[int, float] | None] = {}
        self._next_remote_look = 0.0
        # A thread of the watcher holds this lock while it reports. Any other thread holds the lock while it records
        # that a job comes to rest.
        self._lock = threading.Lock()
        self._findings: list[Finding] = []
        self._troubled: frozenset[str] = frozenset()
        self._noted: dict[str, Idle] = {}
        self._note_at = 0.0
        self._noting: Future[None] | None = None
        self._snapshot: Snapshot | None = None
        self._idle_seconds: float | None = None
        self._changed_sources: frozenset[int] = frozenset()
        self._options = WatchedOptions(context, self._on_new_secrets)
        # Sources that an earlier process left at rest, whose options contain secrets, and that are not watched again
        # yet.
        self._recalled: dict[str, IdleSource] = {}
        # Sources whose secrets have changed, or cannot be read.
        self._renewed: set[str] = set()
        context.wakes.on_request = wake

    def stop(self) -> None:
        """Stops watching for new input. The stored list of jobs at rest is kept for the next process."""
        self._watcher.stop()
        with self._lock:
            self._recalled = {}
        self._context.wakes.on_request = None
        if self._noting is not None:
            self._noting.exception()

    def recall(self, slots: Mapping[str, JobSlot]) -> None:
        """Keeps those jobs at rest that an earlier process left at rest and that may stay at rest (see
        :func:`read_stored`). The first pass calls this method."""
        try:
            text = self._context.warehouse.read_text(_file(self._context))
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("the list of jobs at rest could not be read, so all jobs are started: %s", error)
            return
        wanted = {job: slot.wanted for job, slot in slots.items() if slot.wanted is not None}
        try:
            found = read_stored(self._context, text, wanted)
        except (ValueError, KeyError, TypeError, OSError, SqlError) as error:
            logger.warning("the list of jobs at rest could not be read, so all jobs are started: %s", error)
            return
        secret = []
        for job, idle in found.items():
            if isinstance(idle, IdleSource) and secrets_in(idle.spec.options):
                secret.append((slots[job], idle))
            else:
                self.begin(slots[job], idle)
        if secret:
            recalled = {slot.job_id: idle for slot, idle in secret}
            with self._lock:
                self._recalled = dict(recalled)
            for slot, idle in secret:
                self._lay(slot, idle)
            # The call runs in the background, because a vault may take seconds for each secret.
            run_in_background(partial(self._watch_recalled, recalled), "recalling")

    def _watch_recalled(self, recalled: Mapping[str, IdleSource]) -> None:
        """Watches the sources ``recalled``, whose options contain secrets. Wakes those whose secrets cannot be read.
        This method is called on a thread of its own."""
        unreadable: set[SecretReference] = set()
        for job, idle in recalled.items():
            secrets = secrets_in(idle.spec.options).values()
            with self._lock:
                if self._recalled.get(job) is not idle:
                    continue  # The job was started in the meantime.
            options = None
            try:
                if not unreadable.intersection(secrets):
                    options = options_of(self._context, idle.spec)
            except Exception as error:
                # A secret's backend may raise any exception. The job is woken, and its start reports the error.
                logger.debug("the secrets of %s cannot be read", job, exc_info=error)
            with self._lock:
                if self._recalled.pop(job, None) is not idle:
                    continue
                if options is None:
                    unreadable.update(secrets)
                    self._renewed.add(job)
                else:
                    self._watch(job, idle, options)
            if options is None:
                self._wake()

    def take_changed(self) -> frozenset[int]:
        """The sources at rest whose splits may have changed, according to the watcher, since the last call. Discovery
        must check these sources."""
        changed, self._changed_sources = self._changed_sources, frozenset()
        return changed

    def begin(self, slot: JobSlot, idle: Idle) -> None:
        """Records that a job is at rest from now on."""
        self._lay(slot, idle)
        if isinstance(idle, IdleSource):
            options = options_of(self._context, idle.spec)
            if options is None:
                slot.wake()  # the start reports the secret that cannot be read
                return
            self._watch(slot.job_id, idle, options)
            return
        for given in idle.spec.inputs:
            self._readers[given.id][slot.job_id] = slot
        with self._lock:
            self._fresh.append(slot)

    @staticmethod
    def _lay(slot: JobSlot, idle: Idle) -> None:
        slot.is_woken, slot.problem, slot.behind = False, None, 0
        slot.idle = idle

    def _watch(self, job: str, idle: IdleSource, options: dict[str, str]) -> None:
        self._options.keep(job, idle.spec.options, options)
        watched = Watched(source_id=idle.spec.source_id, states=idle.states)
        self._watcher.watch(job, kind_of(idle.spec), options, watched)

    def end(self, slot: JobSlot) -> None:
        """Records that a job is about to be started or stopped. Afterwards, neither its upstream nor its inputs wake
        the job."""
        idle = slot.idle
        if isinstance(idle, IdleSource):
            with self._lock:
                self._recalled.pop(slot.job_id, None)
            self._options.forget(slot.job_id)
            self._watcher.forget(slot.job_id)
        elif idle is not None:
            for given in idle.spec.inputs:
                self._readers[given.id].pop(slot.job_id, None)

    def look(self, slots: Mapping[str, JobSlot], now: float, elsewhere: frozenset[int] = frozenset()) -> list[JobSlot]:
        """Makes one pass: wakes jobs at rest, and returns the slots of jobs that have been quiet for
        ``idle_job_timeout``. Whether such a job can rest is determined by :meth:`state_of`.

        ``elsewhere`` are the ids of the objects of other resource groups.
        """
        self._take_findings(slots)
        # An input may have been moved to another group since its reader came to rest.
        for input_id in elsewhere:
            for reader in tuple(self._readers.get(input_id, {}).values()):
                if not reader.is_woken:
                    reader.wake()
        for job in self._context.wakes.take():
            slot = slots.get(job)
            if slot is not None and slot.idle is not None:
                slot.is_queued = False  # A statement waits.
                slot.wake()
        awake = [slot for slot in slots.values() if slot.idle is None or slot.is_woken]
        active = frozenset(slot.object_id for slot in awake)
        with self._lock:
            fresh, self._fresh = self._fresh, []
        # Jobs that were active at the last pass may have committed since then.
        self._wake_readers(self._with_commits(awake, now) | (self._active - active), fresh)
        self._active = active
        with_readers = (slot.job_id for slot in awake if self._readers.get(slot.object_id))
        self._context.wakes.watch_inputs(frozenset(with_readers))
        self._context.wakes.has_rests = len(awake) < len(slots)
        self._note(slots, now)
        seconds = self._seconds()
        if seconds is None:
            for slot in slots.values():
                if slot.idle is not None and slot.running is None and not slot.is_woken:
                    slot.is_queued = True
                    slot.wake()
            return []
        return [slot for slot in awake if self._is_quiet(slot, now, seconds)]

    def state_of(self, slot: JobSlot) -> Idle | None:
        """The state at rest for a job that is about to rest. The result is None if the job must not rest now, or if an
        error prevents the check."""
        running, spec = slot.running, slot.going_to_rest
        if running is None or spec is None:
            return None
        try:
            return idle_state(self._context, spec, running)
        except Exception as error:  # noqa: BLE001 - a connector may raise any exception
            # The state at rest cannot be determined now, so the job keeps running.
            if not self._context.explains(error):
                logger.warning("%s does not rest: %s", slot.job_id, cause_line(str(error)))
            return None

    def after_stop(self, slot: JobSlot, idle: Idle) -> Idle:
        """The state at rest of a job that has just stopped."""
        running = slot.running
        if isinstance(running, Ingest | View | Sink):
            try:
                self._context.sessions.forget_tables(self._tables(idle))
            except Py4JError as error:
                # The job has stopped. After this error, Spark only keeps the tables' state in memory.
                logger.warning("Spark still caches the tables of %s: %s", slot.job_id, cause_line(str(error)))
        return idle if running is None else idle.after_stop(self._context, running)

    def _tables(self, idle: Idle) -> list[str]:
        """The paths of the tables that a job reads or writes. Spark caches the state of these tables."""
        own = self._context.warehouse.data(idle.spec.object_id, idle.spec.generation)
        return [own, *idle.versions] if isinstance(idle, IdleReader) else [own]

    def _is_quiet(self, slot: JobSlot, now: float, seconds: float) -> bool:
        """True if a running job has made no batch for ``seconds``, and if it has not been checked during this time. If
        the result is True, the present check is recorded."""
        running = slot.running
        if running is None or slot.is_working or running.spec != slot.wanted:
            return False
        since = max(slot.started_at, slot.looked_at)
        if not has_been_quiet(self._context, running, seconds, since=since, now=now):
            return False
        slot.looked_at = now
        return True

    def _seconds(self) -> float | None:
        snapshot = self._context.metastore.snapshot()
        if snapshot is not self._snapshot:
            self._snapshot, self._idle_seconds = snapshot, idle_job_seconds(snapshot)
        return self._idle_seconds

    def _with_commits(self, awake: Iterable[JobSlot], now: float) -> frozenset[int]:
        """The objects of jobs that are not at rest, as far as they may have committed since the last pass.

        The caller checks the tables of the result for commits. On a local path, such a check costs microseconds. In an
        object store, each check is a request. There, a table is checked only after a batch of its job, and all tables
        are checked every ``_REMOTE_SECONDS`` for other commits.
        """
        if self._context.warehouse.is_local or now >= self._next_remote_look:
            self._next_remote_look = now + _REMOTE_SECONDS
            return frozenset(slot.object_id for slot in awake)
        found = set()
        for slot in awake:
            batch = self._context.figures.last_batch(slot.job_id)
            if self._batches.get(slot.job_id) != batch:
                self._batches[slot.job_id] = batch
                found.add(slot.object_id)
        return frozenset(found)

    def _wake_readers(self, inputs: Iterable[int], fresh: list[JobSlot]) -> None:
        waiting = {slot.job_id: slot for slot in fresh}
        for input_id in inputs:
            readers = self._readers.get(input_id)
            if readers:
                waiting |= readers
        for slot in waiting.values():
            idle = slot.idle
            if isinstance(idle, IdleReader) and not slot.is_woken and not idle.is_current(self._context):
                slot.wake()

    def _take_findings(self, slots: Mapping[str, JobSlot]) -> None:
        with self._lock:
            findings, self._findings = self._findings, []
            renewed, self._renewed = self._renewed, set()
        for job in renewed:
            slot = slots.get(job)
            if slot is not None and isinstance(slot.idle, IdleSource) and not slot.is_woken:
                logger.info("%s is started: one of its secrets has another value, or cannot be read", job)
                slot.is_queued = True
                slot.wake()
        for finding in findings:
            self._changed_sources |= frozenset(finding.changed)
            for job in finding.answered:
                slot = slots.get(job)
                if slot is not None and slot.problem is not None:
                    slot.problem, slot.is_settled = None, False
            for job, problem in finding.problems.items():
                slot = slots.get(job)
                if slot is not None and slot.idle is not None and slot.problem != problem:
                    slot.problem, slot.is_settled = problem, False
            self._options.check(finding.problems)
            for job in finding.unknown:
                slot = slots.get(job)
                if slot is not None and isinstance(slot.idle, IdleSource) and not slot.is_woken:
                    logger.warning("%s is started: the upstream does not report the end of one of its splits", job)
                    slot.is_queued = True
                    slot.wake()
            for job, behind in finding.behind.items():
                slot = slots.get(job)
                if slot is None or not isinstance(slot.idle, IdleSource) or slot.is_woken:
                    continue
                slot.is_queued = True
                slot.wake(behind)
                # The source's readers are woken too, because they will soon have rows to read.
                for reader in tuple(self._readers.get(slot.object_id, {}).values()):
                    reader.is_queued = True
                    reader.wake(behind)

    def _report(self, finding: Finding) -> None:
        """Stores a finding of the watcher until the next pass. The watcher calls this method on its own threads."""
        with self._lock:
            is_over = bool(self._troubled) and not self._troubled.isdisjoint(finding.answered)
            if not (finding.behind or finding.changed or finding.problems or finding.unknown or is_over):
                return
            self._troubled = (self._troubled - frozenset(finding.answered)) | finding.problems.keys()
            self._findings.append(finding)
        self._wake()

    def _on_new_secrets(self, jobs: Collection[str]) -> None:
        """Requests that the next pass wakes the jobs whose secrets have changed. These jobs then read their secrets
        again. This method is called on another thread."""
        with self._lock:
            self._renewed.update(jobs)
        self._wake()

    def _note(self, slots: Mapping[str, JobSlot], now: float) -> None:
        """Writes the list of jobs at rest, in the background, if the list has changed. The next process keeps these
        jobs at rest."""
        if now < self._note_at or (self._noting is not None and not self._noting.done()):
            return
        at_rest = {job: slot.idle for job, slot in slots.items() if slot.idle is not None and not slot.is_woken}
        if at_rest == self._noted:
            return
        self._note_at, self._noted = now + _NOTE_SECONDS, at_rest
        self._noting = run_in_background(lambda: self._write(at_rest), "noting")

    def note_at_stop(self, slots: Mapping[str, JobSlot]) -> None:
        """Writes the list of jobs at rest a last time, if it has changed."""
        if self._noting is not None:
            self._noting.exception()
        at_rest = {job: slot.idle for job, slot in slots.items() if slot.idle is not None and not slot.is_woken}
        if at_rest != self._noted:
            self._write(at_rest)

    def _write(self, at_rest: Mapping[str, Idle]) -> None:
        try:
            self._context.warehouse.write_text(_file(self._context), stored(at_rest))
        except OSError as error:
            # The next process starts these jobs.
            if not self._context.explains(error):
                logger.warning("the list of jobs at rest could not be stored: %s", error)


def _file(context: Context) -> str:
    # Each group has a separate list, because each owner writes only its own list.
    name = "resting" if context.group == DEFAULT_GROUP else f"resting-{context.group}"
    return f"{context.warehouse.uri}/checkpoints/{name}.json"
