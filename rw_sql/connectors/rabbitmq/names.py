"""Converts between the names of streams and the names of splits. The name of a stream's split is the stream's name. The
name of a partition's split consists of the name of the super stream and the name of the partition's stream.

The split of a partition is named ``super:partition``. In both parts, ``%3A`` stands for a colon and ``%25`` for a
percent sign. The only colon therefore separates the super stream from the partition.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"([^%:]|%25|%3A)+")

MOST_BYTES = 255
"""The maximum size of a stream's name, in bytes of UTF-8."""


def split_of(stream: str) -> str:
    """The id of a stream's split: the stream's name with ``%`` and ``:`` quoted. The names that :func:`part_of` returns
    are quoted in the same way."""
    return stream.replace("%", "%25").replace(":", "%3A")


def partition_split(super_stream: str, partition: str) -> str:
    """The split of a partition."""
    return f"{split_of(super_stream)}:{split_of(partition)}"


def stream_of(split: str) -> str:
    """The stream that a split reads."""
    return split.rpartition(":")[2].replace("%3A", ":").replace("%25", "%")


def part_of(split: str) -> str:
    """Returns the super stream for a partition's split, and the stream itself for any other split. The name is
    quoted in the same way as by :func:`split_of`."""
    return split.partition(":")[0]


def is_split(text: str) -> bool:
    """True if ``text`` could be the id of a stream's split: each colon and percent sign in it is quoted."""
    return _QUOTED.fullmatch(text) is not None


def listed(text: str) -> tuple[str, ...]:
    """The names that an option lists, in the option's order and without repetitions."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
