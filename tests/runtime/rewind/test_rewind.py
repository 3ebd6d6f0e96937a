"""Rewind points and REWIND on real tables and checkpoints: the resulting rows, also after a kill on the way."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.runtime.delta.delta_log import table_id
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.positions.pins import copies_of, least_needed_version, needed_of_input
from rw_sql.runtime.positions.table_consumers import planned_versions_of
from rw_sql.runtime.rewind.points import copy_checkpoint
from rw_sql.runtime.rewind.pruning import prune_points
from rw_sql.runtime.rewind.restore import CannotRewindError, carry_out
from rw_sql.runtime.support import faults
from tests.runtime.mini_streams import MiniWarehouse, expected
from tests.runtime.rewind_sequences import MAKING_POINTS, REWIND_POINTS, Killed, live_on
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from tests.support.s3_store import S3Store


def made(folder: Path) -> MiniWarehouse:
    """A source with four views, one of them on another."""
    mini = MiniWarehouse.at(folder)
    for name in ("plain", "counts", "pairs"):
        mini.create_view(name)
    mini.create_view("plain_top", of="plain")
    return mini


def inject(mini: MiniWarehouse, to: int) -> int:
    """Moves the source, which is paused for it; the operation's number."""
    mini.run("PAUSE SOURCE s", f"INJECT SOURCE OFFSETS s VALUES ('1-0' = {to}) ALLOW DUPLICATES, GAPS")
    return mini.epoch()


def require(mini: MiniWarehouse, ids: list[int]) -> None:
    """Asserts that all views have the rows that follow from these source rows."""
    assert mini.log_ids() == sorted(ids)
    wanted = expected(ids)
    assert {name: mini.rows(name) for name in wanted} == wanted
    assert mini.rows("plain_top") == wanted["plain"]


def moved_back(mini: MiniWarehouse) -> int:
    """Ten rows are read; four of them again after an injection, and five more. The injection's number."""
    mini.ingest(4, 6)
    mini.read_views()
    operation = inject(mini, 6)
    mini.settle()
    mini.run("RESUME SOURCE s")
    mini.ingest(4, 5)
    mini.read_views()
    require(mini, [*range(10), *range(6, 15)])
    return operation


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A warehouse whose source was moved back, and the operation that did it."""
    folder = tmp_path_factory.mktemp("template") / "warehouse"
    return folder, moved_back(made(folder))


@pytest.fixture
def operation(template: tuple[Path, int]) -> int:
    return template[1]


@pytest.fixture
def mini(template: tuple[Path, int], tmp_path: Path) -> MiniWarehouse:
    """A copy of that warehouse."""
    shutil.copytree(template[0], tmp_path / "warehouse", copy_function=shutil.copy)
    return MiniWarehouse.opened(tmp_path / "warehouse")


@pytest.mark.long
def test_everything_goes_back_and_on_as_if_the_operation_had_never_been(mini: MiniWarehouse, operation: int) -> None:
    answer = mini.run(f"REWIND SOURCE s TO OPERATION {operation} REASON 'wrong offset'")
    assert answer.rows[0] == ("s", "REWOUND", f"to just before operation {operation}")
    preview = mini.previews[-1]
    assert "note: the log of s: 9 rows are removed, 10 stay" in preview
    assert "note: plain: 9 rows are removed, 10 stay" in preview
    assert "note: counts: is restored from 3 to 3 rows, each with the values that it had at that time" in preview
    assert "1-0    15   10" in preview
    assert "in all: DUPLICATES 0, GAP 0" in preview
    rewind = mini.epoch()
    mini.settle()
    require(mini, list(range(10)))
    assert mini.position() == 10
    mini.ingest(3, 4)
    mini.read_views()
    require(mini, list(range(17)))
    mini.ingest(1)
    mini.read_views()
    require(mini, list(range(18)))
    table = mini.run("SHOW SOURCE CONTINUITY s")
    rows = [dict(zip([name for name, _ in table.columns], row, strict=True)) for row in table.rows]
    told = {row["operation"]: (row["status"], row["duplicates"], row["gaps"], row["first_after"]) for row in rows}
    assert told[operation] == ("TAKEN BACK", None, None, None)
    assert told[rewind] == ("AS PREDICTED", 0, 0, 10)
    assert told[None] == ("UNBROKEN", 0, 0, None)


@pytest.mark.long
def test_a_rewind_can_be_reverted(mini: MiniWarehouse, operation: int) -> None:
    mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    rewind = mini.epoch()
    mini.settle()
    mini.ingest(2)
    mini.read_views()
    with pytest.raises(SqlError, match=f"REWIND SOURCE s TO OPERATION {rewind} reverts it"):
        mini.run(f"UNDO OPERATION {rewind}")
    mini.run(f"REWIND SOURCE s TO OPERATION {rewind}")
    mini.settle()
    require(mini, [*range(10), *range(6, 15)])
    mini.ingest(2)
    mini.read_views()
    require(mini, [*range(10), *range(6, 17)])
    table = mini.run("SHOW SOURCE CONTINUITY s")
    told = {row[0]: row[-2] for row in table.rows}
    # The reverted rows are there again.
    assert (told[operation], told[rewind], told[None]) == ("AS PREDICTED", "TAKEN BACK", "UNBROKEN")


@pytest.mark.long
@pytest.mark.parametrize("point", [*REWIND_POINTS, "rewind.fenced@3", "rewind.checkpoint_copied@4"])
def test_killed_anywhere_it_is_carried_out_by_the_next_owner(
    mini: MiniWarehouse, operation: int, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def die(name: str) -> None:
        raise Killed(name)

    monkeypatch.setattr(faults, "kill", die)
    mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    snapshot = mini.context.metastore.snapshot()
    (rewind,) = snapshot.all("rewind")
    faults.arm(point)
    with pytest.raises(Killed, match=point.partition("@")[0]), mini.owning():
        carry_out(mini.context, snapshot, rewind)
    faults.arm("")
    mini.settle()
    require(mini, list(range(10)))
    mini.ingest(3, 4)
    mini.read_views()
    require(mini, list(range(17)))


def checkpoint_files(mini: MiniWarehouse) -> dict[str, bytes]:
    """All files below the folder of checkpoints, with their content."""
    files = mini.context.warehouse.files
    return {path: files.cat_file(path) for path in files.find(f"{mini.context.warehouse.uri}/checkpoints")}


class Suspended:
    """A warehouse with a REWIND that its owner begins, and that the next owner carries out before the first resumes."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._mini = MiniWarehouse.at(place)
        self._mini.create_view("counts")
        self._mini.ingest(4, 6)
        self._mini.read_views()
        operation = inject(self._mini, 6)
        self._mini.settle()
        self._mini.run("RESUME SOURCE s")
        self._mini.ingest(4)
        self._mini.read_views()
        self._mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
        self._left: dict[str, bytes] = {}

    def carry_out(self) -> None:
        """The first owner's REWIND, which must fail."""
        (rewind,) = self._mini.context.metastore.snapshot().all("rewind")
        with self._mini.owning(), pytest.raises((CannotRewindError, FencedError)):
            carry_out(self._mini.context, self._mini.context.metastore.snapshot(), rewind)

    def live_on_without_it(self, _: str = "") -> None:
        """The next owner's REWIND, after which its reader and its view commit."""
        other = MiniWarehouse.opened(self._place, owner="the next owner")
        other.settle()
        for _round in range(3):
            other.ingest(2)
            other.read_views()
        self._left = checkpoint_files(other)

    def require_unchanged(self) -> None:
        """Asserts that the first owner has changed no checkpoint, and that the next run of the view continues."""
        assert self._left
        assert checkpoint_files(self._mini) == self._left
        self._mini.ingest(3)
        self._mini.read_views()
        assert self._mini.rows("counts") == expected(range(19))["counts"]


@pytest.mark.parametrize(
    "point",
    [
        "rewind.fenced",
        "rewind.checkpoint_copied",
        "rewind.checkpoint_moved",
        "rewind.checkpoint_removed",
        "rewind.checkpoint_replaced",
    ],
)
def test_an_owner_that_was_suspended_leaves_the_next_owners_checkpoint_alone(tmp_path: Path, point: str) -> None:
    suspended = Suspended(str(tmp_path / "warehouse"))
    faults.arm(point, kills="nobody", tell=suspended.live_on_without_it)
    suspended.carry_out()
    faults.arm("")
    suspended.require_unchanged()


@pytest.mark.s3
@pytest.mark.long
@pytest.mark.parametrize("point", ["rewind.checkpoint_moved", "rewind.checkpoint_removed"])
def test_so_it_does_in_an_object_store(s3_store: S3Store, point: str) -> None:
    with s3_store.reached_by_the_environment():
        suspended = Suspended(s3_store.warehouse())
        faults.arm(point, kills="nobody", tell=suspended.live_on_without_it)
        suspended.carry_out()
        faults.arm("")
        suspended.require_unchanged()


@pytest.mark.s3
@pytest.mark.long
def test_a_late_write_of_an_owner_to_an_object_store_has_the_next_owners_content(s3_store: S3Store) -> None:
    with s3_store.reached_by_the_environment(), ThreadPoolExecutor(1) as thread:
        suspended = Suspended(s3_store.warehouse())
        with s3_store.holding(r"/checkpoints/mv-\d+/1/offsets/") as is_waiting:
            first = thread.submit(suspended.carry_out)
            wait_until(lambda: is_waiting() or first.done(), "the copy of an entry of the offset log")
            suspended.live_on_without_it()
        first.result()
        suspended.require_unchanged()


def test_an_owner_that_lost_the_lease_starts_no_run(mini: MiniWarehouse, operation: int) -> None:
    """A new run would stop the next owner's reader."""
    mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    (rewind,) = mini.context.metastore.snapshot().all("rewind")
    before = mini.context.metastore.jobs.last_runs()
    with pytest.raises(CannotRewindError, match="no longer runs the jobs"):
        carry_out(mini.context, mini.context.metastore.snapshot(), rewind)
    assert mini.context.metastore.jobs.last_runs() == before


def test_the_copy_of_a_killed_try_is_removed_by_the_next(mini: MiniWarehouse, operation: int) -> None:
    left = Path(mini.context.warehouse.view_checkpoint(mini.views()[0].id, 1) + "-rewind-0123abcd/offsets")
    left.mkdir(parents=True)
    (left / "3").touch()
    mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    mini.settle()
    assert [path.name for path in left.parents[1].iterdir()] == ["1"]


@pytest.mark.long
@pytest.mark.parametrize("point", MAKING_POINTS)
def test_a_point_whose_making_is_killed_is_made_by_the_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    from rw_sql.runtime.rewind.points import make_points, wanted_points

    def die(name: str) -> None:
        raise Killed(name)

    monkeypatch.setattr(faults, "kill", die)
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.ingest(10)
    mini.read_views()
    operation = inject(mini, 6)
    wanted = wanted_points(mini.context, mini.context.metastore.snapshot(), mini.source)
    assert [record.epoch for record in wanted] == [operation]
    faults.arm(point)
    with pytest.raises(Killed):
        make_points(mini.context, mini.source, wanted, lambda: False, lambda: None)
    faults.arm("")
    mini.settle()
    mini.run("RESUME SOURCE s")
    mini.ingest(8)
    mini.read_views()
    mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    mini.settle()
    assert mini.rows("counts") == expected(range(10))["counts"]


@pytest.mark.parametrize("point", ["rewind_point.before_copy", "rewind_point.after_copy", "rewind_point.before_note"])
def test_an_owner_that_was_suspended_leaves_the_next_owners_point_alone(tmp_path: Path, point: str) -> None:
    """It makes the same point, and resumes when the checkpoint no longer has the files of that batch."""
    from rw_sql.runtime.rewind.points import make_points, wanted_points

    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.ingest(10)
    mini.read_views()
    operation = inject(mini, 6)
    wanted = wanted_points(mini.context, mini.context.metastore.snapshot(), mini.source)
    later: list[int] = []

    def live_on_without_it(_: str) -> None:
        mini.settle()
        mini.run("RESUME SOURCE s")
        mini.ingest(8)
        mini.read_views()
        (view,) = mini.context.metastore.snapshot().all("materialized_view")
        checkpoint = Path(mini.context.warehouse.view_checkpoint(view.id, view.generation))
        for folder in ("offsets", "commits"):
            min((checkpoint / folder).iterdir(), key=lambda file: int(file.name)).unlink()
        # And another point, which is being made while the suspended owner resumes.
        later.append(inject(mini, 12))
        mini.settle()

    faults.arm(point, kills="nobody", tell=live_on_without_it)
    make_points(mini.context, mini.source, wanted, lambda: False, lambda: None)
    faults.arm("")
    assert [found.operation for found in mini.context.metastore.jobs.rewind_points()] == [operation, *later]
    mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    mini.settle()
    assert mini.rows("counts") == expected(range(10))["counts"]


def test_copies_that_another_owner_is_making_are_not_removed(tmp_path: Path) -> None:
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.ingest(10)
    mini.read_views()
    operation = inject(mini, 6)
    mini.settle()
    copies = tmp_path / "warehouse" / "checkpoints" / f"rewind-{mini.source.id}"
    made_now, left_behind = copies / f"{operation + 1}-0" / "view-9", copies / f"{operation - 1}-0" / "view-9"
    for folder in (made_now, left_behind):
        folder.mkdir(parents=True)
        (folder / "metadata").touch()
    prune_points(mini.context, mini.context.metastore.snapshot(), mini.source.id)
    assert (made_now.exists(), left_behind.exists()) == (True, False)
    (point,) = mini.context.metastore.jobs.rewind_points()
    assert (tmp_path / "warehouse" / "checkpoints" / str(point.folder)).exists()


@pytest.mark.long
def test_a_random_history_with_rewinds_and_kills(tmp_path: Path) -> None:
    facts = live_on(tmp_path, seed=1, length=8)
    assert min(facts["rewind"], facts["kills"]) >= 1


def test_operations_on_the_same_rows_share_a_copy_and_old_points_go(tmp_path: Path) -> None:
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.run("ALTER SYSTEM SET rewind_points = 2")
    mini.ingest(10)
    mini.read_views()
    first = inject(mini, 6)
    mini.settle()
    mini.run("INJECT SOURCE OFFSETS s VALUES ('1-0' = 7) ALLOW DUPLICATES")
    second = mini.epoch()
    mini.settle()
    facts = mini.context.metastore.jobs
    points = facts.rewind_points(mini.source.id)
    assert [point.operation for point in points] == [first, second]
    assert len({point.folder for point in points}) == 1
    assert [dict(point.states) != {} for point in points] == [True, True]
    assert least_needed_version(mini.context, mini.source.id) == points[0].log_version
    mini.run("RESUME SOURCE s")
    mini.ingest(5)
    mini.read_views()
    third = inject(mini, 9)
    mini.settle()
    assert [point.operation for point in facts.rewind_points(mini.source.id)] == [second, third]
    listed = mini.run("SHOW UNSAFE OPERATIONS FOR s").rows
    assert {row[0]: row[-1] for row in listed} == {
        first: None,
        second: f"REWIND SOURCE s TO OPERATION {second}",
        third: f"REWIND SOURCE s TO OPERATION {third}",
    }
    with pytest.raises(SqlError, match=r"there is no rewind point: .* newer points have replaced it") as caught:
        mini.run(f"REWIND SOURCE s TO OPERATION {first}")
    assert caught.value.code == "RW334"
    assert f"rewind points of s: operation {second}, {third}" in (caught.value.hint or "")


def test_a_point_keeps_the_versions_that_a_copied_checkpoint_requests_again(tmp_path: Path) -> None:
    mini = made(tmp_path / "warehouse")
    for rows in (4, 6):
        mini.ingest(rows)
        mini.read_views()
    inject(mini, 6)
    mini.settle()
    snapshot, (point,) = mini.context.metastore.snapshot(), mini.context.metastore.jobs.rewind_points(mini.source.id)
    ids = {record.name: record.id for record in snapshot.all("materialized_view")}
    dependent = next(found for found in point.dependents if found.id == ids["plain_top"])
    unread = dict(dependent.reads)[ids["plain"]]
    table = mini.context.warehouse.data(ids["plain"], 1)
    copy = copies_of(mini.context, point, dependent.id)
    versions = planned_versions_of(mini.context.warehouse, copy, table_id(mini.context.warehouse, table))
    assert min(versions) < unread
    assert needed_of_input(mini.context, point, dependent, ids["plain"]) <= min(versions)
    assert (least_needed_version(mini.context, ids["plain"]) or 0) <= min(versions)


def test_a_view_that_has_not_read_all_leaves_the_operation_without_a_point(tmp_path: Path) -> None:
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.create_view("plain")
    mini.run("ALTER SYSTEM SET rewind_point_timeout = '200ms'")
    mini.ingest(10)
    mini.read_views()
    mini.ingest(5)
    mini.read_views("plain")
    operation = inject(mini, 6)
    mini.settle()
    with pytest.raises(SqlError, match="materialized view counts took too long to read and lacks"):
        mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    # For a stopped job, the result is known at once.
    mini.run("ALTER SYSTEM SET rewind_point_timeout = '10min'")
    view = mini.context.metastore.snapshot().find("materialized_view", "counts")
    assert view is not None
    stalled = JobStatus(job=f"mv-{view.id}", object_id=view.id, state="STALLED", reason="no disk")
    mini.context.metastore.jobs.write_job_status([stalled])
    mini.run("INJECT SOURCE OFFSETS s VALUES ('1-0' = 7) ALLOW DUPLICATES")
    operation = mini.epoch()
    mini.settle()
    with pytest.raises(SqlError, match="materialized view counts was stalled and lacks rows of its inputs"):
        mini.run(f"REWIND SOURCE s TO OPERATION {operation}")


def test_a_view_whose_history_is_being_read_leaves_the_operation_without_a_point(tmp_path: Path) -> None:
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.run("ALTER SYSTEM SET rewind_point_timeout = '200ms'")
    mini.ingest(10)
    mini.read_views()
    snapshot = mini.context.metastore.snapshot()
    view = snapshot.find("materialized_view", "counts")
    assert view is not None
    history = History(source_id=mini.source.id, log_version=0, splits=(SplitHistory(split="1-0", start=0, end=10),))
    change = PutObject(record=replace(view, histories=(history.to_text(),)))
    operation = Operation(kind="CREATE MATERIALIZED VIEW", statement="", objects=("counts",), changes=(change,))
    mini.context.metastore.commit(operation, based_on=snapshot)
    injected = inject(mini, 6)
    mini.settle()
    with pytest.raises(SqlError, match="materialized view counts had not completed its backfill"):
        mini.run(f"REWIND SOURCE s TO OPERATION {injected}")


def test_a_copy_leaves_out_later_batches_and_the_shares_of_commits(tmp_path: Path) -> None:
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    origin, target = tmp_path / "origin", tmp_path / "copy"
    later: tuple[str, ...] = ("offsets/3", "offsets/.3.crc", "commits/3", "state/0/0/4.delta", "state/0/0/.4.delta.crc")
    later += ("state/0/1/left-keyToNumValues/4.snapshot", "state/0/2/4_f81d.zip", "state/0/2/4.changelog")
    later += (f"shares/{7:020d}-commit-t/files.json", f"shares/{7:020d}-commit-t/0")
    kept: tuple[str, ...] = (
        "metadata",
        "offsets/2",
        "offsets/.2.crc",
        "commits/2",
        "state/0/0/3.delta",
        "state/0/0/_metadata/v2/0",
    )
    kept += ("state/0/1/left-keyToNumValues/3.snapshot", "state/0/2/3_a0c1.zip", "state/0/2/SSTs/00014.sst")
    for name in (*kept, *later):
        (origin / name).parent.mkdir(parents=True, exist_ok=True)
        (origin / name).write_text(name)
    copy_checkpoint(mini.context, str(origin), str(target), 2)
    assert {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()} == set(kept)


def test_what_no_longer_exists_is_reported_beforehand(mini: MiniWarehouse, operation: int, tmp_path: Path) -> None:
    before = mini.epoch()
    mini.create_view("counts_late")
    with pytest.raises(SqlError, match='materialized view "counts_late" was created after the operation'):
        mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    mini.run("DROP MATERIALIZED VIEW counts_late")
    (point,) = mini.context.metastore.jobs.rewind_points(mini.source.id)
    counts = next(found for found in point.dependents if found.id == mini.views()[1].id)
    shutil.rmtree(f"{mini.context.warehouse.uri}/checkpoints/{point.folder}/mv-{counts.id}")
    with pytest.raises(SqlError, match='"counts" has no copy of its checkpoint any more'):
        mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    with pytest.raises(SqlError, match="that operation did not move the source"):
        mini.run(f"REWIND SOURCE s TO OPERATION {before}")
    with pytest.raises(SqlError, match="operation 999 does not exist"):
        mini.run("REWIND SOURCE s TO OPERATION 999")
    with pytest.raises(SqlError, match="ALLOW GAPS has no effect"):
        mini.run(f"REWIND SOURCE s TO OPERATION {operation} ALLOW GAPS")
