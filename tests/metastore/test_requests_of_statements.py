"""How many requests statements on a warehouse in an object store need, alone and while other processes commit."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import write_deltalake

from rw_sql.metastore import Metastore, table
from rw_sql.metastore.records import Operation, ParameterRecord, PutObject
from rw_sql.runtime.control import executor
from rw_sql.session.sparkless import answer, sparkless
from rw_sql.syntax import parse_statement
from tests.support.s3_store import Request, S3Store, store_of_the_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.runtime.jobs.context import Context

pytestmark = pytest.mark.s3


class Other:
    """Another process, which commits to the same warehouse."""

    def __init__(self, warehouse: str) -> None:
        self.metastore = Metastore.open(warehouse)

    def commit(self) -> None:
        """Commits an operation, and completes the projections."""
        snapshot = self.metastore.snapshot()
        put = PutObject(record=ParameterRecord(id=snapshot.next_id, name=f"p{snapshot.next_id}", value="1"))
        operation = Operation(kind="TEST", statement="", objects=(), changes=(put,))
        self.metastore.commit(operation, based_on=snapshot)
        self.metastore.flush()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    with store_of_the_environment(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(params=[3, 25])
def warehouse(store: S3Store, request: pytest.FixtureRequest) -> str:
    """A warehouse whose log has some commits, and which needs no upkeep during the test."""
    warehouse = store.warehouse()
    metastore = Metastore.open(warehouse)
    for number in range(request.param):
        put = PutObject(record=ParameterRecord(id=1, name="p", value=f"{number}"))
        operation = Operation(kind="TEST", statement="", objects=(), changes=(put,))
        metastore.commit(operation, based_on=metastore.snapshot())
    metastore.flush(with_upkeep=True)
    return warehouse


@contextmanager
def session(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Context, Other]]:
    """A process that has run a statement, and another process. Projections are completed only by ``flush``."""
    monkeypatch.setenv("SECRET", "a value")
    with sparkless(warehouse) as context:
        other = Other(warehouse)
        for metastore in (context.metastore, other.metastore):
            monkeypatch.setattr(metastore._projecting_later, "seconds", 600.0)
        run(context, "CREATE SECRET first WITH (backend = 'env', name = 'SECRET')")
        context.metastore.flush()
        other.commit()
        yield context, other


def run(context: Context, text: str) -> None:
    answer(context, parse_statement(text))


class Count:
    """Counts the requests of a block by method, without those of :meth:`apart`. A listing counts as LIST."""

    def __init__(self, store: S3Store) -> None:
        self._store = store
        self._seen = len(store.requests())
        self.kinds = Counter[str]()

    def _new(self) -> list[Request]:
        requests = self._store.requests()
        new, self._seen = requests[self._seen :], len(requests)
        return new

    def apart(self, act: Callable[[], object]) -> None:
        """Calls a function whose requests do not count."""
        self.end()
        act()
        self._new()

    def end(self) -> Counter[str]:
        """Counts the requests up to now, and returns the number of each kind."""
        self.kinds.update("LIST" if "list-type=" in request.path else request.method for request in self._new())
        return self.kinds


def test_a_statement_needs_few_requests_however_long_the_log_is(
    store: S3Store, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(warehouse, monkeypatch) as (context, _):
        context.metastore.snapshot()
        count = Count(store)
        run(context, "CREATE SECRET alone WITH (backend = 'env', name = 'SECRET')")
        assert count.end()["PUT"] == 2, "a file of rows and a commit"
        assert count.kinds.total() <= 13, count.kinds
        count = Count(store)
        context.metastore.flush_projections()
        assert count.end()["PUT"] == 2, "a file of rows and a commit"
        assert count.kinds.total() <= 12, count.kinds


@pytest.mark.parametrize("losses", [1, 4])
def test_a_lost_attempt_needs_few_requests_however_long_the_log_is(
    store: S3Store, warehouse: str, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    """An attempt that another process overtakes during the planning writes nothing."""
    left = [losses]
    with session(warehouse, monkeypatch) as (context, other):
        context.metastore.snapshot()
        count = Count(store)

        def overtake(point: str) -> None:
            if point == "statement.before_commit" and left[0] > 0:
                left[0] -= 1
                count.apart(other.commit)

        monkeypatch.setattr(executor, "fault", overtake)
        run(context, "CREATE SECRET overtaken WITH (backend = 'env', name = 'SECRET')")
        assert count.end()["PUT"] == 2, "a file of rows and a commit"
        assert count.kinds.total() <= 13 + 6 * losses, count.kinds


def test_an_attempt_that_loses_in_the_write_needs_few_requests(
    store: S3Store, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(warehouse, monkeypatch) as (context, other):
        context.metastore.snapshot()
        count = Count(store)

        def overtaken(*arguments: Any, **options: Any) -> None:
            monkeypatch.setattr(table, "write_deltalake", write_deltalake)
            count.apart(other.commit)
            write_deltalake(*arguments, **options)

        monkeypatch.setattr(table, "write_deltalake", overtaken)
        run(context, "CREATE SECRET overtaken WITH (backend = 'env', name = 'SECRET')")
        assert count.end()["PUT"] <= 4, "the file of rows and the commit of each attempt"
        assert count.kinds.total() <= 26, count.kinds


def test_opening_a_warehouse_lists_each_log_once(store: S3Store, warehouse: str) -> None:
    before = len(store.requests())
    Metastore.open(warehouse)
    listed = Counter(request.path for request in store.requests()[before:] if "list-type=" in request.path)
    assert len(listed) == 5, "the migrations, the operations and three projections"
    assert set(listed.values()) == {1}
