"""Parses commits of a Delta table: finds the files that a commit appended, and whether the commit changed existing
rows.

A commit is a file of JSON lines (Delta protocol, "Actions"). ``add`` and ``remove`` actions with ``dataChange`` false,
such as the actions of OPTIMIZE, move rows to other files without changing the rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import fsspec

from rw_sql.object_stores import client_errors

_COMMITS_AT_ONCE = 100
"""The number of commits that are read at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedFile:
    """A file of rows that a commit appended. ``path`` is absolute or relative to the table. ``partition`` contains the
    names of the partition columns and the file's values as text. ``rows`` is the number of rows; None if the commit
    does not contain this number."""

    path: str
    partition: tuple[tuple[str, str | None], ...] = ()
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One commit. If the commit changed existing rows, ``changes`` is the name of its operation, such as MERGE.
    Otherwise, ``changes`` is empty."""

    version: int
    appended: tuple[AppendedFile, ...] = ()
    changes: str = ""


def read_commit(table: str, version: int) -> TableCommit | None:
    """Reads a commit. Returns None if the commit does not exist, or if the log's cleanup has removed it. Raises
    OSError."""
    try:
        files, path = fsspec.core.url_to_fs(
            f"{table.rstrip('/')}/_delta_log/{version:020d}.json", use_listings_cache=False
        )
        with client_errors():
            lines = files.cat_file(path).decode("utf-8").split("\n")
    except FileNotFoundError:
        return None
    actions = [json.loads(line) for line in lines if line.strip()]
    adds = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    removes = [action["remove"] for action in actions if action.get("remove", {}).get("dataChange", False)]
    changes = ""
    if removes or any(add.get("deletionVector") for add in adds):
        changes = next((str(action["commitInfo"].get("operation")) for action in actions if "commitInfo" in action), "")
        changes = changes or "a change"
    return TableCommit(version=version, appended=tuple(_file(add) for add in adds), changes=changes)


def commit_times(table: str, newest: int) -> dict[int, int | None]:
    """The times of those versions up to ``newest`` whose commits are still in the table's log, in milliseconds since
    1970. The time of a version is None if the commit does not contain its time. Raises OSError."""
    files, folder = fsspec.core.url_to_fs(f"{table.rstrip('/')}/_delta_log", use_listings_cache=False)
    times: dict[int, int | None] = {}
    for last in range(newest, -1, -_COMMITS_AT_ONCE):
        versions = range(last, max(last - _COMMITS_AT_ONCE, -1), -1)
        paths = [f"{folder.rstrip('/')}/{version:020d}.json" for version in versions]
        with client_errors():
            # Unlike cat, cat_ranges does not expand patterns in paths.
            commits = files.cat_ranges(paths, None, None, on_error="return")
            for version, commit in zip(versions, commits, strict=True):
                if isinstance(commit, FileNotFoundError):
                    return times
                if isinstance(commit, Exception):
                    raise commit
                times[version] = _time(commit)
    return times


def _time(commit: bytes) -> int | None:
    """The time in the optional action ``commitInfo`` of a commit; None if the commit does not contain its time."""
    for line in commit.split(b"\n"):
        if b'"commitInfo"' in line and (info := json.loads(line).get("commitInfo")):
            at_ms = info.get("timestamp")
            return at_ms if isinstance(at_ms, int) else None
    return None


def _file(add: dict[str, Any]) -> AppendedFile:
    return AppendedFile(
        path=unquote(add["path"]),
        partition=tuple(sorted(add.get("partitionValues", {}).items())),
        rows=_rows(add.get("stats")),
    )


def _rows(statistics: str | None) -> int | None:
    """The number of rows according to a file's statistics, a JSON text; None if the statistics do not contain this
    number."""
    if not statistics:
        return None
    try:
        rows = json.loads(statistics).get("numRecords")
    except (ValueError, AttributeError):
        return None
    return rows if isinstance(rows, int) else None
