"""Where a source begins to read: its startup options, and the splits' ends at its creation, where views begin if
``scan.startup.mode`` is ``latest``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector
from rw_sql.connectors.support.startup_mode import MODE, TIME
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.model.options import visible
from rw_sql.model.split_status import OK, at_offset, identity_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Upstream, UpstreamSplit
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.options import PlannedOptions


def without_startup(options: PlannedOptions) -> dict[str, str]:
    """The options without the startup options, with HIDDEN in place of secrets."""
    return {key: value for key, value in visible(options).items() if key not in (MODE, TIME)}


def birth_of(kind_name: str, options: PlannedOptions, upstream: Upstream) -> str:
    """The end offsets of the splits when a source is created, as the text that the source's record stores.

    Empty if the connector has no startup modes: file sources have none, and the text of 100,000 files would be long.
    """
    kind = connector(kind_name)
    if kind.spec.option(MODE) is None:
        return ""
    latest = {**without_startup(options), MODE: "latest"}
    splits = []
    for split in upstream.splits.values():
        end = kind.start_offset(latest, split, {})
        at = at_offset(split, end)
        splits.append(
            SplitHistory(
                split=at.split, start=end, end=end, cluster=at.cluster, incarnation=at.incarnation, term=at.term
            )
        )
    return History(source_id=0, log_version=-1, splits=tuple(splits)).to_text()


def births_in_doubt(source: SourceRecord, now: Mapping[str, UpstreamSplit]) -> dict[str, SplitState]:
    """The ends at the source's creation of those splits whose logs may have lost records since then.

    A log may have lost records if its term is greater now. If :meth:`TermConnector.diverged` finds that such a log has
    lost records, the records now at and after the first lost offset were written after the source was created.
    """
    born = History.from_text(source.birth).splits if source.birth else ()
    return {
        split.split: at
        for split in born
        if (seen := now.get(split.split)) is not None
        and split.term is not None
        and (seen.term or 0) > split.term
        and identity_status(
            at := SplitState(
                split=split.split,
                offset=split.start,
                cluster=split.cluster,
                incarnation=split.incarnation,
                term=split.term,
            ),
            seen,
        )
        == OK
    }
