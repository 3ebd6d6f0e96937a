"""A checkpoint on staging tables, moved to the logs, with a kill at each step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.runtime.positions import checkpoint_handover as hand_over
from rw_sql.runtime.positions.checkpoint_handover import is_moved_by_half, move, stands_in
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from pathlib import Path

MOVES = {"history": ("log", 8)}
HEAD = 'v1\n{"batchWatermarkMs":5}\n'
DONE = '{"sourceVersion":1,"reservoirId":"history","reservoirVersion":4,"index":-1,"isStartingVersion":false}'
OTHER = '{"sourceVersion":1,"reservoirId":"view","reservoirVersion":2,"index":3,"isStartingVersion":true}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for batch in range(3):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "commits").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(batch)).write_text(f"{HEAD}{OTHER}\n{DONE}\n-")
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    return tmp_path


def lines(checkpoint: Path, batch: int) -> list[str]:
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()


def test_both_entries_are_in_the_log_and_other_inputs_keep_their_positions(checkpoint: Path) -> None:
    assert stands_in(str(checkpoint), {"history"})
    move(str(checkpoint), MOVES)
    for batch in (1, 2):
        found = lines(checkpoint, batch)
        assert found[:3] == [*HEAD.splitlines(), OTHER]
        assert found[4] == "-"
        assert json.loads(found[3]) == {**json.loads(DONE), "reservoirId": "log", "reservoirVersion": 8}
    assert lines(checkpoint, 0)[3] == DONE
    assert not stands_in(str(checkpoint), {"history"})
    assert not is_moved_by_half(str(checkpoint), MOVES)


@pytest.mark.parametrize("passing", [1, 2])
def test_a_kill_in_between_is_made_up_for(checkpoint: Path, monkeypatch: pytest.MonkeyPatch, passing: int) -> None:
    passed = []

    def killed(name: str) -> None:
        passed.append(name)
        if len(passed) == passing:
            raise KeyboardInterrupt

    monkeypatch.setattr(hand_over, "fault", killed)
    with pytest.raises(KeyboardInterrupt):
        move(str(checkpoint), MOVES)
    monkeypatch.undo()
    assert is_moved_by_half(str(checkpoint), MOVES) is (passing == 2)
    assert stands_in(str(checkpoint), {"history"})
    move(str(checkpoint), MOVES)
    assert not stands_in(str(checkpoint), {"history"})


def test_one_batch_has_no_entry_before_it(checkpoint: Path) -> None:
    for batch in (1, 2):
        (checkpoint / "offsets" / str(batch)).unlink()
        (checkpoint / "commits" / str(batch)).unlink()
    move(str(checkpoint), MOVES)
    assert not stands_in(str(checkpoint), {"history"})


def test_a_batch_that_is_not_committed_is_not_moved_away_from(checkpoint: Path) -> None:
    (checkpoint / "commits" / "2").unlink()
    before = lines(checkpoint, 2)
    with pytest.raises(StalledError):
        move(str(checkpoint), MOVES)
    assert lines(checkpoint, 2) == before


def test_a_checkpoint_without_entries_has_its_history_before_it(tmp_path: Path) -> None:
    assert stands_in(str(tmp_path), set())
    assert CheckpointFiles.at(str(tmp_path)).batches("offsets") == []
