"""Finds time zones by the names that Spark accepts for a session's time zone."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from datetime import tzinfo

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?", re.ASCII)
_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's abbreviations (``ZoneId.SHORT_IDS``), which Spark accepts."""


def time_zone(name: str) -> tzinfo | None:
    """Returns the time zone that a Spark session has if its time zone is set to ``name``. ``name`` is a zone of the tz
    database, one of Java's abbreviations, or an offset such as +05:45. Returns None for other names."""
    if name in ("UTC", "GMT", "UT", "Z"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        away = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0), seconds=int(offset[4] or 0))
        return timezone(-away if offset[1] == "-" else away) if away < timedelta(days=1) else None
    try:
        return ZoneInfo(_SHORT.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
