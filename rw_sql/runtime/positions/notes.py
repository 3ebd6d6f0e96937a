"""Records a reader's positions in the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.metastore.facts import NotedPosition
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.runtime.positions.logged_ranges import note_ranges
from rw_sql.runtime.positions.shared import ALL_SPLITS, known_state, read_positions

if TYPE_CHECKING:
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context


def note_positions(context: Context, source: SourceRecord, *, run: int, epoch: int) -> None:
    """Stores the positions of a source's reader in the catalog, and the ranges of the source's log in a file. Writes
    only the values that have changed."""
    snapshot = context.metastore.snapshot()
    fragment = ingest_fragment(source.id)
    kind = connector(source.connector)
    positions = read_positions(context.warehouse, context.metastore, snapshot, source)
    noted = context.metastore.jobs.noted_positions(fragment)
    stored = snapshot.states(fragment)
    texts = {split: kind.encode_state(state) for split, state in positions.states.items()}
    # There may be 100,000 positions, so only the changed positions are written. The row without a split states the
    # version up to which the other rows are valid.
    moved = {split: text for split, text in texts.items() if text != known_state(stored[split], noted.get(split))}
    mark = noted.get(ALL_SPLITS)
    is_behind = mark is None or (mark.epoch, mark.log_version) < (epoch, positions.log_version)
    if moved or (texts and is_behind):
        context.metastore.jobs.note_positions(
            [
                NotedPosition(
                    fragment=fragment, split=split, state=text, epoch=epoch, run=run, log_version=positions.log_version
                )
                for split, text in {**moved, ALL_SPLITS: ""}.items()
            ]
        )
    note_ranges(context.warehouse, source)
