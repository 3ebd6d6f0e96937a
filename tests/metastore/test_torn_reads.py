"""Reads of the catalog that fail halfway, and commits whose answer was lost while others committed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.errors import METASTORE_IS_NEWER, SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore import store as module
from rw_sql.metastore.table import CommitConflict
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from tests.metastore.metastore_model import Make


@pytest.fixture
def other(metastore: Metastore, warehouse: str) -> Metastore:
    """A second process's metastore of the same warehouse."""
    assert metastore.snapshot().epoch == 0
    return Metastore.open(warehouse)


def told(metastore: Metastore) -> tuple[int, list[str]]:
    snapshot = metastore.snapshot()
    return snapshot.epoch, sorted(record.name for record in snapshot.all("source"))


def fail_once(patch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    real = getattr(module, name)
    failed: list[bool] = []

    def failing(*given: Any, **named: Any) -> Any:
        if not failed:
            failed.append(True)
            raise error
        return real(*given, **named)

    patch.setattr(module, name, failing)


@pytest.mark.parametrize("name", ["changes_from_json", "effect_of", "fold"])
def test_a_read_that_was_interrupted_is_repeated(
    metastore: Metastore,
    other: Metastore,
    warehouse: str,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    for number in range(1, 4):
        metastore.commit(make.source_with_splits(number, f"s{number}", 1), based_on=metastore.snapshot())
    with monkeypatch.context() as patch:
        fail_once(patch, name, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            other.snapshot()
    assert told(other) == told(metastore)
    # The interrupted read has left nothing in the projections.
    other.commit(make.source_with_splits(4, "s4", 1), based_on=other.snapshot())
    other.flush_projections()
    assert metastore.snapshot().find("source", "s4") is not None
    assert told(Metastore.open(warehouse)) == told(metastore)


def test_a_record_of_a_newer_version_is_refused_at_each_look(
    metastore: Metastore, other: Metastore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())

    def refuse(_: str) -> Any:
        raise SqlError(METASTORE_IS_NEWER, "a newer version of rw_sql wrote it")

    with monkeypatch.context() as patch:
        patch.setattr(module, "changes_from_json", refuse)
        for _ in range(3):
            with pytest.raises(SqlError, match="a newer version"):
                other.snapshot()
    assert told(other) == told(metastore)


def test_a_commit_whose_answer_was_lost_hides_no_commit_that_follows_it(
    metastore: Metastore, other: Metastore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = metastore._operations
    append = table.append

    def append_and_lose_the_answer(*given: Any, **named: Any) -> None:
        monkeypatch.undo()
        append(*given, **named)
        other.commit(make.source_with_splits(2, "theirs", 1), based_on=other.snapshot())
        raise CommitConflict

    monkeypatch.setattr(table, "append", append_and_lose_the_answer)
    committed = metastore.commit(make.source_with_splits(1, "ours", 1), based_on=metastore.snapshot())
    assert committed.epoch == 1
    assert metastore.snapshot().epoch == 2
    assert told(metastore) == told(other)


def test_a_read_is_repeated_while_another_thread_updates_a_projection(
    metastore: Metastore, other: Metastore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread holds the projection's lock, and may wait for the metastore's."""
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    with monkeypatch.context() as patch:
        fail_once(patch, "effect_of", OSError("the store does not answer"))
        with pytest.raises(OSError, match="does not answer"):
            other.snapshot()
    held, release = Event(), Event()

    def hold() -> None:
        with other._projections["objects"].lock:
            held.set()
            release.wait(LAST_RESORT_SECONDS)

    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(hold)
        assert held.wait(LAST_RESORT_SECONDS)
        try:
            assert threads.submit(other.snapshot).result(timeout=LAST_RESORT_SECONDS).epoch == 1
        finally:
            release.set()
        holding.result()


def test_a_commit_that_is_interrupted_after_its_append_is_part_of_the_catalog(
    metastore: Metastore, other: Metastore, make: Make
) -> None:
    def interrupt(point: str) -> None:
        if point == "metastore.after_append":
            raise KeyboardInterrupt

    metastore.faults = interrupt
    with pytest.raises(KeyboardInterrupt):
        metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    metastore.faults = lambda _: None
    assert told(metastore) == told(other) == (1, ["orders"])
    metastore.commit(make.source_with_splits(2, "others", 1), based_on=metastore.snapshot())
    metastore.flush_projections()
    assert told(Metastore.open(metastore.directory.removesuffix("/rw_catalog"))) == (2, ["orders", "others"])
