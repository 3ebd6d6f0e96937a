"""Converts between the names of topics and partitions and the names of splits. A split has the name of its partition,
without ``persistent://`` and without the default namespace ``public/default/``.
"""

from __future__ import annotations

import re

_PERSISTENT, _USUAL = "persistent://", "public/default/"
_PARTITION = re.compile(r"(.+)-partition-([0-9]{1,9})")
_TOPIC = re.compile(r"(persistent://)?([^/\s]+/[^/\s]+/)?[^/\s]+")


def is_topic(text: str) -> bool:
    """True if a text names a persistent topic."""
    return _TOPIC.fullmatch(text) is not None


def short_name(name: str) -> str:
    """The name of the split for the full name of a topic or a partition."""
    return name.strip().removeprefix(_PERSISTENT).removeprefix(_USUAL)


def full_name(split: str) -> str:
    """The full name, with ``persistent://``, tenant and namespace, for the short name of a partition or topic."""
    return _PERSISTENT + (split if "/" in split else _USUAL + split)


def topic_of(split: str) -> str:
    """The topic to which a partition belongs; for a topic without partitions, the topic itself."""
    match = _PARTITION.fullmatch(split)
    return match[1] if match is not None else split


def partition_of(split: str) -> int:
    """The number of a partition; -1 for a topic without partitions."""
    match = _PARTITION.fullmatch(split)
    return int(match[2]) if match is not None else -1
