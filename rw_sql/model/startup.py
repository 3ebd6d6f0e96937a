"""The start of reading: the startup options, and the meaning of ``latest`` for views over a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.connectors.support.startup_mode import MODE, TIME
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.model.options import visible

if TYPE_CHECKING:
    from rw_sql.connectors.base import Upstream
    from rw_sql.model.options import PlannedOptions


def without_startup(options: PlannedOptions) -> dict[str, str]:
    """The options without the startup options, with HIDDEN in place of secrets."""
    return {key: value for key, value in visible(options).items() if key not in (MODE, TIME)}


def birth_of(kind_name: str, options: PlannedOptions, upstream: Upstream) -> str:
    """The end offsets of the splits when a source is created, in the form stored in its record.

    Empty if the connector has no startup modes, because the text of 100,000 files would be long.
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
