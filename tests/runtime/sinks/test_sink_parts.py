"""A batch that is too large for the memory is written in parts."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.connectors.sink import Refusal, RefusedRowsError, SinkLook, TargetUnfitError
from rw_sql.runtime.delta.rejected_rows import RejectedRows, rejected_count
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.sinks import job as sink_job
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.sink_batches import shape, sink_spec

if TYPE_CHECKING:
    from pathlib import Path


class Frame:
    """The rows of a part, with the columns of a change feed."""

    def __init__(self, *ids: int) -> None:
        self.ids = ids

    def toArrow(self) -> pa.Table:  # noqa: N802
        rows = [{"id": id_, "word": "a", "_change_type": "insert", "_commit_version": 3} for id_ in self.ids]
        columns = [("id", pa.int32()), ("word", pa.string())]
        return pa.Table.from_pylist(
            rows, pa.schema([*columns, ("_change_type", pa.string()), ("_commit_version", pa.int64())])
        )


class Feed:
    """A change feed whose batch has these parts."""

    def __init__(self, *parts: Frame) -> None:
        self.all = list(parts)

    def rows(self, frame: Any, batch: int) -> Any:
        return frame

    def parts(self, rows: Any, batch: int, most_bytes: int) -> Any:
        return self.all


class WholeWriter:
    """A writer that refuses negative ids."""

    def __init__(self) -> None:
        self.written: list[tuple[str, list[int]]] = []

    def write(self, rows: pa.Table, batch: int) -> None:
        self.note("batch", rows)

    def note(self, what: str, rows: pa.Table) -> None:
        ids = rows["id"].to_pylist()
        if refused := [Refusal(index=at, reason="negative") for at, id_ in enumerate(ids) if id_ < 0]:
            raise RefusedRowsError(refused)
        self.written.append((what, ids))


class Writer(WholeWriter):
    """The same, which also writes parts."""

    is_divisible = True

    def accepts_parts(self) -> bool:
        return self.is_divisible

    def write_part(self, rows: pa.Table, batch: int) -> None:
        self.note("part", rows)


class Progress:
    def __init__(self) -> None:
        self.sent: int | None = None
        self.marked: list[int] = []
        self.checked = 0

    def require_turn(self, batch: int) -> None:
        self.checked += 1

    def mark(self, batch: int) -> None:
        self.marked.append(batch)


class Streaming:
    stall = None

    def batch(self) -> nullcontext[None]:
        return nullcontext()

    turn = batch


class Upkeep:
    def run_if_due(self) -> None:
        pass


def sink(tmp_path: Path, writer: WholeWriter, *parts: Frame) -> Any:
    unused: Any = None
    fakes: Any = {"progress": Progress(), "streaming": Streaming(), "upkeep": Upkeep(), "writer": writer}
    feed: Any = Feed(*parts)
    warehouse = Warehouse.at(str(tmp_path / "w"))
    return Sink(
        context=Context(warehouse=warehouse, metastore=unused, sessions=unused, owner="me"),
        spec=sink_spec(shape("upsert", "id")),
        run=1,
        checkpoint="",
        done=-1,
        feed=feed,
        **fakes,
    )


def test_only_the_last_part_counts_as_the_batch(tmp_path: Path) -> None:
    writer = Writer()
    job = sink(tmp_path, writer, Frame(1, 2), Frame(), Frame(3), Frame(4))
    job._on_batch(Frame(1, 2, 3, 4), 5)
    assert writer.written == [("part", [1, 2]), ("part", [3]), ("batch", [4])]
    assert (job.progress.marked, job.progress.sent, job.progress.checked) == ([5], 5, 3)


def test_a_batch_whose_last_part_is_empty_leaves_no_mark_in_the_target(tmp_path: Path) -> None:
    writer = Writer()
    job = sink(tmp_path, writer, Frame(1, 2), Frame())
    job._on_batch(Frame(1, 2), 5)
    assert writer.written == [("part", [1, 2])]
    assert (job.progress.marked, job.progress.sent) == ([5], None)


def test_a_writer_of_whole_batches_gets_the_whole_batch(tmp_path: Path) -> None:
    writer = WholeWriter()
    job = sink(tmp_path, writer, Frame(1), Frame(2))
    job._on_batch(Frame(1, 2), 5)
    assert writer.written == [("batch", [1, 2])]


def test_the_rejected_rows_of_all_parts_are_kept(tmp_path: Path) -> None:
    writer = Writer()
    job = sink(tmp_path, writer, Frame(1, -2), Frame(-3), Frame(-4, 5))
    job.rejected = RejectedRows.open(str(tmp_path / "rejected"), job.spec.shape)
    job._on_batch(Frame(), 0)
    assert writer.written == [("part", [1]), ("batch", [5])]
    assert job.rejected.total == rejected_count(job.rejected.path) == 3


def test_a_part_that_the_target_refuses_stops_the_sink(tmp_path: Path) -> None:
    writer = Writer()
    job = sink(tmp_path, writer, Frame(-1), Frame(2))
    with pytest.raises(RefusedRowsError):
        job._on_batch(Frame(), 0)
    assert "REFUSED row (id = -1): negative" in job.streaming.stall.reason
    assert (writer.written, job.progress.marked) == ([], [])


def test_a_refused_part_after_a_written_part_is_not_retried_by_itself(tmp_path: Path) -> None:
    writer = Writer()
    job = sink(tmp_path, writer, Frame(1, 2), Frame(3), Frame(-4, 5))
    job.spec = replace(job.spec, connector="kafka")
    with pytest.raises(RefusedRowsError):
        job._on_batch(Frame(), 0)
    assert job.streaming.stall.is_final
    assert job.streaming.stall.reason.endswith("; or correct the target, then PAUSE SINK k; RESUME SINK k")
    assert writer.written == [("part", [1, 2]), ("part", [3])]


def test_a_batch_whose_other_rows_are_written_names_the_statements_that_retry_it(tmp_path: Path) -> None:
    class Brokers(Writer):
        def write(self, rows: pa.Table, batch: int) -> None:
            raise RefusedRowsError([Refusal(index=0, reason="large")], is_rest_written=True)

    job = sink(tmp_path, Brokers(), Frame(1, 2))
    with pytest.raises(RefusedRowsError):
        job._on_batch(Frame(), 0)
    assert job.streaming.stall.is_final
    assert job.streaming.stall.reason.endswith("PAUSE SINK k; RESUME SINK k")


def test_a_refused_part_before_any_written_part_is_retried(tmp_path: Path) -> None:
    job = sink(tmp_path, Writer(), Frame(1))
    job._on_batch(Frame(), 0)
    # The parts of an earlier batch do not count.
    job.feed.all = [Frame(1), Frame(2)]
    job._on_batch(Frame(), 1)
    job.feed.all = [Frame(), Frame(-4), Frame(5)]
    with pytest.raises(RefusedRowsError):
        job._on_batch(Frame(), 2)
    assert not job.streaming.stall.is_final
    assert "RESUME SINK" not in job.streaming.stall.reason


class UnfitWriter(Writer):
    """A writer whose target does not accept the last part of a batch any more."""

    said = "no"

    def write(self, rows: pa.Table, batch: int) -> None:
        raise TargetUnfitError(self.said)


def failed(job: Any, batch: int = 0) -> tuple[bool, bool]:
    """Tries a batch that fails. Returns whether the stall is final, and whether it names the statements that retry."""
    job.streaming.stall = None
    with pytest.raises((RefusedRowsError, TargetUnfitError)):
        job._on_batch(Frame(), batch)
    return job.streaming.stall.is_final, "then PAUSE SINK k; RESUME SINK k" in job.streaming.stall.reason


def look_finds_no_fault(job: Any, monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]) -> None:
    """The context of a process that has run the sink before: ``made`` is ``Context.made``."""
    metastore = SimpleNamespace(snapshot=lambda: None)
    job.context = SimpleNamespace(
        resolve=lambda *_: {}, metastore=metastore, warehouse=job.context.warehouse, made=made
    )
    monkeypatch.setattr(sink_job, "_require_marks", lambda *_: None)
    monkeypatch.setattr(sink_job, "sink_connector", lambda _: SimpleNamespace(look=lambda *_: SinkLook()))


@pytest.mark.parametrize("connector", ["jdbc", "kafka", "deltalake"])
@pytest.mark.parametrize("parts_before", [0, 1])
def test_a_target_that_becomes_unfit_after_a_written_part_is_not_retried_by_itself_if_that_repeats_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts_before: int, connector: str
) -> None:
    job = sink(tmp_path, UnfitWriter(), *[Frame(1)] * parts_before, Frame(2))
    job.spec = replace(job.spec, connector=connector)
    look_finds_no_fault(job, monkeypatch, {})
    is_final = bool(parts_before) and connector != "jdbc"
    assert failed(job) == (is_final, is_final)
    assert "UNFIT no" in job.streaming.stall.reason


@pytest.mark.parametrize(
    ("writer", "last"), [(UnfitWriter(), Frame(2)), (Writer(), Frame(-2))], ids=["unfit", "refused"]
)
def test_jdbc_retries_a_batch_in_parts_until_the_third_equal_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Writer, last: Frame
) -> None:
    made: dict[str, Any] = {}

    def attempt(batch: int = 0) -> bool:
        job = sink(tmp_path, writer, Frame(1), last)  # every attempt is another run of the sink
        look_finds_no_fault(job, monkeypatch, made)
        is_final, names_statements = failed(job, batch)
        assert is_final == names_statements
        return is_final

    assert [attempt() for _ in range(3)] == [False, False, True]
    # After RESUME SINK, and in each further batch, the failures are counted anew.
    assert [attempt(), attempt(), attempt(1), attempt(1), attempt(1)] == [False, False, False, False, True]
    assert [attempt(2), attempt(2)] == [False, False]


def test_another_failure_of_jdbc_is_counted_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = UnfitWriter()
    job = sink(tmp_path, writer, Frame(1), Frame(2))
    look_finds_no_fault(job, monkeypatch, {})
    found = []
    for writer.said in ("a", "a", "b", "a", "a", "a"):
        found.append(failed(job)[0])
    assert found == [False] * 5 + [True]


def test_a_target_whose_rows_depend_on_each_other_gets_the_whole_batch(tmp_path: Path) -> None:
    writer = Writer()
    writer.is_divisible = False
    job = sink(tmp_path, writer, Frame(1), Frame(2))
    job._on_batch(Frame(1, 2), 5)
    assert writer.written == [("batch", [1, 2])]
