"""Kinds of stored operations that are not named after a statement."""

from __future__ import annotations

DISCOVERY = "DISCOVER SPLITS"
REWIND = "REWIND SOURCE"
INJECT_CHECKPOINT = "INJECT CHECKPOINT OFFSETS"
