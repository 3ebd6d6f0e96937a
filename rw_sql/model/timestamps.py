"""Converts timestamps and intervals in statements to milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rw_sql.errors import INVALID_OPTION, SqlError

if TYPE_CHECKING:
    from rw_sql.errors import Span

_SECOND = 1000
_UNITS = {
    "millisecond": 1,
    "ms": 1,
    "second": _SECOND,
    "sec": _SECOND,
    "s": _SECOND,
    "minute": 60 * _SECOND,
    "min": 60 * _SECOND,
    "m": 60 * _SECOND,
    "hour": 3600 * _SECOND,
    "hr": 3600 * _SECOND,
    "h": 3600 * _SECOND,
    "day": 86400 * _SECOND,
    "d": 86400 * _SECOND,
    "week": 7 * 86400 * _SECOND,
    "w": 7 * 86400 * _SECOND,
}
_PART = re.compile(r"\s*([0-9]{1,12})\s*([a-z]+)\s*,?", re.IGNORECASE)
_CLOCK = re.compile(r"\s*([0-9]{1,6}):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,3}))?)?\s*")
_ISO = re.compile(
    r"P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})S)?)?", re.IGNORECASE
)
_NAMED_ZONE = re.compile(r"(.*[0-9])\s*([A-Za-z_]+(?:/[A-Za-z_+\-0-9]+)*)")


def timestamp_milliseconds(text: str, span: Span) -> int:
    """Converts a time such as ``2026-01-31 08:00:00+01:00``, ``…Z`` or ``… Europe/Berlin`` to milliseconds since 1970.

    Raises SqlError INVALID_OPTION for any other text, including a time without a zone, which would be ambiguous.
    """
    plain, zone = text.strip(), None
    if (named := _NAMED_ZONE.fullmatch(plain)) is not None and named[2].upper() not in ("Z", "T"):
        plain = named[1].strip()
        try:
            zone = UTC if named[2].upper() in ("UTC", "GMT") else ZoneInfo(named[2])
        except (KeyError, ValueError, OSError) as error:
            raise _refuse(f'"{named[2]}" is not a time zone', span) from error
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError as error:
        raise _refuse(f"'{text}' is not a timestamp", span) from error
    if moment.tzinfo is None and zone is None:
        raise _refuse(f"timestamp '{text}' has no time zone", span)
    if moment.tzinfo is not None and zone is not None:
        raise _refuse(f"timestamp '{text}' has two time zones", span)
    since = (moment if zone is None else moment.replace(tzinfo=zone)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


def _refuse(message: str, span: Span) -> SqlError:
    return SqlError(
        INVALID_OPTION, message, span=span, hint="write it as '2026-01-31 08:00:00+00:00', with the intended zone"
    )


def interval_milliseconds(text: str, span: Span) -> int:
    """Converts an interval such as ``1 day 2 hours``, ``90 min``, ``01:30:00`` or ``PT90M`` to milliseconds.

    Raises SqlError INVALID_OPTION for an interval of zero, for months and years, whose lengths vary, and for any other
    text.
    """
    total = _interval(text)
    if not total:
        raise SqlError(
            INVALID_OPTION,
            f"'{text}' is not an interval of weeks, days, hours, minutes and seconds",
            span=span,
            hint="write BACK BY INTERVAL '1 day 2 hours', '90 minutes' or '01:30:00'",
        )
    return total


def _interval(text: str) -> int | None:
    if (iso := _ISO.fullmatch(text.strip())) is not None:
        weights = [_UNITS[unit] for unit in ("week", "day", "hour", "minute", "second")]
        return sum(int(number or 0) * weight for number, weight in zip(iso.groups(), weights, strict=True))
    total, rest = 0, text
    while rest.strip():
        if (clock := _CLOCK.fullmatch(rest)) is not None:
            hours, minutes, seconds, fraction = clock.groups()
            total += int(hours) * _UNITS["hour"] + int(minutes) * _UNITS["minute"] + int(seconds or 0) * _SECOND
            return total + int((fraction or "").ljust(3, "0"))
        part = _PART.match(rest)
        unit = part[2].lower() if part else ""
        weight = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if part is None or weight is None:
            return None
        total += int(part[1]) * weight
        rest = rest[part.end() :]
    return total
