"""Writes the log of ``rw-sql serve``. The log has one line per event, with the time of the event, as text or as
JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from rw_sql.errors import INVALID_OPTION, SqlError

FORMS = ("text", "json")

said = logging.getLogger("rw_sql.serve")
"""The logger for messages of the command itself."""


def start_log(form: str, stream: TextIO | None = None) -> logging.Handler:
    """Writes rw_sql's log messages of level INFO and above to a stream (default: standard output).

    Raises SqlError INVALID_OPTION if ``form`` is neither ``text`` nor ``json``.
    """
    if form not in FORMS:
        raise SqlError(INVALID_OPTION, f"--log must be text or json, but is {form!r}", hint="--log json")
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logger = logging.getLogger("rw_sql")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logger.propagate = False  # otherwise, a root handler of Spark or of the user would write each message again
    return handler


def _at(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """Formats records as lines such as ``2026-11-26T03:53:10.123Z INFO event=job job=mv-9 state=RUNNING``. Characters
    that would break the line are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record as one line. If the record has a traceback, the traceback follows the line."""
        message = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in record.getMessage())
        line = f"{_at(record)} {record.levelname} {message}"
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object per line. The object has the keys ``at``, ``level``, ``logger`` and
    ``message``, and the fields of an event."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record as one line of JSON."""
        body: dict[str, object] = {
            "at": _at(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            body |= {key: value for key, value in fields.items() if key not in body and value is not None}
        if record.exc_info:
            body["traceback"] = self.formatException(record.exc_info)
        return json.dumps(body, ensure_ascii=False, default=str)
