"""Plans the rest of a backfill. The plan contains the offsets to copy from the source's log, and the offsets to read
from the upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState, TermConnector
from rw_sql.connectors.registry import connector
from rw_sql.model.backfill_ranges import plan_portions, reread_ranges
from rw_sql.model.offset_ranges import with_span
from rw_sql.runtime.positions.logged_ranges import held_log, read_ranges
from rw_sql.runtime.support.failures import StalledError, cause_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rw_sql.connectors.base import Connector
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.backfill_ranges import BackfillChunk, History, HistoryPlan
    from rw_sql.model.offset_ranges import Spans
    from rw_sql.runtime.jobs.context import Context


def plan_remaining(
    context: Context,
    source: SourceRecord,
    history: History,
    held: Mapping[str, Spans],
    options: Callable[[], Mapping[str, str]],
) -> tuple[int, HistoryPlan]:
    """Returns the version of the source's log from which a backfill copies, and the chunks that remain. ``held`` are
    the offsets that the backfill has already read. ``options`` returns the source's options.

    The upstream is contacted only if the source has read offsets of the history again in a later term (Kafka: leader
    epoch). Raises StalledError if the upstream does not respond.
    """
    version, pieces = held_log(context.warehouse, source)
    kind = connector(source.connector)
    again = reread_ranges(history, pieces, held) if isinstance(kind, TermConnector) else ()
    replaced = replaced_spans(kind, options(), again) if again else {}
    readings = read_ranges(context.warehouse, source).pieces
    return version, plan_portions(history, pieces, held, replaced=replaced, readings=readings)


def replaced_spans(
    kind: Connector, options: Mapping[str, str], again: Sequence[BackfillChunk]
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Returns the offsets in ``again`` at which the upstream has lost the records of the history. ``again`` are the
    chunks that the source has read again in a later term. Raises StalledError if the upstream does not respond."""
    replaced: dict[str, Spans] = {}
    waiting = list(again)
    while waiting and isinstance(kind, TermConnector):
        # One request compares one position of each split.
        asked: dict[str, BackfillChunk] = {}
        later: list[BackfillChunk] = []
        for chunk in waiting:
            if chunk.split in asked:
                later.append(chunk)
            else:
                asked[chunk.split] = chunk
        waiting = later
        ends = {split: SplitState(split=split, offset=chunk.end, term=chunk.term) for split, chunk in asked.items()}
        try:
            lost = kind.diverged(options, ends)
        except OSError as error:
            raise StalledError(f"UNREACHABLE {cause_line(str(error))}") from error
        for split, cut in lost.items():
            chunk = asked[split]
            replaced[split] = with_span(replaced.get(split, ()), max(cut, chunk.start), chunk.end)
    return replaced
