"""Reads the lists of files that a file source has read. The lists are in the checkpoint's folder ``sources/N``, one
list per batch. From time to time, Spark combines all earlier lists into one *compacted* file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rw_sql.checkpoints.files import CheckpointFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPACT = ".compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLists:
    """The file lists of a source, as a map from the number of each list to the paths in the list. ``next`` is one more
    than the highest list number; 0 if there is no list."""

    lists: Mapping[int, tuple[str, ...]]
    next: int

    def between(self, start: int, end: int) -> tuple[str, ...]:
        """The files in the lists from ``start`` up to, but not including, ``end``, in the order of the lists."""
        return tuple(path for number in range(start, end) for path in self.lists.get(number, ()))


def read_lists(files: CheckpointFiles, source: str) -> FileLists:
    """Reads all lists of one source from the newest compacted file and the lists after this file."""
    folder = f"sources/{source}"
    names = files.stamps(folder)
    numbers = {int(name.removesuffix(_COMPACT)): name for name in names if name.removesuffix(_COMPACT).isdecimal()}
    compacted = [number for number, name in numbers.items() if name.endswith(_COMPACT)]
    first = max(compacted, default=0)
    lists: dict[int, list[str]] = {}
    for number in sorted(number for number in numbers if number >= first):
        for line in files.read(f"{folder}/{numbers[number]}").split("\n")[1:]:
            if line.strip():
                entry = json.loads(line)
                lists.setdefault(int(entry.get("batchId", number)), []).append(str(entry["path"]))
    return FileLists(lists={number: tuple(paths) for number, paths in lists.items()}, next=max(numbers, default=-1) + 1)


def missing_files(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of the given files that no longer exist."""
    gone = []
    for path in paths:
        files = CheckpointFiles.at(unquote(path))
        if not files.system.exists(files.root):
            gone.append(path)
    return tuple(gone)
