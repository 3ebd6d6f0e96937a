"""Kinds of operations that are no statement's name, as the log of record stores them."""

from __future__ import annotations

DISCOVERY = "DISCOVER SPLITS"
REWIND = "REWIND SOURCE"
INJECT_CHECKPOINT = "INJECT CHECKPOINT OFFSETS"
