"""Checks whether the upstreams of sources at rest have new records. One request serves all sources of a cluster.
Without the watcher, each source would need a running reader with a query."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rw_sql.connectors.base import PooledConnector
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.model.split_status import OK, identity_status, still_asked
from rw_sql.runtime.support.failures import cause_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping

    from rw_sql.connectors.base import Connector, SplitState

logger = logging.getLogger(__name__)

LEAST_SECONDS = 0.25
"""The minimum interval between two checks of one cluster, in seconds."""

MOST_SECONDS = 5.0
"""The maximum delay in seconds after failed checks. A delay that ``_CPU_SHARE`` or ``_FAILED_CHECK_FACTOR`` requires
may be longer."""

_CPU_SHARE = 0.03
"""The share of a core that the checks of one cluster may use. A cluster with many splits is therefore checked less
often."""

TOPICS_SECONDS = 10.0
"""The interval in seconds at which the watcher checks whether topics have new partitions or were deleted and created
again."""

_ONE_BY_ONE_SECONDS = 1.0
"""The interval in seconds between two checks of one source whose connector does not read ranges, and the minimum delay
after a failed check of one source."""

_FAILED_CHECK_FACTOR = 16.0
"""The minimum time between a failed check of a source and the next check, as a multiple of the failed check's
duration."""

DISCOVERY_SECONDS = 10.0
"""The interval in seconds at which a reader checks for new splits if its options set no interval."""

DISCOVERY_OPTION = "refresh.interval.sec"

_APART = 16
"""If a connector needs a separate request for each source, the maximum number of threads that check the connector's
sources."""

_UNREACHABLE_CHECKS = 3
"""After this number of failed checks in a row, the checked sources are reported as unreachable."""

_UNKNOWN_CHECKS = 12
"""If this number of checks in a row does not return the end of a split, the job of the split's source is started. The
start of the job then reports why the end is unknown. While the leader of a split changes, fewer checks than this number
fail in a row, so a change of the leader does not start the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A source at rest, with its id and its positions."""

    source_id: int
    states: Mapping[str, SplitState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. ``behind`` maps each job to its number of unread records. ``changed`` contains the
    sources whose splits may have changed. ``problems`` maps each job to the reason why its upstream cannot be watched.

    ``answered`` are the jobs whose upstream has responded. Earlier problems of these jobs are therefore over.
    ``unknown`` are the jobs with a split whose end several successive checks could not read. These jobs must be
    started, because the start of a job reports the reason.
    """

    behind: Mapping[str, int] = field(default_factory=dict)
    changed: tuple[int, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    answered: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


Report: TypeAlias = "Callable[[Finding], None]"


@dataclass(slots=True)
class _Turn:
    """The time of the next check of a source that is checked separately, and the number of the source's failed checks
    in a row."""

    due_at: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class _Group:
    """The sources that one thread checks. A group consists of the sources of one cluster, or of some of the sources
    that are checked one by one."""

    kind: Connector
    options: Mapping[str, str]
    members: dict[str, Watched] = field(default_factory=dict)
    own_options: dict[str, Mapping[str, str]] = field(default_factory=dict)
    turns: dict[str, _Turn] = field(default_factory=dict)
    unknown_checks: dict[str, int] = field(default_factory=dict)
    topics_at: float = 0.0
    topics_failures: int = 0
    spent: tuple[float, ...] = ()
    """The CPU times of the last two checks of all ends, in seconds. Only the smaller of the two times is used, because
    a run of Python's garbage collector during a check takes ten times as long as the check."""

    failures: int = 0
    due: threading.Event = field(default_factory=threading.Event)

    def note_ends(self, checked: Mapping[str, Collection[str]], most: int = _UNKNOWN_CHECKS) -> tuple[str, ...]:
        """Counts, for each job, the successive checks that did not return the ends of all of the job's splits.

        ``checked`` maps each job of the latest check to its splits without an end. Returns the jobs for which at least
        ``most`` successive checks, including the latest one, did not return all ends.
        """
        known = self.unknown_checks
        unknown = {job: known.get(job, 0) + 1 for job, missing in checked.items() if missing}
        others = {job: checks for job, checks in known.items() if job in self.members and job not in checked}
        self.unknown_checks = others | unknown
        return tuple(job for job, checks in unknown.items() if checks >= most)

    def wait_after(self) -> float:
        """The time until the next check of all sources of a cluster, in seconds."""
        return max(
            min(LEAST_SECONDS * 2.0 ** min(self.failures, 8), MOST_SECONDS), min(self.spent, default=0.0) / _CPU_SHARE
        )

    def interval(self, options: Mapping[str, str]) -> float:
        """The interval, in seconds, between checks of one source. This interval equals the interval at which the
        source's reader would find new records."""
        if not isinstance(self.kind, RangedConnector):
            return max(LEAST_SECONDS, _ONE_BY_ONE_SECONDS)
        if self.kind.poll_seconds is not None:
            return max(LEAST_SECONDS, self.kind.poll_seconds)
        return discovery_seconds(self.kind, options)

    def note_check(self, job: str, options: Mapping[str, str], spent: float, took: float) -> None:
        """Plans the next check of one source. The previous check took ``spent`` seconds of CPU time, and ``took``
        seconds in total.

        A failed check may have waited for its timeout, and meanwhile the thread checked no other source. Therefore,
        after a failed check, the next check of this source begins only after a multiple of the time ``took``.
        """
        turn = self.turns[job]
        wait = self.interval(options)
        if turn.failures:
            retry = max(LEAST_SECONDS, _ONE_BY_ONE_SECONDS) * 2.0 ** min(turn.failures - 1, 8)
            wait = max(min(wait, retry), min(retry, MOST_SECONDS), took * _FAILED_CHECK_FACTOR)
        turn.due_at = time.monotonic() + max(wait, spent * len(self.members) / _CPU_SHARE * 4)


class UpstreamWatcher:
    """Watches the upstreams of sources at rest, with one thread per cluster, or with several threads per connector
    whose sources are checked one by one. Thread-safe.

    On these threads, ``report`` is called with the result of each successful check and, after several failed checks in
    a row, with the reason of the failure.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._groups: dict[Hashable, _Group] = {}
        self._group_of: dict[str, Hashable] = {}
        self._lock = threading.Lock()
        self._is_over = False

    def watch(self, job: str, kind: Connector, options: Mapping[str, str], watched: Watched) -> None:
        """Watches a source until :meth:`forget` is called. If the job is already watched with other options or
        positions, the new watch replaces the old one."""
        name = kind.spec.name
        is_pooled = isinstance(kind, PooledConnector)
        place = kind.pool_key(options) if isinstance(kind, PooledConnector) else watched.source_id % _APART
        key: Hashable = (name, place)
        with self._lock:
            self._forget(job)
            if self._is_over:
                return
            group = self._groups.get(key)
            is_new = group is None
            if group is None:
                group = self._groups[key] = _Group(kind=kind, options=options)
                group.topics_at = time.monotonic() + TOPICS_SECONDS
            group.members[job] = watched
            if not is_pooled:
                group.own_options[job], group.turns[job] = options, _Turn()
                group.due.set()
            self._group_of[job] = key
        if is_new:
            thread = threading.Thread(target=self._run, args=(key, group), name=f"rw_sql-watch-{name}", daemon=True)
            thread.start()

    def forget(self, job: str) -> None:
        """Ends watching a source."""
        with self._lock:
            self._forget(job)

    def _forget(self, job: str) -> None:
        key = self._group_of.pop(job, None)
        group = self._groups.get(key) if key is not None else None
        if group is None:
            return
        group.members.pop(job, None)
        group.own_options.pop(job, None)
        group.turns.pop(job, None)
        if not group.members:
            del self._groups[key]
            group.due.set()

    def stop(self) -> None:
        """Makes all threads end after their checks in progress. Only these checks can still report a change."""
        with self._lock:
            self._is_over = True
            groups = list(self._groups.values())
            self._groups, self._group_of = {}, {}
        for group in groups:
            group.due.set()

    def _run(self, key: Hashable, group: _Group) -> None:
        while True:
            try:
                self._check(group)
                group.failures = 0
            except Exception as error:  # noqa: BLE001 - a connector's edge
                # Applies to any exception of the client; the next check retries.
                group.failures += 1
                self._note_failure(group, error)
            if isinstance(group.kind, PooledConnector):
                wait = group.wait_after()
            else:
                with self._lock:
                    first = min((turn.due_at for turn in group.turns.values()), default=0.0)
                wait = max(0.0, first - time.monotonic())
            if group.due.wait(wait):
                group.due.clear()
            with self._lock:
                if self._groups.get(key) is not group:
                    return

    def _note_failure(self, group: _Group, error: Exception) -> None:
        if group.failures < _UNREACHABLE_CHECKS:
            return
        with self._lock:
            jobs = tuple(group.members)
        why = f"UNREACHABLE {cause_line(str(error)) or type(error).__name__}"
        self._report(Finding(problems=dict.fromkeys(jobs, why)))

    def _check(self, group: _Group) -> None:
        with self._lock:
            members, own = dict(group.members), dict(group.own_options)
        if isinstance(group.kind, PooledConnector):
            began = time.thread_time()
            self._check_all(group, group.kind, members)
            group.spent = (*group.spent[-1:], time.thread_time() - began)
            if time.monotonic() >= group.topics_at:
                self._check_topics(group, group.kind, members)
        else:
            with self._lock:
                failures = {job: turn.failures for job, turn in group.turns.items()}
            for job, watched in sorted(members.items(), key=lambda member: failures.get(member[0], 0)):
                turn, options = group.turns.get(job), own.get(job, group.options)
                if turn is None or time.monotonic() < turn.due_at:
                    continue
                began, cpu = time.monotonic(), time.thread_time()
                is_answered = self._check_one(group, job, watched, options, turn.failures)
                spent, took = time.thread_time() - cpu, time.monotonic() - began
                with self._lock:
                    turn.failures = 0 if is_answered else turn.failures + 1
                    if group.turns.get(job) is turn:
                        group.note_check(job, options, spent, took)
                if not is_answered:
                    return  # The check may have taken seconds. The next call begins with the sources that respond.

    def _check_all(self, group: _Group, kind: PooledConnector, members: Mapping[str, Watched]) -> None:
        splits = list(dict.fromkeys(split for watched in members.values() for split in watched.states))
        ends = kind.pooled_ends(group.options, splits)
        behind = {job: _behind(watched, ends) for job, watched in members.items()}
        missing = {job: [split for split in watched.states if split not in ends] for job, watched in members.items()}
        self._report(
            Finding(
                behind={job: records for job, records in behind.items() if records > 0},
                answered=tuple(job for job, splits in missing.items() if not splits),
                unknown=group.note_ends(missing),
            )
        )

    def _check_topics(self, group: _Group, kind: PooledConnector, members: Mapping[str, Watched]) -> None:
        began = time.thread_time()
        try:
            changed = self._changed_topics(group, kind, members)
        except Exception as error:  # noqa: BLE001 - a connector's edge
            # Only the check of the topics failed: the ends of the sources' splits are known, so the jobs have no
            # problem. The next check retries the topics.
            group.topics_failures += 1
            if group.topics_failures == 1:
                logger.warning("topics could not be checked: %s", cause_line(str(error)) or type(error).__name__)
        else:
            if group.topics_failures:
                logger.info("topics are checked again, after %d failures", group.topics_failures)
            group.topics_failures = 0
            if changed:
                self._report(Finding(changed=changed))
        wait = max(TOPICS_SECONDS, (time.thread_time() - began) / _CPU_SHARE)
        group.topics_at = time.monotonic() + wait

    def _changed_topics(self, group: _Group, kind: PooledConnector, members: Mapping[str, Watched]) -> tuple[int, ...]:
        """The sources with a topic that was deleted, was created again, or has splits that differ from those in the
        source's positions."""
        topics_of = {
            job: {group.kind.split_topic(split) for split in watched.states} for job, watched in members.items()
        }
        found = kind.pooled_topics(group.options, list(dict.fromkeys(t for names in topics_of.values() for t in names)))
        changed = []
        for job, watched in members.items():
            there = [found.get(topic) for topic in topics_of[job]]
            splits = {split for topic in there if topic is not None for split in topic.splits}
            identities = {split: topic.incarnation for topic in there if topic is not None for split in topic.splits}
            is_same = all(
                state.incarnation is None or identities.get(split) in (None, state.incarnation)
                for split, state in watched.states.items()
            )
            if splits != watched.states.keys() or not is_same:
                changed.append(watched.source_id)
        return tuple(changed)

    def _check_one(self, group: _Group, job: str, watched: Watched, options: Mapping[str, str], failures: int) -> bool:
        """Checks one source; returns False if its upstream does not respond. ``failures`` is the number of failed
        checks in a row before this check."""
        try:
            upstream = group.kind.look(options)
            error = upstream.error
        except Exception as caught:  # noqa: BLE001 - a connector's edge
            error = cause_line(str(caught)) or type(caught).__name__
        if error is not None:
            if failures + 1 >= _UNREACHABLE_CHECKS:
                self._report(Finding(problems={job: f"UNREACHABLE {error}"}))
            return False
        ends = {split: seen.end for split, seen in upstream.splits.items()}
        is_same = all(
            identity_status(state, upstream.splits[split]) == OK
            for split, state in watched.states.items()
            if split in upstream.splits
        )
        has_changed = bool(upstream.missing) or not is_same or not ends.keys() <= watched.states.keys()
        asked = still_asked(group.kind, tuple(watched.states), watched.states, upstream)
        missing = frozenset(asked) - ends.keys()
        behind = _behind(watched, ends)
        self._report(
            Finding(
                behind={job: behind} if behind > 0 else {},
                changed=(watched.source_id,) if has_changed else (),
                answered=() if missing else (job,),
                unknown=group.note_ends({job: missing}, _UNREACHABLE_CHECKS),
            )
        )
        return True


def discovery_seconds(kind: Connector, options: Mapping[str, str]) -> float:
    """The interval at which a source's reader checks for new splits, in seconds."""
    given = kind.spec.value(options, DISCOVERY_OPTION)
    return DISCOVERY_SECONDS if given is None else float(given)


def _behind(watched: Watched, ends: Mapping[str, int]) -> int:
    """The number of offsets between a source's positions and the ends of its splits. Splits whose ends are unknown do
    not count.

    If the end of a split is below the position, the split counts as one offset. As a result, the reader is started, and
    its start reports why the end is below the position.
    """
    found = (ends[split] - state.offset for split, state in watched.states.items() if split in ends)
    return sum(1 if more < 0 else more for more in found)
