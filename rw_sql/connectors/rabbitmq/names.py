"""Converts names of splits. The name of a stream's split is the stream's name. The name of a partition's split consists
of the name of the super stream and the name of the partition's stream.

A partition is named ``super:partition``. In both names, ``%3A`` stands for a colon and ``%25`` for a percent sign, so
that the name of a split always shows the super stream of the partition.
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
    """The part of the upstream to which a split belongs. For a partition of a super stream, this part is the super
    stream. For any other stream, this part is the stream itself. The name is quoted as in the result of
    :func:`split_of`."""
    return split.partition(":")[0]


def is_split(text: str) -> bool:
    """True if ``text`` has the form of the id of a stream's split, in which each colon and percent sign is quoted."""
    return _QUOTED.fullmatch(text) is not None


def listed(text: str) -> tuple[str, ...]:
    """The names in an option, each once, in the order in which the option lists them."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
