"""Keeps the numbers of a Delta table's application transactions, so that a writer does not read the table's log again
for each of its commits.

``DeltaTable.transaction_version`` reads the commits back to the one with the transaction; if there is none, it reads
every commit since the last checkpoint. The numbers of a known version change only by the commits after this version.
Therefore, a writer needs to read only these commits, except for the commits that it has written itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import deltalake

_MOST_READ = 20
"""The maximum number of commits of other writers that are read one by one. If there are more new commits, delta-rs
reads the log, which it begins to read at the last checkpoint."""


class KnownTransactions:
    """The numbers of application transactions at one version of a table. Not thread-safe.

    ``read`` is a function that returns the text of a version's commit; None if the commit was cleaned up.
    """

    def __init__(self, read: Callable[[int], str | None]) -> None:
        self._read = read
        self._at = -1
        self._numbers: dict[str, int | None] = {}

    def number(self, table: deltalake.DeltaTable, application: str) -> int | None:
        """The number of the last transaction ``application`` at the version of the handle ``table``; None if there is
        no such transaction."""
        self._advance(table.version())
        if application not in self._numbers:
            self._numbers[application] = table.transaction_version(application)
        return self._numbers[application]

    def add(self, version: int, written: Mapping[str, int]) -> None:
        """Notes the transactions of a commit that the caller itself has written as ``version``. If the numbers are not
        known at the version before, this method does nothing, and the commit is read later."""
        if version == self._at + 1:
            self._numbers |= written
            self._at = version

    def forget(self) -> None:
        """Must be called if the table may be another one, or an older copy of it. The next numbers are then read from
        the table's log."""
        self._at = -1
        self._numbers.clear()

    def _advance(self, version: int) -> None:
        """Applies the commits up to ``version``."""
        if not 0 <= version - self._at <= _MOST_READ:
            self.forget()
        while self._numbers and self._at < version:
            text = self._read(self._at + 1)
            if text is None:
                self.forget()
                break
            self._at += 1
            self._numbers |= {name: at for name, at in _transactions(text).items() if name in self._numbers}
        self._at = version


def _transactions(commit: str) -> dict[str, int]:
    """The application transactions of a commit: name → number."""
    actions: list[dict[str, Any]] = [json.loads(line) for line in commit.split("\n") if '"txn"' in line]
    return {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
