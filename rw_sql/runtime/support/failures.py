"""Defines the reasons why jobs end without being stopped. A reason is a stall that an operator can resolve, or the
innermost cause of an error."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.support.messages import without_known_secrets
from rw_sql.object_stores import join_causes

if TYPE_CHECKING:
    import logging


class StalledError(Exception):
    """Raised if a job cannot run at present, for a reason that an operator can resolve.

    If ``is_final`` is true, the job is not retried until a statement changes the catalog. If ``is_lasting`` is true,
    the problem does not end by itself, but a person may fix it outside of rw_sql. Therefore, the job is retried at the
    longest interval. Values of secrets that this process knows are removed from ``reason``.
    """

    def __init__(self, reason: str, *, is_final: bool = False, is_lasting: bool = False) -> None:
        self.reason = without_known_secrets(reason)
        super().__init__(self.reason)
        self.is_final = is_final
        self.is_lasting = is_lasting

    @property
    def failure(self) -> Failure:
        """The :class:`Failure` of a job that ended with this error."""
        return Failure(reason=self.reason, is_final=self.is_final, is_lasting=self.is_lasting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason why a job ended without being stopped. Values of secrets that this process knows are removed from the
    reason.

    If ``is_final`` is true, the job is not retried until a statement changes the catalog.

    If ``is_lasting`` is true, the job is retried at the longest interval.
    """

    reason: str
    is_final: bool = False
    is_lasting: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", without_known_secrets(self.reason))


def log_error(logger: logging.Logger, message: str, error: BaseException | None) -> None:
    """Logs a message at level ERROR, with the traceback of ``error`` (None: without a traceback). Values of secrets
    that this process knows are removed."""
    told = "" if error is None else "".join(traceback.format_exception(error))
    shown = without_known_secrets(told)
    if shown == told:
        logger.error("%s", without_known_secrets(message), exc_info=error)
    else:
        logger.error("%s\n%s", without_known_secrets(message), shown.rstrip())


_CLASS = re.compile(r"(?:[A-Za-z_$][\w$]*\.)+(?=[A-Z][\w$]*(?:: |$))")
_AROUND = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_MOST_CHARACTERS = 2000
"""The maximum length in characters of the result of :func:`cause_line`. A reason may contain the name of an object in a
bucket (at most 1,024 bytes), and again in a command. This length is sufficient for a reason of this kind."""


def cause_line(text: str) -> str:
    """Returns, as one line, the innermost cause that an error message contains. The message may come from the JVM, and
    may contain a Python traceback. Values of secrets that this process knows are removed. A line of more than 2,000
    characters is cut and ends with "…"."""
    text = without_known_secrets(join_causes(text))
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes:
        found = causes[-1]
    elif "Traceback (most recent call last)" in text:
        found = _raised(text.splitlines())
    else:
        said = (line for line in lines if line and not line.startswith(("at ", "===")))
        found = next(said, text)
    line = _AROUND.sub("", _CLASS.sub("", found, count=1)).removesuffix(" SQLSTATE: XXKST")
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"


def _raised(lines: list[str]) -> str:
    """Returns the line of a traceback that contains the exception and its message. This line follows the last frame."""
    last = max((at for at, line in enumerate(lines) if line.startswith("  File ")), default=-1)
    return next((line for line in lines[last + 1 :] if line and not line.startswith(" ")), lines[-1])
