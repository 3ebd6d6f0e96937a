"""How a commit or snapshot of a log is divided into shares: each row is in one share, and the shares are in order."""

from __future__ import annotations

import errno
import json
import os
from random import Random
from typing import TYPE_CHECKING

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rw_sql.runtime.positions.log_shares import File, Position, Shares, StoredShares, cuts_of, number_of_shares
from rw_sql.runtime.positions.ordered_log import LOG_ORDER
from rw_sql.runtime.positions.progress import TableEnd
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.s3_store import S3Store

COLUMNS = LOG_ORDER[:4]


def cuts_of_equal(positions: Iterable[Position], count: int) -> tuple[Position, ...]:
    """The cuts of rows of one size."""
    return cuts_of(((position, 1.0) for position in positions), count)


def test_no_commit_has_more_shares_than_delta_makes_batches_of_it() -> None:
    random = Random(5)
    for _ in range(2_000):
        sizes = [random.randint(1, 50) for _ in range(random.randint(1, 30))]
        most = random.randint(1, 100)
        batches, left = 1, most
        for size in sizes:
            # Delta takes a file if the batch has any room, however large the file is.
            if left <= 0:
                batches, left = batches + 1, most
            left -= size
        shares = number_of_shares(sizes, most)
        assert 1 <= shares <= batches
        assert sum(sizes) / shares < most + max(sizes)


def test_shares_of_rows_of_one_size_have_the_same_number_of_rows() -> None:
    positions: list[Position] = [(1, 1, "s", offset) for offset in range(1_000)]
    Random(1).shuffle(positions)
    assert cuts_of_equal(positions, 4) == ((1, 1, "s", 250), (1, 1, "s", 500), (1, 1, "s", 750))


def test_shares_have_about_the_same_size_if_rows_differ_in_size() -> None:
    random = Random(2)
    rows = [((1, 1, "s", offset), float(random.choice((1, 1, 1, 1_000)))) for offset in range(2_000)]
    rows += [((1, 2, "s", offset), 1.0) for offset in range(20_000)]
    cuts = cuts_of(rows, 5)
    sizes = [0.0] * (len(cuts) + 1)
    for position, size in rows:
        sizes[sum(position >= cut for cut in cuts)] += size
    assert len(sizes) == 5
    assert max(sizes) - min(sizes) <= 2_000


def test_a_row_that_is_larger_than_a_share_has_a_share_of_its_own() -> None:
    rows = [((1, 1, "s", offset), 100.0 if offset == 2 else 1.0) for offset in range(5)]
    assert cuts_of(rows, 3) == ((1, 1, "s", 2), (1, 1, "s", 3))
    assert cuts_of(rows, 50)[:2] == ((1, 1, "s", 2), (1, 1, "s", 3))


def test_a_cut_never_divides_rows_with_one_position() -> None:
    one: Position = (1, 1, "a.gz", 0)
    assert cuts_of_equal([one] * 50, 4) == ()
    assert cuts_of_equal([one] * 50 + [(1, 1, "b.gz", 0)] * 50, 4) == ((1, 1, "b.gz", 0),)
    assert cuts_of([], 3) == ()


def test_rows_without_a_batch_number_come_before_rows_with_one() -> None:
    assert cuts_of_equal([(1, 0, "s", 1), (1, None, "s", 5)], 2) == ((1, 0, "s", 1),)


def _draw(random: Random) -> tuple[dict[str, list[Position]], Shares]:
    """Files whose rows overlap, in any order, with the shares of their rows."""
    rows = {(1, random.choice((None, 1, 2)), random.choice("ab"), random.randint(0, 60)) for _ in range(80)}
    files: dict[str, list[Position]] = {f"f{number}": [] for number in range(6)}
    for row in rows:
        files[random.choice([*files])].append(row)

    def key(position: Position) -> list[tuple[bool, object]]:
        return [(value is not None, value) for value in position]

    known = [
        File(path=name, first=min(found, key=key), last=max(found, key=key), bucket=random.randint(1, 3))
        for name, found in files.items()
        if found
    ]
    return files, Shares(columns=COLUMNS, files=tuple(known), cuts=cuts_of_equal(rows, random.randint(1, 7)))


def filled(position: Position) -> tuple[int, ...]:
    """A position with the smallest value in the place of NULL."""
    return tuple(-1 if value is None else value for value in position)


def test_each_row_is_read_once_and_in_order() -> None:
    random = Random(7)
    for _ in range(300):
        files, shares = _draw(random)
        found: list[tuple[int, ...]] = []
        steps: list[tuple[int, int | None]] = [(number, number + 1) for number in range(len(shares.cuts))]
        for done, upto in [*steps, (len(shares.cuts), None)]:
            low, high = shares.bounds(done, upto)
            rows = [filled(row) for file in shares.files_between(low, high) for row in files[file.path]]
            found += sorted(
                row for row in rows if (low is None or row >= filled(low)) and (high is None or row < filled(high))
            )
        assert found == sorted(found)
        assert len(found) == len(set(found)) == sum(map(len, files.values()))


def test_shares_are_stored_as_json() -> None:
    for seed in range(20):
        _, shares = _draw(Random(seed))
        assert Shares.from_json(json.loads(shares.to_json())) == shares


def test_shares_that_an_older_version_has_stored_are_read() -> None:
    _, shares = _draw(Random(1))
    body = json.loads(shares.to_json())
    old = {**body, "files": [[path, first, last] for path, first, last, _ in body["files"]]}
    found = Shares.from_json(old)
    assert {file.bucket for file in found.files} == {None}
    assert (found.columns, found.cuts) == (shares.columns, shares.cuts)
    assert [file.path for file in found.files] == [file.path for file in shares.files]


def end(version: int, index: int, *, is_snapshot: bool = False) -> TableEnd:
    return TableEnd(table="log", version=version, index=index, is_snapshot=is_snapshot)


def plan(warehouse: Warehouse, batch: int, at: TableEnd, *, is_committed: bool = True) -> None:
    """Plans a batch of the checkpoint ``c`` that ends at ``at``."""
    offset = {"reservoirId": at.table, "reservoirVersion": at.version, "index": at.index}
    folder = f"{warehouse.uri}/c"
    entry = json.dumps({**offset, "isStartingVersion": at.is_snapshot})
    warehouse.write_text(f"{folder}/offsets/{batch}", f"v1\n{{}}\n{entry}")
    if is_committed:
        warehouse.write_text(f"{folder}/commits/{batch}", "v1\n{}")


def stored_in(warehouse: Warehouse) -> StoredShares:
    return StoredShares(warehouse=warehouse, checkpoint=f"{warehouse.uri}/c")


def check_what_is_kept(warehouse: Warehouse) -> None:
    """Reads a snapshot and two commits in shares, and checks after each step which shares are kept."""
    shares, stored = _draw(Random(1))[1], stored_in(warehouse)

    def kept() -> list[tuple[int, str]]:
        stored.forget_read()
        names = warehouse.list_names(f"{warehouse.uri}/c/shares")
        return [(int(version), kind) for version, kind, _ in sorted(name.split("-") for name in names)]

    def begin(at: TableEnd) -> None:
        stored.put(at, shares)
        stored.note_done(at, 1)

    begin(end(7, 3, is_snapshot=True))
    assert kept() == [(7, "snapshot")]
    plan(warehouse, 0, end(7, 3, is_snapshot=True), is_committed=False)
    assert kept() == [(7, "snapshot")]
    plan(warehouse, 0, end(7, 3, is_snapshot=True))
    begin(end(8, 2))
    plan(warehouse, 1, end(8, 2), is_committed=False)
    # The batch may be repeated, and then reads the rest of the snapshot.
    assert kept() == [(7, "snapshot"), (8, "commit")]
    assert (stored.done_at(end(7, 3, is_snapshot=True)), stored.of(end(8, 2))) == (1, shares)
    plan(warehouse, 1, end(8, 2))
    assert kept() == [(8, "commit")]
    plan(warehouse, 2, end(9, -1), is_committed=False)
    assert kept() == [(8, "commit")]
    plan(warehouse, 2, end(9, -1))
    assert kept() == []
    assert stored.of(end(8, 2)) is None


def test_shares_are_removed_when_their_last_batch_is_complete(tmp_path: Path) -> None:
    check_what_is_kept(Warehouse.at(str(tmp_path)))


def test_shares_are_kept_if_the_checkpoint_has_no_batch_or_a_damaged_one(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    stored, shares = stored_in(warehouse), _draw(Random(1))[1]
    stored.put(end(8, 2), shares)
    stored.forget_read()
    assert stored.of(end(8, 2)) == shares
    warehouse.write_text(f"{warehouse.uri}/c/offsets/0", "v1\n{}\n{half of an off")
    stored.forget_read()
    assert stored.of(end(8, 2)) == shares


def check_two_owners(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (_draw(Random(seed))[1] for seed in (1, 2))
    stored, write = stored_in(warehouse), Warehouse.write_new_text
    found: list[Shares] = []

    def interrupted(own: Warehouse, path: str, text: str, *, is_durable: bool = False) -> None:
        monkeypatch.setattr(Warehouse, "write_new_text", write)
        found.append(stored.put(end(8, 2), other))
        write(own, path, text, is_durable=is_durable)

    monkeypatch.setattr(Warehouse, "write_new_text", interrupted)
    found.append(stored.put(end(8, 2), one))
    assert found == [other, other]
    assert stored.of(end(8, 5)) == other


def test_of_two_owners_that_divide_a_commit_at_once_both_read_the_first_division(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_two_owners(Warehouse.at(str(tmp_path)), monkeypatch)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["files.json"]


@pytest.mark.s3
def test_shares_are_stored_in_an_object_store_as_on_a_disk(s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_store.reached_by_the_environment():
        check_two_owners(Warehouse.at(s3_store.warehouse()), monkeypatch)
        check_what_is_kept(Warehouse.at(s3_store.warehouse()))


def other_store(folder: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None) -> Warehouse:
    """A warehouse in a store that responds to a conditional write with an error, or ignores the condition (None)."""

    def pipe_file(system: MemoryFileSystem, path: str, value: bytes, mode: str = "overwrite") -> None:
        if mode == "create" and error is not None:
            raise error
        system.open(path, "wb", data=value)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    return Warehouse.at(f"memory://{folder.name}/w")


def check_later_owner(warehouse: Warehouse) -> None:
    """Two owners divide a commit one after the other."""
    one, other = (_draw(Random(seed))[1] for seed in (1, 2))
    stored = stored_in(warehouse)
    assert [stored.put(end(8, 2), shares) for shares in (one, other)] == [one, one]
    assert stored.of(end(8, 2)) == one


def test_a_store_that_ignores_conditions_keeps_the_first_division(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_later_owner(other_store(tmp_path, monkeypatch, None))


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL])
def test_a_store_that_refuses_conditions_keeps_the_first_division(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    check_later_owner(other_store(tmp_path, monkeypatch, OSError(number, "If-None-Match")))


def test_a_file_system_without_hard_links_keeps_the_first_division(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    check_later_owner(Warehouse.at(str(tmp_path)))


@pytest.mark.parametrize("error", [OSError(errno.EBUSY, "409"), OSError("no response"), PermissionError("403")])
def test_a_division_whose_write_fails_is_not_written_without_a_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    stored = stored_in(other_store(tmp_path, monkeypatch, error))
    with pytest.raises(OSError, match=str(error.args[-1])):
        stored.put(end(8, 2), _draw(Random(1))[1])
    assert stored.of(end(8, 2)) is None


def test_a_lost_number_of_shares_stalls_the_query(tmp_path: Path) -> None:
    stored = stored_in(Warehouse.at(str(tmp_path)))
    assert stored.done_at(end(8, 2)) is None
    stored.put(end(8, 2), _draw(Random(1))[1])
    with pytest.raises(
        StalledError, match=r"CHECKPOINT lost: .*8-commit-log/2 does not exist: restore the file from a backup, or drop"
    ):
        stored.done_at(end(8, 2))
    stored.note_done(end(8, 2), 3)
    assert stored.done_at(end(8, 2)) == 3
