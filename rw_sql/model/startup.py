"""Where reading begins: the options that say so, and what ``latest`` means to the views over a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.model.options import visible

if TYPE_CHECKING:
    from rw_sql.connectors.base import Upstream
    from rw_sql.model.options import PlannedOptions

MODE = "scan.startup.mode"
TIME = "scan.startup.timestamp.millis"


def without_startup(options: PlannedOptions) -> dict[str, str]:
    """The options but for those that say where reading begins, fit to be checked."""
    return {key: value for key, value in visible(options).items() if key not in (MODE, TIME)}


def birth_of(kind_name: str, options: PlannedOptions, upstream: Upstream) -> str:
    """Where the splits end at the moment that a source is made, as its record keeps it.

    Empty where no startup mode could ask for it: of 100,000 files it would be long.
    """
    kind = connector(kind_name)
    if kind.spec.option(MODE) is None:
        return ""
    latest = {**without_startup(options), MODE: "latest"}
    splits = []
    for split in upstream.splits.values():
        end = kind.start_offset(latest, split, {})
        splits.append(
            SplitHistory(split=split.split, start=end, end=end, cluster=split.cluster, incarnation=split.incarnation)
        )
    return History(source_id=0, log_version=-1, splits=tuple(splits)).to_text()
