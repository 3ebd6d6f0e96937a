"""Statements during which the store of the warehouse fails: the error says what is committed, and what to type."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from rw_sql.metastore import store as metastore_store
from rw_sql.metastore import table as stored_table
from rw_sql.metastore.table import CommitConflict
from tests.conftest import FIXTURES, rendered
from tests.runtime.control.test_blocks import CREATE, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ERRORS = FIXTURES / "errors"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(tmp_path)
    made.run(CREATE, "ALTER SYSTEM SET enable_unsafe_ops = true", "PAUSE SOURCE s")
    return made


class Store:
    """The folder of a session's catalog, which can be taken away and brought back."""

    def __init__(self, session: Session) -> None:
        self._catalog = Path(session.warehouse.uri) / "rw_catalog"
        self._away = self._catalog.with_name("away")

    def leave(self) -> None:
        """From now on, every access fails."""
        if self._catalog.exists():
            self._catalog.rename(self._away)

    def return_(self) -> None:
        """From now on, every access succeeds."""
        if self._away.exists():
            # A write of another thread that had begun may have created the folder again.
            shutil.rmtree(self._catalog, ignore_errors=True)
            self._away.rename(self._catalog)


@pytest.fixture
def store(session: Session) -> Iterator[Store]:
    made = Store(session)
    yield made
    made.return_()


def fail_in_append(monkeypatch: pytest.MonkeyPatch, store: Store, *, is_written: bool) -> None:
    """The store goes away during the next write to the log of record, before or after the write takes effect."""
    write: Any = stored_table.__dict__["write_deltalake"]

    def written(table: DeltaTable, *given: Any, **named: Any) -> None:
        if not str(table.table_uri).rstrip("/").endswith("operations"):
            write(table, *given, **named)
            return
        monkeypatch.setattr(stored_table, "write_deltalake", write)
        if is_written:
            write(DeltaTable(table.table_uri), *given, **named)
        store.leave()
        raise OSError("connection reset by peer")

    monkeypatch.setattr(stored_table, "write_deltalake", written)


@pytest.mark.parametrize("is_written", [False, True])
def test_an_unknown_outcome_of_a_commit_is_told_with_what_shows_it(
    session: Session, store: Store, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    monkeypatch.setattr(metastore_store, "SETTLING_SECONDS", 0.3)
    epoch = session.epoch
    fail_in_append(monkeypatch, store, is_written=is_written)
    refused = session.refused("RESUME SOURCE s")
    assert refused.code == "RW418"
    assert refused.message == (
        "the warehouse's store failed during the commit and does not answer (connection reset by peer), so it is not "
        f"known whether the statement is committed as epoch {epoch + 1}"
    )
    assert f"rw_catalog.rw_operations WHERE epoch >= {epoch + 1} shows" in (refused.hint or "")
    store.return_()
    assert session.epoch == epoch + is_written
    assert bool(session.metastore.snapshot().all("pause")) is not is_written
    session.run("PAUSE SOURCE s", "RESUME SOURCE s")


@pytest.mark.parametrize("is_written", [False, True])
def test_a_commit_waits_for_a_store_that_comes_back(
    session: Session, store: Store, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    epoch = session.epoch
    fail_in_append(monkeypatch, store, is_written=is_written)
    monkeypatch.setattr("rw_sql.metastore.commit_arrival.time.sleep", lambda _: store.return_())
    if is_written:
        assert session.sql("RESUME SOURCE s")
    else:
        refused = session.refused("RESUME SOURCE s")
        assert (refused.code, refused.message.endswith("connection reset by peer; nothing was changed")) == (
            "RW418",
            True,
        )
    assert session.epoch == epoch + is_written


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_commit_that_was_refused_may_be_stored(
    session: Session, store: Store, monkeypatch: pytest.MonkeyPatch, *, is_written: bool, comes_back: bool
) -> None:
    """The client of an object store repeats a write whose answer was lost. The store refuses the second write, and then
    does not answer any more."""
    monkeypatch.setattr(metastore_store, "SETTLING_SECONDS", 0.3)
    if comes_back:
        monkeypatch.setattr("rw_sql.metastore.commit_arrival.time.sleep", lambda _: store.return_())
    epoch, table = session.epoch, session.metastore._operations
    append = table.append

    def refuse(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(table, "append", append)
        if is_written:
            append(*given, **named)
        store.leave()
        raise CommitConflict(table.uri)

    monkeypatch.setattr(table, "append", refuse)
    if comes_back:
        assert session.sql("RESUME SOURCE s")
    else:
        refused = session.refused("RESUME SOURCE s")
        assert refused.code == "RW418"
        assert refused.message.endswith(f"it is not known whether the statement is committed as epoch {epoch + 1}")
    store.return_()
    assert session.epoch == epoch + (is_written or comes_back)
    assert bool(session.metastore.snapshot().all("pause")) is not (is_written or comes_back)
    session.run("PAUSE SOURCE s", "RESUME SOURCE s")


def test_a_store_that_is_away_before_the_commit(
    session: Session, store: Store, recorded: Callable[[Path, str], None]
) -> None:
    epoch = session.epoch
    store.leave()
    refused = session.refused("RESUME SOURCE s")
    told = rendered(refused.located("RESUME SOURCE s")).replace(session.warehouse.uri, "${warehouse}")
    recorded(ERRORS / "store_unreachable.txt", told)
    for statement in ("SHOW JOBS", "FLUSH", "EXPLAIN RESUME SOURCE s"):
        assert session.refused(statement).code == "RW418"
    store.return_()
    assert session.epoch == epoch
    session.run("RESUME SOURCE s")


def test_a_lock_that_cannot_be_released_after_the_commit_does_not_hide_the_commit(
    session: Session, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.run("RESUME SOURCE s")
    session.give_a_reader()
    session.run("BEGIN UNSAFE", "PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)", "RESUME SOURCE s")
    epoch = session.epoch
    commit = session.metastore.commit

    def committed(*given: Any, **named: Any) -> Any:
        made = commit(*given, **named)
        store.leave()
        return made

    monkeypatch.setattr(session.metastore, "commit", committed)
    refused = session.refused("COMMIT")
    assert (refused.code, f"the statement is committed as epoch {epoch + 1}" in refused.message) == ("RW406", True)
    store.return_()
    assert session.epoch == epoch + 1


def test_a_statement_that_a_block_could_not_take_aborts_the_block(session: Session, store: Store) -> None:
    session.run("BEGIN UNSAFE", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)")
    store.leave()
    assert session.refused("RESUME SOURCE s").code == "RW418"
    store.return_()
    assert session.refused("COMMIT").code == "RW332"
