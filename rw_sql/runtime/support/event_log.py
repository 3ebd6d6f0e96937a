"""Writes one log line per event, as ``key=value`` pairs. Events are plans, commits, applied epochs, and actions of
jobs."""

from __future__ import annotations

import json
import logging
import re

logger = logging.getLogger("rw_sql.events")
"""The logger of all events. Events have the level INFO. The program that embeds rw_sql configures the logger's
handlers."""

_PLAIN = re.compile(r"[\w.:/@+-]+")


def log_event(event: str, **fields: object) -> None:
    """Writes one line, such as ``event=committed epoch=17 kind="UNSAFE SET"``. Pairs whose value is None are left out.
    Texts that need quotes are quoted as in JSON."""
    if not logger.isEnabledFor(logging.INFO):
        return
    pairs = [f"event={event}"]
    pairs += [f"{key}={_value(value)}" for key, value in fields.items() if value is not None]
    logger.info("%s", " ".join(pairs), extra={"fields": {"event": event, **fields}})


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
