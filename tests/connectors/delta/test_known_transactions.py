"""The Delta sink's writer does not read the log of its target again for each batch, and still finds every transaction
of another process, whatever other programs do with the table."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake

from rw_sql.connectors.delta.known_transactions import _MOST_READ, KnownTransactions
from rw_sql.connectors.delta.sink import DeltaSink
from rw_sql.connectors.sink import SinkError
from tests.support.s3_store import ACCESS_KEY, REGION, SECRET_KEY, S3Store
from tests.support.sink_batches import ARROW, batch, shape

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")
_THEIRS = batch((9, "theirs")).select(ARROW.remove(2).names)


def _append(path: Path, number: int = 1, **transactions: int) -> None:
    """Commits of another program, which makes no checkpoints."""
    marks = [Transaction(name, at) for name, at in transactions.items()]
    for _ in range(number):
        write_deltalake(
            str(path),
            _THEIRS,
            mode="append",
            commit_properties=CommitProperties(app_transactions=marks),
            post_commithook_properties=_NO_HOOKS,
        )


def _cleaned(path: Path) -> None:
    _append(path, 3)
    DeltaTable(str(path)).create_checkpoint()
    for commit in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()


def _vacuumed(path: Path) -> None:
    table = DeltaTable(str(path))
    table.optimize.compact(min_commit_interval=timedelta(0))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def _restored(path: Path) -> None:
    table = DeltaTable(str(path))
    table.restore(table.version() - 1)


_ACTS: dict[str, Callable[[Path], None]] = {
    "one commit": _append,
    "many commits": lambda path: _append(path, _MOST_READ + 1),
    "log cleaned up": _cleaned,
    "vacuum": _vacuumed,
    "restore": _restored,
}


@pytest.mark.parametrize("takes_over", [False, True], ids=["", "and another process"])
@pytest.mark.parametrize("act", _ACTS.values(), ids=_ACTS)
def test_a_batch_is_written_once_whatever_happens_to_the_table(
    tmp_path: Path, act: Callable[[Path], None], takes_over: bool
) -> None:
    path = tmp_path / "t"
    options = {"location": str(path)}
    writer = DeltaSink().open(options, shape(), "me")
    assert writer.fence(1, 1) == -1
    for number in range(3):
        writer.write(batch((number, "a")), number)
    if takes_over:
        other = DeltaSink().open(options, shape(), "me")
        assert other.fence(2, 1) == 2
    act(path)
    if takes_over:
        with pytest.raises(SinkError, match="run 2 has taken over from run 1"):
            writer.write(batch((3, "late")), 3)
        writer = other
    with pytest.raises(SinkError, match="batch 2 is already in the table"):
        writer.write(batch((2, "again")), 2)
    writer.write(batch((3, "a")), 3)
    assert DeltaSink().marked_batch(options, "me", 1) == 3
    assert DeltaSink().open(options, shape(), "me").fence(3, 1) == 3


def test_the_numbers_are_those_that_delta_rs_finds(tmp_path: Path) -> None:
    path = tmp_path / "t"
    _append(path, me=1)
    table = DeltaTable(str(path))
    read: list[int] = []

    def text(version: int) -> str | None:
        read.append(version)
        file = path / "_delta_log" / f"{version:020d}.json"
        return file.read_text("utf-8") if file.exists() else None

    known = KnownTransactions(text)

    def check() -> None:
        table.update_incremental()
        for name in ("me", "other", "missing"):
            assert known.number(table, name) == table.transaction_version(name), name

    check()
    for marks in ({"other": 5}, {}, {"me": 7, "other": 6}, {"me": 3}, {"missing": 1}):
        _append(path, **marks)
        check()
    assert read == [1, 2, 3, 4, 5]
    _append(path, 2, me=8)
    known.add(table.version() + 1, {"me": 8})
    check()
    assert read[5:] == [7]
    _append(path, me=9)
    _append(path, _MOST_READ)
    check()
    assert read[6:] == []
    _append(path, 2, other=11)
    (path / "_delta_log" / f"{table.version() + 1:020d}.json").unlink()
    table = DeltaTable(str(path), version=table.version())
    known.forget()
    assert known.number(table, "me") == 9


@pytest.mark.parametrize("kind", ["append-only", "upsert"])
def test_a_batch_reads_only_the_new_commits(tmp_path: Path, kind: str) -> None:
    keys = ("id",) if kind == "upsert" else ()
    store = S3Store(tmp_path)
    try:
        location = f"{store.warehouse()}/t"
        options = {
            "location": location,
            "s3.endpoint": store.endpoint,
            "s3.access.key": ACCESS_KEY,
            "s3.secret.key": SECRET_KEY,
            "s3.region": REGION,
        }
        storage = DeltaSink().storage(options)
        for _ in range(12):
            write_deltalake(
                location, _THEIRS, mode="append", storage_options=storage, post_commithook_properties=_NO_HOOKS
            )
        writer = DeltaSink().open(options, shape(kind, *keys), "me")
        writer.fence(1, 1)

        def commits_read(act: Callable[[], None]) -> set[str]:
            before = len(store.requests())
            act()
            made = store.requests()[before:]
            return {each.path[-25:-5] for each in made if each.method == "GET" and _COMMIT.search(each.path)}

        for number in range(3):
            # delta-rs itself reads the commit that it has just written.
            assert commits_read(partial(writer.write, batch((1, "a")), number)) == {f"{13 + number:020d}"}
        write_deltalake(location, _THEIRS, mode="append", storage_options=storage, post_commithook_properties=_NO_HOOKS)
        assert commits_read(lambda: writer.write(batch((1, "b")), 3)) == {f"{number:020d}" for number in (16, 17)}
    finally:
        store.stop()
