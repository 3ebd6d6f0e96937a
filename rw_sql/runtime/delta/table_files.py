"""Deletes the files of a Delta table that no reader needs: commits, checksums, replaced files, and files that killed
writers left behind.

Only a commit's file records which data files the commit replaced. A commit is therefore cleaned up in three steps:
store a list of the replaced files, delete the commit's file, and delete the listed files when no reader can need them
any more. After a crash at any point, the next run completes the remaining steps. It does no harm if two lists name the
same file.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from rw_sql.runtime.delta.delta_log import commit_path, commit_versions, read_actions
from rw_sql.runtime.delta.restores import Restores
from rw_sql.runtime.delta.staged_files import WRITTEN
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from deltalake import DeltaTable

    from rw_sql.runtime.support.warehouse import Warehouse

GRACE_SECONDS = 3600.0
"""The time in seconds for which a replaced file is kept after the commit that replaced it is cleaned up. A query may
still read an older version of the table."""

COMMITS_GRACE_SECONDS = 20.0
"""The time in seconds for which a commit is kept after a checkpoint covers it. A query that listed the log earlier may
still read the commit.

Spark's streams list the log at every poll, and every file in the log slows down a listing. A longer time therefore
makes each batch slower.
"""

_MOST_UNLISTED = 1_000
"""The maximum number of versions whose checksums are removed without listing the log first."""

MOST_CHECKSUMS = 20
"""The number of newest versions whose checksums are kept.

Readers usually open one of these versions. For an older version, which has no checksum, Spark computes the state of the
table itself.
"""

ORPHAN_SECONDS = 24 * 3600.0
"""The age in seconds from which a file that no commit references counts as left behind by a killed writer."""

_CHECKSUM = re.compile(r"(\d{20})\.crc")
_LOG_FILE = re.compile(r"\.?(\d{20})\.(json|crc|json\.crc|crc\.crc|crc\.\w+\.writing|checkpoint\..*)")
_WHOLE_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


@dataclass(slots=True, kw_only=True)
class TableFiles:
    """The files of one table. Only a process whose runs write the table uses this class. Between two of its runs,
    another process may write the table.

    ``pending`` is the folder with the lists of replaced files that have not been deleted yet.

    While a reader makes no progress, the commits of several days may have to be kept. Even then, no method lists the
    log at every call, or reads a commit twice.
    """

    warehouse: Warehouse
    table: str
    pending: str
    _removed: RemovedFiles = field(init=False)
    _restores: Restores = field(init=False)
    _checkpoints: set[int] | None = field(default=None, init=False)
    _kept_from: int = field(default=-1, init=False)
    _checksums_to: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        self._removed = RemovedFiles(warehouse=self.warehouse, table=self.table)
        self._restores = Restores(warehouse=self.warehouse, table=self.table)

    def write_checkpoint(self, table: DeltaTable) -> None:
        """Writes a checkpoint of the version of ``table``."""
        table.create_checkpoint()
        if self._checkpoints is not None:
            self._checkpoints.add(table.version())

    def oldest_needed(self, bound: int, *, keeps_restores: bool = False) -> int | None:
        """Returns the newest version, at most ``bound``, before which all commits can be deleted. Returns None if there
        is no such version.

        A complete checkpoint of this version exists. The checkpoint is older than :data:`COMMITS_GRACE_SECONDS`, so no
        reader needs earlier commits. If ``keeps_restores`` is true, no RESTORE commit at this version or later restores
        an earlier version. The stored history of the deleted commits then contains either both the reverted commits and
        the RESTORE commit, or neither of them.
        """
        if self._checkpoints is None:
            self._checkpoints = set(_whole_checkpoints(self._log_names()))
        known = self._newest_of(self._checkpoints, bound, keeps_restores=keeps_restores)
        if known is None or known == self._kept_from:
            return known
        names = self.warehouse.older_files(f"{self.table}/_delta_log", COMMITS_GRACE_SECONDS)
        found = _whole_checkpoints(names)
        self._checkpoints.update(found)
        return self._newest_of(found, bound, keeps_restores=keeps_restores)

    def _newest_of(self, checkpoints: Collection[int], bound: int, *, keeps_restores: bool) -> int | None:
        while True:
            known = max((version for version in checkpoints if version <= bound), default=None)
            if known is None or known == self._kept_from or not keeps_restores:
                return known
            back_to = self._restores.restored_before(known)
            if back_to is None:
                return known
            bound = back_to

    def clean_commits(self, keep_from: int) -> int:
        """Deletes the commits, checkpoints and checksums before ``keep_from``, which is a version with a checkpoint.
        Returns the number of deleted commits.

        Before the deletion, stores the list of the data files that these commits replaced.
        """
        if keep_from == self._kept_from:
            return 0
        old = sorted(
            (int(match[1]), name)
            for name in self._log_names()
            if (match := _LOG_FILE.fullmatch(name)) and int(match[1]) < keep_from
        )
        commits = [version for version, name in old if name.endswith(".json")]
        if not old:
            self._kept_from = keep_from
            return 0
        replaced: list[str] = []
        for version in commits:
            replaced += _replaced(read_actions(self.warehouse, self.table, version))
        if replaced:
            body = {"at_ms": int(time.time() * 1000), "files": replaced}
            # The name contains the range, because after a kill the next run lists the rest and must not overwrite this
            # list.
            name = f"{commits[0]:020d}-{keep_from:020d}.json"
            text = json.dumps(body, separators=(",", ":"))
            self.warehouse.write_text(f"{self.pending}/{name}", text, is_durable=True)
        fault("upkeep.listed")
        # The oldest commits are deleted first, so that the log has no gap if the process is killed.
        for _, name in old:
            self.warehouse.remove(f"{self.table}/_delta_log/{name}")
            fault("upkeep.cleaning")
        self._kept_from = keep_from
        if self._checkpoints is not None:
            self._checkpoints = {version for version in self._checkpoints if version >= keep_from}
        return len(commits)

    def clean_checksums(self, newest: int) -> None:
        """Deletes the version checksums of all but the newest versions.

        Readers can do without checksums. Without this clean-up, half of the files in a log would be checksums.
        """
        last = newest - MOST_CHECKSUMS
        if last < 0:
            return
        old: Iterable[int] = range(max(self._checksums_to + 1, self._kept_from), last + 1)
        # Other processes may have written many versions since the last call, and may have cleaned up most of their own
        # checksums. A listing then finds the remaining checksums.
        if self._checksums_to < 0 or last - self._checksums_to > _MOST_UNLISTED:
            found = (int(match[1]) for name in self._log_names() if (match := _CHECKSUM.fullmatch(name)))
            old = [version for version in found if version <= last]
        for version in old:
            self.warehouse.remove(f"{self.table}/_delta_log/{version:020d}.crc")
        self._checksums_to = last

    def remove_replaced(self, live: Collection[str]) -> int:
        """Deletes the files that are named in lists older than :data:`GRACE_SECONDS`; returns the number of deleted
        files.

        Keeps ``live`` files, and files that an existing commit removed from the table. A list may name such a file if a
        REWIND has restored it and a later commit has removed it again. The table's versions between these two commits
        need the file. When the later commit is cleaned up, the file is listed again.

        Also deletes lists of this age that cannot be read. The files in such a list then count as left behind
        (:meth:`remove_orphans`).
        """
        removed = 0
        later: Collection[str] | None = None
        now_ms = time.time() * 1000
        for name in self._lists():
            body = self.warehouse.read_json(f"{self.pending}/{name}")
            if body is None:
                self._remove_older([name], GRACE_SECONDS)
                continue
            if now_ms - body["at_ms"] < GRACE_SECONDS * 1000:
                continue
            if later is None:
                later = self._removed.paths()
            for path in body["files"]:
                if path not in live and path not in later:
                    self.warehouse.remove(f"{self.table}/{path}")
                    removed += 1
                    fault("upkeep.removing")
            self.warehouse.remove(f"{self.pending}/{name}")
        return removed

    def remove_orphans(self, live: Collection[str]) -> int:
        """Deletes old files that a killed writer left behind, and that no commit and no list names; returns the number
        of files.

        Does not delete a file that a readable version of the table needs. Such a file is either live, or was removed by
        a later commit that still exists. If a list cannot be read, deletes no file, because queries in progress may
        need the files in that list.

        Reads commits, newest first, only until every old file has been found in a commit. Usually, no commit has to be
        read.
        """
        self._remove_older(
            [name for name in self.warehouse.list_names(self.pending) if name.endswith(".writing")], ORPHAN_SECONDS
        )
        old = self.warehouse.older_files(self.table, ORPHAN_SECONDS)
        left = {path for path in old if _is_data(path)}.difference(live)
        listed = self._listed() if left else None
        if listed is None:
            return 0
        left -= listed
        for version in reversed(commit_versions(self.warehouse, self.table)) if left else ():
            actions = read_actions(self.warehouse, self.table, version)
            left.difference_update(_replaced(actions))
            left.difference_update(unquote(action["add"]["path"]) for action in actions if "add" in action)
            if not left:
                break
        # In the meantime, another process may have cleaned up commits. Before the clean-up, that process wrote the list
        # of the files that these commits replaced.
        listed = self._listed() if left else None
        if listed is None:
            return 0
        left -= listed
        for path in sorted(left):
            self.warehouse.remove(f"{self.table}/{path}")
        return len(left)

    def _listed(self) -> set[str] | None:
        """The files in all lists of replaced files; None if a list cannot be read."""
        found: set[str] = set()
        for name in self._lists():
            body = self.warehouse.read_json(f"{self.pending}/{name}")
            if body is None:
                return None
            found.update(body["files"])
        return found

    def _lists(self) -> list[str]:
        """The names of the lists of replaced files. The folder may also contain files that a killed process left
        behind while it wrote a list."""
        return sorted(name for name in self.warehouse.list_names(self.pending) if name.endswith(".json"))

    def _remove_older(self, names: Collection[str], seconds: float) -> None:
        """Deletes those files in the folder of the lists that are older than ``seconds``."""
        if not names:
            return
        for name in self.warehouse.older_files(self.pending, seconds):
            if name in names:
                self.warehouse.remove(f"{self.pending}/{name}")

    def _log_names(self) -> list[str]:
        return self.warehouse.list_names(f"{self.table}/_delta_log")


@dataclass(slots=True, kw_only=True)
class RemovedFiles:
    """The files that the existing commits of a table removed from the table.

    Each commit is read only once, because a reader or a rewind point that is far behind keeps many commits.
    """

    warehouse: Warehouse
    table: str
    _removed: dict[str, int] = field(default_factory=dict, init=False)
    _read_to: int = field(default=-1, init=False)

    def paths(self) -> Collection[str]:
        """The paths of the files, relative to the table's folder."""
        versions = commit_versions(self.warehouse, self.table)
        oldest = versions[0] if versions else 0
        if min(self._removed.values(), default=oldest) < oldest:
            self._removed = {path: version for path, version in self._removed.items() if version >= oldest}
        for version in versions:
            if version <= self._read_to:
                continue
            text = self.warehouse.read_text(commit_path(self.table, version))
            for line in text.split("\n"):
                if line.startswith('{"remove"'):
                    self._removed[unquote(json.loads(line)["remove"]["path"])] = version
            self._read_to = version
        return self._removed.keys()


def live_files(table: DeltaTable) -> frozenset[str]:
    """The paths of the files of a table at the version of ``table``, relative to the table's folder."""
    files = pa.table(table.get_add_actions(flatten=True))
    return frozenset(unquote(path) for path in files.column("path").to_pylist())


def _replaced(actions: Iterable[dict[str, Any]]) -> list[str]:
    """The files that a commit removed from the table, and its change feed files."""
    kinds = ("remove", "cdc")
    return [unquote(action[kind]["path"]) for action in actions for kind in kinds if kind in action]


def _whole_checkpoints(names: Iterable[str]) -> list[int]:
    """The versions of the complete checkpoints among the files of a log."""
    return [int(match[1]) for name in names if (match := _WHOLE_CHECKPOINT.fullmatch(name))]


def _is_data(path: str) -> bool:
    """True if a file may be a data file of the table. Every file in the folder WRITTEN counts, because a killed writer
    may have left other files there."""
    return path.startswith(f"{WRITTEN}/") or (path.endswith(".parquet") and not path.startswith("_delta_log/"))
