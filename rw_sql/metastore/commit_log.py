"""Reads the commit files of a metastore table. This module does not use delta-rs, which needs more time on a local
path, and more requests in an object store, to find new commits."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, local
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LISTING_SECONDS = 60.0
_MOST_FETCHED, _TEXTS_KEPT = 10, 50


def app_transaction(commit: str, app: str) -> int | None:
    """The number that the text of a commit records for the Delta app transaction ``app``; None if the commit does not
    record this transaction."""
    for line in commit.split("\n"):
        transaction = json.loads(line).get("txn") if '"txn"' in line else None
        if transaction is not None and transaction["appId"] == app:
            return int(transaction["version"])
    return None


class Looks:
    """Limits how often a process looks for new commits in an object store, because each look is a request."""

    def __init__(self) -> None:
        self._of_thread = local()
        self._valid_from = 0.0

    @contextmanager
    def at_most_every(self, seconds: float) -> Iterator[None]:
        """A context manager that applies to the calling thread. Inside it, a read looks for new commits of a table only
        if the process's last look at this table was at least ``seconds`` ago. A write always looks."""
        before = self._seconds
        self._of_thread.seconds = seconds
        try:
            yield
        finally:
            self._of_thread.seconds = before

    @property
    def _seconds(self) -> float:
        return getattr(self._of_thread, "seconds", 0.0)

    def forget(self) -> None:
        """Makes the next read of each table look for new commits."""
        self._valid_from = time.monotonic()

    def is_valid(self, looked_at: float) -> bool:
        """True if a look at the time ``looked_at`` (monotonic seconds) is so recent that this thread need not look
        again."""
        return self._valid_from <= looked_at and time.monotonic() - looked_at < self._seconds


class LocalLog:
    """The log of a table on a local path."""

    def __init__(self, table: str) -> None:
        self._directory = Path(table) / "_delta_log"
        self._newest = -1
        self._listed_at = -1

    def newest(self, known: int, *, is_exact: bool = False) -> int:
        """Returns the newest version. ``known`` is a version that exists. If there is no new commit, the method makes
        two file system calls, which take a few microseconds."""
        listed_at = os.stat(self._directory).st_mtime_ns
        newest = max(self._newest, known)
        while os.path.exists(f"{self._directory}/{newest + 1:020d}.json"):
            newest += 1
        # The directory has changed for an unknown reason: the next version's file may have been created and cleaned up
        # while this process slept. A listing shows whether this has happened.
        if listed_at != self._listed_at:
            if newest == self._newest:
                names = os.listdir(self._directory)
                newest = max([newest, *(int(name[:20]) for name in names if _is_commit(name))])
            self._listed_at = listed_at
        self._newest = max(self._newest, newest)
        return newest

    def text(self, version: int) -> str | None:
        """The text of a commit; None if the commit was cleaned up."""
        try:
            return self._directory.joinpath(f"{version:020d}.json").read_text("utf-8")
        except FileNotFoundError:
            return None

    read = text


class StoreLog:
    """The log of a table in an object store. Thread-safe.

    A look for new commits requests the file of the next version. If there is no new commit, a look therefore takes one
    request and no listing. The file of the next version can be missing although later commit files exist, because
    another machine removes commit files that, by its clock, are a few minutes old. Therefore, the log must be listed
    once a minute, and after more than a minute without a look.

    ``fetch`` is a function that returns a file's content, and raises FileNotFoundError if the file does not exist.
    """

    def __init__(self, table: str, fetch: Callable[[str], bytes], looks: Looks) -> None:
        self._directory = f"{table}/_delta_log"
        self._fetch = fetch
        self._looks = looks
        self._lock = Lock()
        self._newest = -1
        self._texts: dict[int, str] = {}
        self._looked_at = self._refused_at = float("-inf")
        # The times of both clocks are stored, because the monotonic clock stops while the machine sleeps, and the wall
        # clock may be changed.
        self._listed_at = (float("-inf"), float("-inf"))

    def newest(self, known: int, *, is_exact: bool = False) -> int | None:
        """Returns the newest version, or None if the caller must list the log first. ``known`` is a version that
        exists.

        Unless ``is_exact`` is true, the result may be as old as :class:`Looks` permits.
        """
        newest = max(self._newest, known)
        if not is_exact and self._looks.is_valid(self._looked_at):
            return newest
        began = time.monotonic()
        ages = (began - self._listed_at[0], abs(time.time() - self._listed_at[1]))
        if max(ages) >= _LISTING_SECONDS or began - self._refused_at < _LISTING_SECONDS:
            return None
        found: dict[int, str] = {}
        try:
            while len(found) < _MOST_FETCHED:
                found[newest + 1] = self._fetch(f"{self._directory}/{newest + 1:020d}.json").decode()
                newest += 1
        except FileNotFoundError:
            pass
        except PermissionError:
            # If a user may list only some folders, a store may refuse to report whether a file exists.
            self._refused_at = began
            return None
        else:
            return None
        with self._lock:
            self._texts |= found
            self._note(newest, began)
            return self._newest

    def listed(self, newest: int, began: float) -> None:
        """Records that a listing, which began at ``began`` (monotonic seconds), found the newest version ``newest``."""
        with self._lock:
            self._listed_at = began, time.time() - (time.monotonic() - began)
            self._note(newest, began)

    def _note(self, newest: int, began: float) -> None:
        self._newest = max(self._newest, newest)
        self._looked_at = max(self._looked_at, began)
        for version in [version for version in self._texts if version <= self._newest - _TEXTS_KEPT]:
            del self._texts[version]

    def text(self, version: int) -> str | None:
        """The text of a commit that a look for new commits has fetched; None for any other commit."""
        return self._texts.get(version)

    def read(self, version: int) -> str | None:
        """The text of a commit; None if the commit file was removed or cannot be accessed. If no look has fetched the
        text, this method fetches it."""
        text = self._texts.get(version)
        if text is not None:
            return text
        try:
            return self._fetch(f"{self._directory}/{version:020d}.json").decode()
        except (FileNotFoundError, PermissionError):
            return None


def _is_commit(name: str) -> bool:
    return len(name) == 25 and name.endswith(".json") and name[:20].isdecimal()
