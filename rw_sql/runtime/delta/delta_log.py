"""Reads the metadata of jobs' commits from a Delta table's log, without opening the table. Also determines a table's
id.

Every commit of a job has ``userMetadata`` in its ``commitInfo`` action (Delta protocol, "Commit Provenance
Information"). This text is a JSON object in which the key ``rw_sql`` has the job's metadata. Commits without such
metadata, such as those of upkeep, are skipped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

if TYPE_CHECKING:
    from rw_sql.runtime.support.warehouse import PlainFiles, Warehouse

METADATA_KEY = "rw_sql"

SplitIdentity = tuple[str | None, str | None]
"""The cluster and the incarnation of a split (Kafka: cluster id and topic id). An unknown cluster or incarnation is
None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommit:
    """The metadata of one commit by a job: the run and the batch that wrote the commit, and the offsets of the batch's
    records.

    For a job that reads an upstream, ``ranges`` contains the range of upstream offsets ``[start, end)`` for each split.
    ``epoch`` is the epoch of the catalog at which the run started. ``batch`` is -1 for a fence. In a fence, ``done`` is
    the last earlier batch of the generation (-1 if there is none). With ``done``, a starting run finds the last batch
    by reading only the last commit. ``generation`` is the generation of the job's table and checkpoint. ``lives`` maps
    each split to the cluster and the incarnation (Kafka: topic id) from which it was read. ``rewind`` is the epoch of
    the REWIND that restored the table with this commit; 0 in other commits. ``tables`` is the progress of snapshots
    (change data capture only); a commit without new progress may omit it. ``rows`` maps each upstream table to the
    number of its rows in the commit (change data capture only; None in commits of earlier versions of rw_sql).
    ``terms`` maps each split to the term of its log (Kafka: leader epoch) at the end of the split's range, if this term
    is known (see :class:`rw_sql.connectors.base.SplitState`). ``sent`` is the last batch whose rows were sent to the
    target of a sink; empty batches are not sent. ``sent`` is -1 if no batch was sent, and None if the last sent batch
    is unknown. ``merged`` is the number of rows that a merge adds, replaces or deletes. ``merged`` is set only if the
    commit of the merge has no counters from the library that wrote the commit (see :func:`written_rows`).
    """

    job: str
    run: int
    epoch: int
    batch: int
    generation: int = 1
    ranges: dict[str, tuple[int, int]]
    done: int = -1
    lives: Mapping[str, SplitIdentity] = field(default_factory=dict)
    rewind: int = 0
    tables: Mapping[str, list[str]] = field(default_factory=dict)
    rows: Mapping[str, int] | None = None
    terms: Mapping[str, int] = field(default_factory=dict)
    sent: int | None = None
    merged: int | None = None

    def identity_of(self, split: str) -> SplitIdentity:
        """The cluster and the incarnation from which a split was read. Each of these two values is None if the commit
        does not contain it."""
        return self.lives.get(split, (None, None))

    @property
    def newest_batch(self) -> int:
        """The number of the generation's last batch at the time of this commit; -1 if the generation has no batch."""
        return self.batch if self.batch >= 0 else self.done

    def to_json(self) -> str:
        """The text for ``userMetadata``."""
        body: dict[str, Any] = {"job": self.job, "run": self.run, "epoch": self.epoch, "batch": self.batch}
        body["generation"] = self.generation
        if self.batch < 0:
            body["done"] = self.done
        if self.rewind:
            body["rewind"] = self.rewind
        body["ranges"] = {split: list(bounds) for split, bounds in self.ranges.items()}
        if self.lives:
            by_life: dict[SplitIdentity, list[str]] = {}
            for split in self.ranges:
                by_life.setdefault(self.identity_of(split), []).append(split)
            # Splits with the same identity share an entry, because usually all splits belong to one topic.
            body["lives"] = [[*life, None if len(by_life) == 1 else splits] for life, splits in by_life.items()]
        if self.tables:
            body["tables"] = self.tables
        if self.rows is not None:
            body["rows"] = self.rows
        if self.sent is not None:
            body["sent"] = self.sent
        if self.merged is not None:
            body["merged"] = self.merged
        if self.terms:
            by_term: dict[int | None, list[str]] = {}
            for split in self.ranges:
                by_term.setdefault(self.terms.get(split), []).append(split)
            # Splits with the same term share an entry, because usually only a few different terms occur.
            body["terms"] = [[term, None if len(by_term) == 1 else splits] for term, splits in by_term.items()]
        return json.dumps({METADATA_KEY: body}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> JobCommit | None:
        """Parses the text of ``userMetadata``; None if the text is not that of a job's commit."""
        try:
            body = json.loads(text).get(METADATA_KEY)
        except (json.JSONDecodeError, AttributeError):
            return None
        if not isinstance(body, dict):
            return None
        ranges = {split: (bounds[0], bounds[1]) for split, bounds in body["ranges"].items()}
        return JobCommit(
            job=body["job"],
            run=body["run"],
            epoch=body["epoch"],
            batch=body["batch"],
            generation=body["generation"],
            ranges=ranges,
            done=body.get("done", -1),
            rewind=body.get("rewind", 0),
            tables=body.get("tables", {}),
            rows=body.get("rows"),
            sent=body.get("sent"),
            merged=body.get("merged"),
            terms={
                split: term
                for term, splits in body.get("terms", [])
                if term is not None
                for split in (ranges if splits is None else splits)
            },
            lives={
                split: (cluster, incarnation)
                for cluster, incarnation, splits in body.get("lives", [])
                for split in (ranges if splits is None else splits)
            },
        )


def _is_commit(name: str) -> bool:
    return len(name) == 25 and name.endswith(".json") and name[:20].isdecimal()


# The newest known version of each table, by path.
_seen: dict[str, int] = {}

_PAGE = 1000
"""The number of names that one listing request to an object store returns."""

_LISTING_SECONDS = 600.0
"""The time in seconds after which a long log in an object store is listed again, because clean-up may have shortened
the log in the meantime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The newest version of a table in an object store, and facts about the last listing of the table's log: the number
    of commits and the time in monotonic seconds."""

    newest: int
    commits: int
    listed_at: float


# The last :class:`_Look` at each table in an object store, by the table's URI.
_looks: dict[str, _Look] = {}


def latest_version(warehouse: Warehouse, table: str) -> int:
    """The table's newest version; -1 if there is no table.

    On a local path, this function looks only for versions after the newest version that an earlier call has found. A
    listing of a log with 100,000 commits would take half a second. In an object store, this function avoids the listing
    only if it would take several requests.
    """
    files = warehouse.files_at(table)
    if not files.is_local:
        return _latest_in_store(warehouse, files, table)
    version = _seen.get(table, -1)
    if version < 0 or not files.exists(commit_path(table, version)):
        version = max(commit_versions(warehouse, table), default=-1)
    while files.exists(commit_path(table, version + 1)):
        version += 1
    _seen[table] = version
    return version


def _latest_in_store(warehouse: Warehouse, files: PlainFiles, table: str) -> int:
    known, now = _looks.get(table), time.monotonic()
    if known is not None and known.commits > _PAGE and now - known.listed_at < _LISTING_SECONDS:
        # If a user may list only some folders, a store may refuse to report whether a file exists.
        with suppress(PermissionError):
            newest = _newest_from(lambda version: files.has_file(commit_path(table, version)), known.newest)
            if newest is not None:
                _looks[table] = replace(known, newest=newest)
                return newest
    versions = commit_versions(warehouse, table)
    found = _Look(newest=max(versions, default=-1), commits=len(versions), listed_at=now)
    _looks[table] = found
    return found.newest


def _newest_from(exists: Callable[[int], bool], known: int) -> int | None:
    """Returns the newest version of a log that has had the version ``known``; None if only a listing can show the
    newest version.

    The number of calls of ``exists`` grows with the logarithm of the number of new versions. There is no gap between
    existing versions, because the oldest versions are cleaned up first. The last call of ``exists`` checks that the
    resulting version was not cleaned up in the meantime.
    """
    low, step = known, 1
    while exists(low + step):
        low += step
        step *= 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if exists(middle):
            low = middle
        else:
            high = middle
    return low if exists(low) else None


def commit_versions(warehouse: Warehouse, table: str) -> list[int]:
    """The versions with existing commit files, ascending. Lists the whole log."""
    names = warehouse.files_at(table).list_names(f"{table}/_delta_log")
    return sorted(int(name[:20]) for name in names if _is_commit(name))


def commit_path(table: str, version: int) -> str:
    """The path of a version's commit file."""
    return f"{table}/_delta_log/{version:020d}.json"


def has_commit(warehouse: Warehouse, table: str, version: int) -> bool:
    """True if the commit file of a version exists."""
    return warehouse.files_at(table).exists(commit_path(table, version))


def read_actions(warehouse: Warehouse, table: str, version: int) -> list[dict[str, Any]]:
    """Reads the actions of one commit. Raises FileNotFoundError if the commit's file was cleaned up."""
    text = warehouse.files_at(table).read_text(commit_path(table, version))
    # Does not use splitlines(), which also splits at characters that JSON contains unescaped, such as U+0085 in
    # statistics.
    return [json.loads(line) for line in text.split("\n") if line]


def table_id(warehouse: Warehouse, table: str) -> str:
    """The Delta id of a table. Raises TableNotFoundError if there is no table.

    In the warehouse, a table's first commit contains the id, which no later commit changes. Reading this commit takes a
    fiftieth of the time of opening the table. A table outside the warehouse is opened, because another program may have
    replaced the table with a table that has another id.
    """
    if table.startswith(f"{warehouse.uri}/"):
        try:
            actions = read_actions(warehouse, table, 0)
        except FileNotFoundError:  # the first commit was cleaned up, or there is no table
            actions = []
        for action in actions:
            if "metaData" in action:
                return str(action["metaData"]["id"])
    warehouse.files_at(table)  # completes the environment variables for the table's store, which delta-rs reads
    return str(DeltaTable(table).metadata().id)


def commits(
    warehouse: Warehouse, table: str, *, down_to: int = 0, newest: int | None = None
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The existing commits with their actions, newest first, from the version ``newest`` (None: the latest) down to the
    version ``down_to``."""
    for version in range(latest_version(warehouse, table) if newest is None else newest, down_to - 1, -1):
        try:
            actions = read_actions(warehouse, table, version)
        except FileNotFoundError:  # this commit and all earlier ones were cleaned up
            return
        yield version, actions


def job_commit(actions: list[dict[str, Any]]) -> JobCommit | None:
    """The job metadata in a commit's actions; None if the commit is not a job's."""
    for action in actions:
        info = action.get("commitInfo")
        if info is not None and isinstance(info.get("userMetadata"), str):
            return JobCommit.from_json(info["userMetadata"])
    return None


def job_commits(warehouse: Warehouse, table: str, *, down_to: int = 0) -> Iterator[tuple[int, JobCommit]]:
    """The jobs' commits, newest first, down to the version ``down_to``."""
    for version, actions in commits(warehouse, table, down_to=down_to):
        found = job_commit(actions)
        if found is not None:
            yield version, found


def restored_version(actions: list[dict[str, Any]]) -> int | None:
    """The version to which a RESTORE commit restored the table; None for any other commit."""
    for action in actions:
        info = action.get("commitInfo")
        if info is not None and info.get("operation") == "RESTORE":
            version = info.get("operationParameters", {}).get("version")
            return int(version) if version is not None else None
    return None


def standing_commits(
    warehouse: Warehouse, table: str, *, down_to: int = 0, newest: int | None = None
) -> Iterator[tuple[int, JobCommit]]:
    """Does the same as :func:`job_commits`, but omits the commits that a later RESTORE reverted. A RESTORE after the
    version ``newest`` does not count."""
    below: int | None = None
    for version, actions in commits(warehouse, table, down_to=down_to, newest=newest):
        if below is not None and version > below:
            continue
        back_to = restored_version(actions)
        if back_to is not None:
            below = back_to
        found = job_commit(actions)
        if found is not None:
            yield version, found


def last_commit(warehouse: Warehouse, table: str, generation: int) -> JobCommit | None:
    """The last job commit of a generation; None if the table has no job commit of this generation."""
    return next((commit for _, commit in job_commits(warehouse, table) if commit.generation == generation), None)


def last_batch(warehouse: Warehouse, table: str, generation: int) -> int:
    """The last batch of a generation in the table; -1 if the table has no batch of this generation."""
    commit = last_commit(warehouse, table, generation)
    return -1 if commit is None else commit.newest_batch


def committed_ms(actions: list[dict[str, Any]]) -> int | None:
    """The time of a commit according to its writer's clock, in milliseconds since 1970; None if the commit does not
    state a time."""
    for action in actions:
        info = action.get("commitInfo")
        if info is not None and info.get("timestamp") is not None:
            return int(info["timestamp"])
    return None


def added_rows(actions: list[dict[str, Any]]) -> int | None:
    """The number of rows that a commit adds as new data; None if an added file has no statistics."""
    rows = 0
    for action in actions:
        add = action.get("add")
        if add is None or not add.get("dataChange", True):
            continue
        stats = add.get("stats")
        if not stats:
            return None
        rows += int(json.loads(stats)["numRecords"])
    return rows


def written_bytes(actions: list[dict[str, Any]]) -> int:
    """The total size in bytes of the files with a commit's new rows. These files are the commit's change feed files, if
    there are any, and otherwise the data files that the commit adds as new data."""
    feed = [action["cdc"] for action in actions if "cdc" in action]
    added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
    return sum(int(file.get("size", 0)) for file in feed or added)


def rows_of_table(actions: list[dict[str, Any]], upstream: str) -> int | None:
    """The number of rows of an upstream table that a commit adds to a source's log; None if the commit does not contain
    this number."""
    if added_rows(actions) == 0:
        return 0
    made = job_commit(actions)
    return None if made is None or made.rows is None else made.rows.get(upstream, 0)


_Counter = tuple[str, str]
"""The two names of a counter in ``operationMetrics``: the name in delta-rs and the name in Spark."""

_INSERTED: _Counter = ("num_target_rows_inserted", "numTargetRowsInserted")
_DELETED: _Counter = ("num_target_rows_deleted", "numTargetRowsDeleted")
_UPDATED: _Counter = ("num_target_rows_updated", "numTargetRowsUpdated")

_WRITTEN: Mapping[str, tuple[_Counter, ...]] = {
    "MERGE": (_INSERTED, _DELETED, _UPDATED),
    "UPDATE": (("num_updated_rows", "numUpdatedRows"),),
    "DELETE": (("num_deleted_rows", "numDeletedRows"),),
}
"""Maps each operation that rewrites files to the counters of the rows that the operation changes. The counter for rows
that are copied unchanged from the old files is not included."""


def _info(actions: list[dict[str, Any]]) -> dict[str, Any]:
    """The ``commitInfo`` of a commit; empty if the commit has no ``commitInfo``."""
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def _counts(info: Mapping[str, Any], counters: tuple[_Counter, ...]) -> list[int] | None:
    """The values of ``counters`` in a commit; None if the commit lacks one of them."""
    metrics = info.get("operationMetrics") or {}
    found = [metrics.get(of_delta_rs, metrics.get(of_spark)) for of_delta_rs, of_spark in counters]
    known = [int(count) for count in found if count is not None]
    return known if len(known) == len(found) else None


def changed_rows(actions: list[dict[str, Any]]) -> int | None:
    """The number of rows that a commit adds to the table's change feed; None if the commit does not show this
    number.

    For an updated row, the feed has two rows: a row with the old values and a row with the new values.
    """
    if any("cdc" in action for action in actions):
        counts = _counts(_info(actions), (_INSERTED, _DELETED, _UPDATED, _UPDATED))
        return None if counts is None else sum(counts)
    if takes_data(actions):
        return None
    return added_rows(actions)


def written_rows(actions: list[dict[str, Any]]) -> int | None:
    """The number of rows that a commit adds, replaces or removes, each counted once; None if the commit does not show
    this number.

    Rows that are only copied from a replaced file into a new file do not count.
    """
    if not takes_data(actions):
        return added_rows(actions)
    info = _info(actions)
    counts = _counts(info, _WRITTEN.get(info.get("operation", ""), ()))
    if counts:
        return sum(counts)
    made = job_commit(actions)
    return None if made is None else made.merged


def rows_without(actions: list[dict[str, Any]], column: str) -> int | None:
    """The number of rows that a commit adds with NULL in a column; None if an added file has no statistics of that
    column."""
    rows = 0
    for action in actions:
        add = action.get("add")
        if add is None or not add.get("dataChange", True):
            continue
        nulls = json.loads(add.get("stats") or "{}").get("nullCount", {}).get(column)
        if nulls is None:
            return None
        rows += int(nulls)
    return rows


def column_count(actions: list[dict[str, Any]], column: str | None) -> int:
    """The number of rows that a commit adds as new data. If ``column`` is given, only the rows where this column is not
    NULL count.

    The rows of files without statistics do not count.
    """
    found = 0
    for action in actions:
        add = action.get("add")
        if add is None or not add.get("dataChange", True) or not add.get("stats"):
            continue
        stats = json.loads(add["stats"])
        nulls = 0 if column is None else stats.get("nullCount", {}).get(column)
        found += 0 if nulls is None else int(stats.get("numRecords", 0)) - int(nulls)
    return found


def has_new_data(actions: list[dict[str, Any]]) -> bool:
    """True if a commit adds new rows. Commits of upkeep add no new rows, and neither do fences (except for the first
    rows of a new table)."""
    return any(action["add"].get("dataChange", True) for action in actions if "add" in action)


def takes_data(actions: list[dict[str, Any]]) -> bool:
    """True if a commit removes or replaces rows. Compaction removes files, but no rows."""
    return any(action["remove"].get("dataChange", True) for action in actions if "remove" in action)
