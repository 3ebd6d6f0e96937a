"""A view's checkpoint follows the catalog: rewritten in place, correct after a kill at any step, and available for
undo."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from rw_sql.checkpoints.files import CheckpointFiles, checksum_of
from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import FORGOTTEN, StoredState
from rw_sql.runtime.direct import align_checkpoint as settling
from rw_sql.runtime.direct.align_checkpoint import Alignment, DesiredReader, align, positions_of
from rw_sql.runtime.direct.checkpoint_record import Head, read_changes, read_head, read_record, with_lines, write_record
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from pathlib import Path

KAFKA = connector("kafka")
META = '{"batchWatermarkMs":1000,"batchTimestampMs":5,"conf":{}}'
DELTA = '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":4,"index":-1,"isStartingVersion":false}'
DROPPING = ("reader.in_drop", "reader.after_drop")
POINTS = ("reader.before_journal", "reader.after_journal", *DROPPING, "reader.after_rewrite")


ALL_POINTS = (*POINTS, "reader.after_record", "reader.before_finish")
"""Every fault point at the start of a view's direct readers; at the last two, nothing is half done."""


class KilledError(Exception):
    """Replaces a kill."""


@dataclass(slots=True)
class Checkpoint:
    """A view's checkpoint as Spark leaves it, and the catalog's desired readers."""

    folder: Path
    stored: dict[str, dict[str, StoredState]] = field(default_factory=dict)
    splits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    done: int = -1

    @property
    def files(self) -> CheckpointFiles:
        return CheckpointFiles.at(str(self.folder))

    def put(self, fragment: str, epoch: int, **states: int | str) -> None:
        """A statement at ``epoch`` assigns these splits and sets their positions; ``a_0`` is the split ``a:0``."""
        rows = self.stored.setdefault(fragment, {})
        for name, at in states.items():
            split = name.replace("_", ":")
            state = SplitState(split=split, offset=at, cluster="c", incarnation="t") if isinstance(at, int) else None
            text = KAFKA.encode_state(state) if state is not None else str(at)
            rows[split] = StoredState(fragment=fragment, split=split, state=text, epoch=epoch, log_version=-1)
        self.splits[fragment] = tuple(split for split, row in rows.items() if row.state != FORGOTTEN)
        self.since[fragment] = epoch

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.with_name(f".{path.name}.crc").write_bytes(checksum_of(text.encode()))

    def plan(self, batch: int, *lines: dict[str, int] | str) -> None:
        """Spark plans a batch."""
        texts = [line if isinstance(line, str) else KAFKA.write_positions(line) for line in lines]
        self.write(f"offsets/{batch}", "\n".join(["v1", META, *texts]))

    def run(self, batch: int, *lines: dict[str, int] | str) -> None:
        """Spark plans a batch and commits it; its rows are in the view."""
        self.plan(batch, *lines)
        self.write(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":1000}')
        self.done = batch

    def align(self) -> Alignment:
        return align(
            self.files,
            [
                DesiredReader(
                    fragment=fragment,
                    kind=KAFKA,
                    splits=self.splits[fragment],
                    stored=rows,
                    since=self.since[fragment],
                )
                for fragment, rows in self.stored.items()
            ],
            done=self.done,
        )

    def start(self, *lines: str | None) -> dict[str, int]:
        """A start of the view's query up to its first batch: where each split of its first reader begins."""
        alignment = self.align()
        assert alignment.unfinished is None
        record = read_record(self.files)
        assert record is not None
        if not record.lines:
            write_record(self.files, with_lines(record, lines or ("mv-2:1",)))
        (first, *_) = alignment.states.values()
        return {split: state.offset for split, state in first.items()}

    def line(self, batch: int, at: int = 0) -> dict[str, int]:
        return KAFKA.read_positions((self.folder / f"offsets/{batch}").read_text().splitlines()[2 + at])

    def positions(self, fragment: str = "mv-2:1") -> dict[str, int]:
        stood = positions_of(read_head(self.files), fragment, KAFKA, self.stored[fragment])
        return {split: state.offset for split, state in stood.items()}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """One reader of a:0 and a:1 that has committed three batches, to 30 and 7."""
    made = Checkpoint(folder=tmp_path / "cp")
    made.put("mv-2:1", 3, a_0=10, a_1=0)
    assert made.start() == {"a:0": 10, "a:1": 0}
    for batch, at in enumerate((15, 20, 30)):
        made.run(batch, {"a:0": at, "a:1": 7})
    return made


def test_a_first_start_begins_where_the_catalog_says_and_later_ones_where_it_came_to(checkpoint: Checkpoint) -> None:
    before = (checkpoint.folder / "offsets/2").read_bytes()
    assert checkpoint.start() == checkpoint.positions() == {"a:0": 30, "a:1": 7}
    assert (checkpoint.folder / "offsets/2").read_bytes() == before
    assert len(read_changes(checkpoint.files)) == 1


def test_what_a_statement_set_is_written_into_the_newest_committed_entry(checkpoint: Checkpoint) -> None:
    checkpoint.put("mv-2:1", 8, a_0=12)
    assert checkpoint.positions() == {"a:0": 12, "a:1": 7}
    assert checkpoint.line(2) == {"a:0": 30, "a:1": 7}
    assert checkpoint.start() == {"a:0": 12, "a:1": 7}
    text = (checkpoint.folder / "offsets/2").read_text()
    assert text.splitlines()[:2] == ["v1", META]
    assert (checkpoint.folder / "offsets/.2.crc").read_bytes() == checksum_of(text.encode())
    assert checkpoint.line(1) == {"a:0": 20, "a:1": 7}
    checkpoint.run(3, {"a:0": 25, "a:1": 9})
    assert checkpoint.start() == checkpoint.positions() == {"a:0": 25, "a:1": 9}


def test_a_new_assignment_replaces_the_old_one(checkpoint: Checkpoint) -> None:
    checkpoint.put("mv-2:1", 8, a_2=4)
    assert checkpoint.start() == {"a:0": 30, "a:1": 7, "a:2": 4}
    assert checkpoint.line(2) == {"a:0": 30, "a:1": 7, "a:2": 4}
    checkpoint.stored["mv-2:1"] = {}
    checkpoint.put("mv-2:1", 9, b_0=5)
    assert checkpoint.start() == {"b:0": 5}
    assert checkpoint.line(2) == {"b:0": 5}


def test_splits_that_return_continue_at_their_old_positions(checkpoint: Checkpoint) -> None:
    checkpoint.splits["mv-2:1"] = ("a:1",)
    assert checkpoint.start() == {"a:1": 7}
    assert checkpoint.positions() == {"a:0": 30, "a:1": 7}
    checkpoint.run(3, {"a:1": 8})
    checkpoint.splits["mv-2:1"] = ("a:0", "a:1")
    assert checkpoint.start() == {"a:0": 30, "a:1": 8}
    assert checkpoint.line(3) == {"a:0": 30, "a:1": 8}


def test_a_position_that_was_set_while_the_split_was_not_read_counts_when_it_is(checkpoint: Checkpoint) -> None:
    checkpoint.splits["mv-2:1"] = ("a:1",)
    checkpoint.start()
    checkpoint.put("mv-2:1", 9, a_0=11)
    checkpoint.splits["mv-2:1"] = ("a:1",)
    checkpoint.start()
    assert checkpoint.positions() == {"a:0": 11, "a:1": 7}
    checkpoint.splits["mv-2:1"] = ("a:0", "a:1")
    assert checkpoint.start() == {"a:0": 11, "a:1": 7}


def test_a_forgotten_split_has_no_position(checkpoint: Checkpoint) -> None:
    checkpoint.put("mv-2:1", 8, a_0=FORGOTTEN)
    assert checkpoint.positions() == {"a:1": 7}
    assert checkpoint.start() == {"a:1": 7}


def test_a_batch_that_was_planned_and_wrote_nothing_is_taken_away(checkpoint: Checkpoint) -> None:
    checkpoint.plan(3, {"a:0": 99, "a:1": 7})
    checkpoint.put("mv-2:1", 8, a_0=12)
    assert checkpoint.start() == {"a:0": 12, "a:1": 7}
    assert sorted(path.name for path in (checkpoint.folder / "offsets").iterdir()) == [
        ".0.crc",
        ".1.crc",
        ".2.crc",
        "0",
        "1",
        "2",
    ]
    dropped = read_changes(checkpoint.files)[-1].dropped
    assert dropped is not None
    assert '"0":99' in dropped


def test_a_batch_whose_rows_are_in_the_view_is_finished_first(checkpoint: Checkpoint) -> None:
    checkpoint.plan(3, {"a:0": 40, "a:1": 7})
    checkpoint.done = 3
    checkpoint.put("mv-2:1", 8, a_0=12)
    assert checkpoint.align().unfinished == 3
    assert checkpoint.line(2) == {"a:0": 30, "a:1": 7}
    checkpoint.run(3, {"a:0": 40, "a:1": 7})
    assert checkpoint.start() == {"a:0": 12, "a:1": 7}


def test_without_a_change_a_planned_batch_is_left_to_spark(checkpoint: Checkpoint) -> None:
    checkpoint.plan(3, {"a:0": 40, "a:1": 7})
    for done in (2, 3):
        checkpoint.done = done
        assert checkpoint.start() == {"a:0": 30, "a:1": 7}
        assert checkpoint.line(3) == {"a:0": 40, "a:1": 7}


def test_a_reader_that_never_came_to_a_batch_begins_again(tmp_path: Path) -> None:
    made = Checkpoint(folder=tmp_path / "cp")
    made.put("mv-2:1", 3, a_0=10)
    made.start()
    made.write("metadata", '{"id":"x"}')
    made.write("sources/0/0", 'v1\n{"a":{"0":10}}')
    made.plan(0, {"a:0": 15})
    made.put("mv-2:1", 8, a_0=2)
    assert made.start() == {"a:0": 2}
    assert sorted(path.name for path in made.folder.iterdir() if path.name != "_rw_sql") == []
    assert made.start() == {"a:0": 2}
    assert len(read_changes(made.files)) == 2


def test_two_readers_of_one_topic_and_a_log_have_a_line_each(tmp_path: Path) -> None:
    made = Checkpoint(folder=tmp_path / "cp")
    made.put("mv-5:1", 3, a_0=0)
    made.put("mv-5:2", 3, a_0=0)
    made.start("mv-5:2", None, "mv-5:1")
    made.run(0, {"a:0": 20}, DELTA, {"a:0": 10})
    made.put("mv-5:1", 8, a_0=3)
    assert made.start() == {"a:0": 3}
    lines = (made.folder / "offsets/0").read_text().splitlines()[2:]
    assert lines == ['{"a":{"0":20}}', DELTA, '{"a":{"0":3}}']


def test_a_damaged_checkpoint_is_reported_and_not_touched(checkpoint: Checkpoint) -> None:
    (checkpoint.folder / "_rw_sql/readers.json").unlink()
    with pytest.raises(StalledError, match="CHECKPOINT damaged"):
        checkpoint.align()


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("then", ["nothing", "another", "back"])
def test_a_kill_at_any_step_does_not_change_the_result(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, point: str, is_planned: bool, then: str
) -> None:
    if is_planned:
        checkpoint.plan(3, {"a:0": 99, "a:1": 7})
    old = dict(checkpoint.stored["mv-2:1"])
    checkpoint.put("mv-2:1", 8, a_0=12, a_2=1)

    def killed(name: str) -> None:
        if name == point:
            raise KilledError

    monkeypatch.setattr(settling, "fault", killed)
    try:
        checkpoint.align()
        is_killed = False
    except KilledError:
        is_killed = True
    assert is_killed == (is_planned or point not in DROPPING)
    monkeypatch.undo()
    assert checkpoint.positions() == {"a:0": 12, "a:1": 7, "a:2": 1}
    if then == "another":
        checkpoint.put("mv-2:1", 9, a_1=5)
    elif then == "back":
        # The earlier position remains, because the position that the first change set was never read from.
        checkpoint.stored["mv-2:1"] = old
        checkpoint.put("mv-2:1", 9, a_0=30)
    expected = {"a:0": 12, "a:1": 7, "a:2": 1}
    expected |= {"a:1": 5} if then == "another" else {}
    if then == "back":
        expected = {"a:0": 30, "a:1": 7}
    assert checkpoint.start() == checkpoint.positions() == checkpoint.line(2) == expected
    assert not (checkpoint.folder / "offsets/3").exists() or (then == "back" and point != "reader.after_drop")
    # A checksum without its file would contradict the next batch of that number.
    assert not (checkpoint.folder / "offsets/.3.crc").exists() or (checkpoint.folder / "offsets/3").exists()
    changes = read_changes(checkpoint.files)
    if is_killed:
        # Begun once and finished once; whatever came in between, the state before it is recorded.
        assert len(changes) == 2
    assert json.dumps(changes[1].before)
    assert KAFKA.read_positions(str(changes[1].before).splitlines()[2]) == {"a:0": 30, "a:1": 7}
    assert checkpoint.start() == expected
    assert len(read_changes(checkpoint.files)) == len(changes)


def test_undo_gets_the_position_that_a_reader_had_when_a_statement_took_effect(checkpoint: Checkpoint) -> None:
    met = dict(checkpoint.stored["mv-2:1"])
    checkpoint.put("mv-2:1", 8, a_0=12)
    met_later = dict(checkpoint.stored["mv-2:1"])
    checkpoint.put("mv-2:1", 9, a_0=1)
    checkpoint.start()
    checkpoint.run(3, {"a:0": 77, "a:1": 8})

    def before(epoch: int, stood: dict[str, StoredState]) -> dict[str, int]:
        change = next(c for c in read_changes(checkpoint.files) if c.epochs["mv-2:1"] >= epoch)
        then = Head(committed=change.batch, planned=change.batch, text=change.before, record=change.was, changes=())
        return {split: state.offset for split, state in positions_of(then, "mv-2:1", KAFKA, stood).items()}

    assert before(8, met) == {"a:0": 30, "a:1": 7}
    # The statement of epoch 9 found a position that was set and never read from.
    assert before(9, met_later) == {"a:0": 12, "a:1": 7}
