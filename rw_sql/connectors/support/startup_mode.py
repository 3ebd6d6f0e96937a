"""Implements the values ``earliest``, ``latest`` and ``timestamp`` of ``scan.startup.mode``. The module checks the
options, and determines the offsets at which reading begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.spec import OptionError
from rw_sql.errors import INVALID_PROPERTY, MISSING_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import UpstreamSplit
    from rw_sql.connectors.spec import ConnectorSpec

MODE = "scan.startup.mode"
TIME = "scan.startup.timestamp.millis"


def check_startup(spec: ConnectorSpec, options: Mapping[str, str]) -> None:
    """Raises OptionError if a time is set in a mode other than ``timestamp``, or if no time is set in the mode
    ``timestamp``."""
    mode = _mode(spec, options)
    if mode == "timestamp" and TIME not in options:
        raise OptionError(
            MISSING_PROPERTY,
            f'missing property "{TIME}"',
            key=MODE,
            hint=f"{MODE} = 'timestamp' needs {TIME}: milliseconds since 1970-01-01 00:00 UTC",
        )
    if TIME in options and mode != "timestamp":
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"{TIME}\" has no meaning with {MODE} = '{mode}'",
            key=TIME,
            hint=f"set {MODE} to timestamp",
        )


def first_offset(
    spec: ConnectorSpec, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]
) -> int:
    """The offset at which reading begins in a split that has no stored state.

    ``at_times`` maps splits to their offsets at the time that :func:`startup_time` returns. In the mode ``timestamp``,
    a split that is not in ``at_times`` is read from its end.
    """
    match _mode(spec, options):
        case "latest":
            return split.end
        case "timestamp":
            return at_times.get(split.split, split.end)
        case _:
            return split.start


def startup_time(spec: ConnectorSpec, options: Mapping[str, str]) -> int | None:
    """The time of the mode ``timestamp`` in milliseconds since 1970; None for other modes."""
    return int(options[TIME]) if _mode(spec, options) == "timestamp" else None


def _mode(spec: ConnectorSpec, options: Mapping[str, str]) -> str:
    return (spec.value(options, MODE) or "earliest").strip().lower()
