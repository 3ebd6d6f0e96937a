"""Determines where a source begins to read. The result depends on the source's startup options and on the ends that the
source's splits had when the source was created. If ``scan.startup.mode`` is ``latest``, views begin at these ends."""

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
    """Returns the present end offsets of the splits, for the field ``birth`` of the record of a new source.

    Returns an empty text for a connector without startup modes, such as a connector that reads files, because the text
    for 100,000 files would be very long.
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
    """Maps each split whose log may have lost records since the source was created to the end that the log had at that
    time.

    A log may have lost records if its present term is greater than its term when the source was created.
    :meth:`TermConnector.diverged` finds the first lost offset in such a log. The records that now have the lost offset
    or a later offset were written after the source was created.
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
