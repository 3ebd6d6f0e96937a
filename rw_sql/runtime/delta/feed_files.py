"""Determines how Delta's stream of a change feed divides a commit among batches.

If a commit has change files, or files with deletion vectors, a batch of the stream reads the commit as a whole. Any
other commit consists of added and removed files. The rows of these files are the changes of the commit. A batch may end
after any of these files. Therefore, a removed row and the new row that replaces it may come in different batches.
Commits that may be divided in this way are, for example, an overwrite, a restore, and a merge of
:class:`rw_sql.runtime.delta.object_store_merge.FileMerge`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def divided_files(actions: Iterable[dict[str, Any]]) -> tuple[int, ...] | None:
    """Returns the sizes in bytes of a commit's files, if a batch of the change feed may end after any of them. The
    sizes are in the order in which an offset of the stream counts the files. Returns None if a batch always reads the
    commit as a whole."""
    sizes = []
    for action in actions:
        if "cdc" in action:
            return None
        file = action.get("add") or action.get("remove")
        if file is not None and file.get("dataChange", True):
            if file.get("deletionVector"):
                return None
            sizes.append(int(file.get("size") or 0))
    return tuple(sizes)


def is_read_in_part(actions: Iterable[dict[str, Any]], index: int) -> bool:
    """True if a batch of the change feed that ends after the commit's file ``index`` leaves other files of the commit
    to the next batch."""
    sizes = divided_files(actions)
    return sizes is not None and 0 <= index < len(sizes) - 1


def undivided_bytes(actions: Sequence[dict[str, Any]]) -> int:
    """The approximate size in bytes of a commit's changes, if a batch always reads the commit as a whole; 0 for any
    other commit."""
    changes = [action["cdc"] for action in actions if "cdc" in action]
    if changes:
        return sum(int(file.get("size") or 0) for file in changes)
    if divided_files(actions) is not None:
        return 0
    added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
    removed = [action["remove"] for action in actions if "remove" in action]
    again = {file["path"] for file in added}
    gone = (file for file in removed if file.get("dataChange", True) and file["path"] not in again)
    return sum(map(_added_bytes, added)) + sum(int(file.get("size") or 0) for file in gone)


def _added_bytes(added: dict[str, Any]) -> int:
    """The approximate size of the changes of an added file. If the file has a deletion vector, the changes are the
    deleted rows."""
    size, vector = int(added.get("size") or 0), added.get("deletionVector")
    rows = json.loads(added.get("stats") or "{}").get("numRecords")
    return min(size, size * int(vector["cardinality"]) // rows) if vector and rows else size
