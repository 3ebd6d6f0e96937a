"""The splits that have rows in a source's log, also after a statement has set the positions of these splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.positions.notes import note_positions
from tests.crash.test_positions import ROWS, Log

if TYPE_CHECKING:
    from pathlib import Path


def test_a_split_that_was_read_counts_as_read_after_a_statement_has_set_its_position(tmp_path: Path) -> None:
    log = Log(tmp_path)
    output = log.start()
    output.append_rows(ROWS, 0, {"a:0": (0, 5), "b:0": (0, 0)})
    # The run ends and notes the positions, as after a PAUSE.
    note_positions(log.context, log.source, run=output.run, epoch=output.epoch)
    assert _read(log) == {"a:0"}
    for offset in (2, 5, 0):
        log.put(log.states(log.log_version(), a=offset))
        assert log.stand() == {"a": offset, "b": 0}
        assert _read(log) == {"a:0"}


def _read(log: Log) -> frozenset[str]:
    return WarehouseInspector(log.context, log.metastore.snapshot()).positions.of(1).read_splits
