"""The start of reading: the startup options, and the meaning of ``latest`` for views over a source."""

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
        at = at_offset(split, end)
        splits.append(
            SplitHistory(
                split=at.split, start=end, end=end, cluster=at.cluster, incarnation=at.incarnation, term=at.term
            )
        )
    return History(source_id=0, log_version=-1, splits=tuple(splits)).to_text()


def births_in_doubt(source: SourceRecord, now: Mapping[str, UpstreamSplit]) -> dict[str, SplitState]:
    """The ends of the splits when a source was created, if their logs may have lost records since.

    Records from a cut on were written after the source was created.
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
