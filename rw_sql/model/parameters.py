"""Defines the parameters of ALTER SYSTEM SET and SET, with their defaults and valid values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_PARAMETER, UNKNOWN_PARAMETER, Span, SqlError, near_names
from rw_sql.metastore.records import PARALLELISM

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot

NO_LIMIT = "-1"
"""The value that means no limit, as in RisingWave."""


ROLLBACK_WINDOW = "rollback_window"
"""The name of the system parameter that determines how long the old rows of a rebuilt view are kept. ``rw-sql apply
--keep`` sets this parameter."""

STREAMING_PARALLELISM = "streaming_parallelism"
"""The name of the system parameter that sets the number of state partitions for the queries of new views and sinks, and
for rebuilds."""

REWIND_POINT_RETENTION = "rewind_point_retention"
"""The name of the system parameter that determines how long rewind points are kept."""

IDLE_SECONDS = 60
"""The default of ``idle_job_timeout``, in seconds. A query that polls for this time uses about as much CPU as stopping
the query and starting it again."""

IDLE_JOB_TIMEOUT = "idle_job_timeout"
"""The name of the system parameter with the time after which a job's query is stopped if there is no new input. The
query starts again when there is new input."""

MOST_PARALLELISM = 10_000
"""The maximum number of partitions of a query's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter. ``read`` is a function that converts a value in a statement to its canonical text. For an invalid
    value, ``read`` raises ValueError with the rule that the value breaks."""

    name: str
    default: str
    doc: str
    read: Callable[[str], str]


def _boolean(text: str) -> str:
    word = text.strip().lower()
    if word in ("true", "on", "yes", "1", "t"):
        return "true"
    if word in ("false", "off", "no", "0", "f"):
        return "false"
    raise ValueError("must be true or false")


_UNITS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""The number of milliseconds in each unit of time. The units have PostgreSQL's names."""

_MOST_MS = 1_000_000 * _UNITS["d"]

_MOST_WAIT_MS = 100_000 * _UNITS["d"]
"""The maximum time, in milliseconds, that a parameter can make a thread wait. The limit of Python's waiting functions
is about 106,000 days."""

_TIME = re.compile(r"([0-9]{1,15})\s*([a-z]*)", re.ASCII)


def _milliseconds(text: str, default_unit: str | None = None) -> int | None:
    """Converts a whole number with a unit to milliseconds. Returns None for a million days or more, and for any other
    text. A number without a unit has the unit ``default_unit``. If ``default_unit`` is None, the number must have a
    unit."""
    found = _TIME.fullmatch(text.strip().lower())
    unit = None if found is None else found[2] or default_unit
    if found is None or unit not in _UNITS:
        return None
    milliseconds = int(found[1]) * _UNITS[unit]
    return milliseconds if milliseconds < _MOST_MS else None


def _seconds(text: str) -> str:
    """Parses a duration as PostgreSQL does: 60, 60s, 500ms, 2min, 1h. A number without a unit is in seconds.

    The canonical form is in milliseconds.
    """
    found = _milliseconds(text, "s")
    if found is None or found > _MOST_WAIT_MS:
        raise ValueError("must be a time such as 60s, 500ms or 2min")
    return f"{found}ms"


def _seconds_or_never(text: str) -> str:
    """Does the same as :func:`_seconds`, and also accepts -1, which means never."""
    if text.strip() == NO_LIMIT:
        return NO_LIMIT
    try:
        return _seconds(text)
    except ValueError as error:
        raise ValueError(f"{error}, or -1 for never") from None


def _count(text: str) -> str:
    """Parses a count between 0 and 1000."""
    word = text.strip()
    if word.isascii() and word.isdecimal() and int(word) <= 1000:
        return str(int(word))
    raise ValueError("must be a number from 0 to 1000")


def _parallelism(text: str) -> str:
    """Parses a number of partitions from 1 to :data:`MOST_PARALLELISM`."""
    word = text.strip()
    if word.isascii() and word.isdecimal() and 0 < int(word) <= MOST_PARALLELISM:
        return str(int(word))
    raise ValueError(f"must be a number of partitions from 1 to {MOST_PARALLELISM}")


def _rate(text: str) -> str:
    word = text.strip().lower()
    if word in ("-1", "default"):
        return NO_LIMIT
    if word.isascii() and word.isdecimal() and len(word) < 10:
        return str(int(word))
    raise ValueError("must be a number of records per second, or -1 for no limit")


def _period(text: str) -> str:
    """Parses a period of at least a minute, such as 30min, 12h or 7d. The values -1 and ``default`` mean no limit.

    The canonical form is in milliseconds.
    """
    if text.strip().lower() in ("-1", "default"):
        return NO_LIMIT
    found = _milliseconds(text)
    if found is None or found < _UNITS["min"]:
        raise ValueError("must be a time of at least a minute, such as 30min, 12h or 7d, or -1 for no limit")
    return f"{found}ms"


_POINT_AGE = f"{7 * _UNITS['d']}ms"


def _point_age(text: str) -> str:
    """Does the same as :func:`_period`, except that ``default`` means seven days."""
    return _POINT_AGE if text.strip().lower() == "default" else _period(text)


def _yes(text: str) -> str:
    if text.strip().lower() in ("yes", "no"):
        return text.strip().lower()
    raise ValueError("must be 'yes' or 'no'")


def _dialect(text: str) -> str:
    if text.strip().lower() in ("spark", "risingwave"):
        return text.strip().lower()
    raise ValueError("must be 'spark' or 'risingwave'")


def _path(text: str) -> str:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ValueError("must be a list of schemas separated by commas")
    return ", ".join(words)


SYSTEM_PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter(
            name="enable_unsafe_ops",
            default="false",
            doc="whether unsafe operations (UNSAFE SET, RESET SOURCE SPLITS, INJECT SOURCE OFFSETS) may run",
            read=_boolean,
        ),
        Parameter(
            name="rewind_points",
            default="5",
            doc="number of rewind points that are kept per source; with 0, no rewind points are created",
            read=_count,
        ),
        Parameter(
            name="rewind_point_timeout",
            default="5000ms",
            doc="the maximum time for which a source waits after an unsafe operation for its views and sinks to catch "
            "up. While the views and sinks make progress, the source waits up to ten times as long. If they do not "
            "catch up in time, the operation has no rewind point",
            read=_seconds,
        ),
        Parameter(
            name=REWIND_POINT_RETENTION,
            default=_POINT_AGE,
            doc="how long a rewind point is kept, such as 12h or 7d; -1 sets no time limit. Time in which no process "
            "runs the source's job does not count. Newer rewind points may take its place earlier (rewind_points)",
            read=_point_age,
        ),
        Parameter(
            name=ROLLBACK_WINDOW,
            default=NO_LIMIT,
            doc="how long the old rows of a rebuilt view are kept for a rollback, such as 12h or 7d; -1 sets no time "
            "limit. The view's next rebuild always removes these old rows",
            read=_period,
        ),
        Parameter(
            name=IDLE_JOB_TIMEOUT,
            default=f"{IDLE_SECONDS}000ms",
            doc="how long a source, view or sink must have nothing to read before its job rests. A job at rest has no "
            "query and no connections; one watcher checks all sources at rest, and the next record starts the job "
            "again. With -1, no job rests",
            read=_seconds_or_never,
        ),
        Parameter(
            name=STREAMING_PARALLELISM,
            default=str(PARALLELISM),
            doc="number of state partitions of views and sinks that are created or rebuilt later, and therefore the "
            "maximum number of parallel tasks per stage of a batch; the option parallelism in a view's WITH list "
            "overrides it",
            read=_parallelism,
        ),
    )
}
"""The system parameters. Their values are stored in the metastore and apply to all sessions of the warehouse."""

SESSION_PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter(
            name="statement_timeout",
            default="60000ms",
            doc="how long a statement waits while the jobs make no progress. After this time, FLUSH and WAIT fail; any "
            "other statement stops waiting but stays committed. Also how long a statement tries to commit while other "
            "sessions commit first",
            read=_seconds,
        ),
        Parameter(
            name="unsafe_confirmation",
            default="no",
            doc="'yes' confirms the next unsafe statement or block, and is then reset to 'no'",
            read=_yes,
        ),
        Parameter(
            name="query_dialect",
            default="spark",
            doc="the SQL dialect in which the queries of views and sinks are written: 'spark' or 'risingwave'",
            read=_dialect,
        ),
        Parameter(
            name="search_path",
            default="public",
            doc="the schemas in which names without a schema are looked up, in this order. A new object is created in "
            "the first of these schemas that exists",
            read=_path,
        ),
        Parameter(
            name="background_ddl",
            default="false",
            doc="whether CREATE MATERIALIZED VIEW returns at once, before its backfill ends",
            read=_boolean,
        ),
        Parameter(
            name="backfill_rate_limit",
            default=NO_LIMIT,
            doc="maximum records per second of a new view's backfill; the view's WITH list can override it; -1 "
            "means no limit",
            read=_rate,
        ),
        Parameter(
            name="streaming_use_shared_source",
            default="true",
            doc="whether a new source has one reader for all its views; the source's property 'shared' overrides it",
            read=_boolean,
        ),
    )
}
"""The session parameters. Their values apply to one session and are lost when it ends."""


def idle_job_seconds(snapshot: Snapshot) -> float | None:
    """The number of seconds without new input after which a job's query is stopped; None if queries are never stopped
    for this reason."""
    value = snapshot.parameter(IDLE_JOB_TIMEOUT) or SYSTEM_PARAMETERS[IDLE_JOB_TIMEOUT].default
    return None if value == NO_LIMIT else int(value.removesuffix("ms")) / 1000


def rewind_point_retention_ms(snapshot: Snapshot) -> int | None:
    """The system parameter ``rewind_point_retention`` in milliseconds; None if there is no limit."""
    value = snapshot.parameter(REWIND_POINT_RETENTION) or SYSTEM_PARAMETERS[REWIND_POINT_RETENTION].default
    return None if value == NO_LIMIT else int(value.removesuffix("ms"))


def period_text(milliseconds: int) -> str:
    """A period as a statement writes it, in the largest unit that gives a whole number: ``7d`` for 604,800,000
    milliseconds."""
    unit, factor = next(item for item in reversed(_UNITS.items()) if milliseconds % item[1] == 0)
    return f"{milliseconds // factor}{unit}"


def streaming_parallelism(snapshot: Snapshot) -> int:
    """The parallelism that a query gets if its view or sink is created or rebuilt now. The parallelism is the number of
    partitions of the query's state (Spark's shuffle partitions)."""
    value = snapshot.parameter(STREAMING_PARALLELISM)
    return PARALLELISM if value is None else int(value)


def system_parameter(name: str, span: Span) -> Parameter:
    """The system parameter with the given name. Raises SqlError UNKNOWN_PARAMETER if there is no such parameter."""
    return _find(SYSTEM_PARAMETERS, name, span, "system parameter")


def session_parameter(name: str, span: Span) -> Parameter:
    """The session parameter with the given name. Raises SqlError UNKNOWN_PARAMETER if there is no such parameter."""
    return _find(SESSION_PARAMETERS, name, span, "session parameter")


def read_value(parameter: Parameter, text: str, span: Span) -> str:
    """The canonical text of a parameter's value. For an invalid value, raises SqlError INVALID_PARAMETER with the rule
    that the value breaks."""
    try:
        return parameter.read(text)
    except ValueError as error:
        raise SqlError(
            INVALID_PARAMETER,
            f'parameter "{parameter.name}" {error}, not {text!r}',
            span=span,
            hint=f"{parameter.name} = '{parameter.default}' is the default",
        ) from error


def _find(known: dict[str, Parameter], name: str, span: Span, what: str) -> Parameter:
    parameter = known.get(name.lower())
    if parameter is None:
        near = near_names(name.lower(), known)
        hint = f'did you mean "{near[0]}"?' if near else f"the parameters are {', '.join(sorted(known))}"
        if known is SESSION_PARAMETERS and name.lower() in SYSTEM_PARAMETERS:
            hint = f"it is a parameter of the warehouse: ALTER SYSTEM SET {name.lower()} = …"
        elif known is SYSTEM_PARAMETERS and name.lower() in SESSION_PARAMETERS:
            hint = f"it is a parameter of a session: SET {name.lower()} = …"
        raise SqlError(
            UNKNOWN_PARAMETER,
            f'unrecognized {what} "{name}"',
            span=span,
            hint=hint,
        )
    return parameter
