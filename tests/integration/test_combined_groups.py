"""Views of groups whose batches are combined with the view's rows, by a thread or by a streaming query."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import Record, create_topic
from rw_sql.cli.servers.kafka_topics import produce as produce_records
from rw_sql.metastore.records import COMBINED
from rw_sql.runtime.jobs import batch_mode
from rw_sql.runtime.positions import planned_rows
from rw_sql.runtime.views import combined
from rw_sql.runtime.views.job import View
from tests.integration.attached import AttachedSession, has_thread, produce_json, restarted, wait_until
from tests.support.ageing import PAUSES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

QUERY = (
    "SELECT k, day, count(*) AS n, count(v) AS known, sum(v) AS total, sum(price) AS paid, min(word) AS least, "
    "max(v) AS most, count_if(v > 3) AS large, sum(v) FILTER (WHERE word <> 'a') AS others, min(ratio) AS ratio, "
    "round(avg(v), 3) AS mean, avg(ratio) FILTER (WHERE v > 0) AS r, concat(k, '-', max(word)) AS name FROM s "
    "WHERE k IS NULL OR k < 9 GROUP BY k, day"
)
ONE = "SELECT 2 * count(*) AS n, avg(v) AS mean, max(price) AS most FROM s"


class Records:
    """The records of the topic of the source ``s``."""

    def __init__(self, session: AttachedSession, broker: BrokerInfo, topic: str, seed: int) -> None:
        create_topic(broker.bootstrap, topic, 2)
        session.run(
            f"CREATE SOURCE s (k INT, day DATE, v INT, price DECIMAL(8, 2), word VARCHAR, ratio DOUBLE) WITH "
            f"(connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{broker.bootstrap}') "
            "FORMAT PLAIN ENCODE JSON"
        )
        self._broker, self._topic, self._random = broker, topic, Random(seed)
        self.made: list[dict[str, Any]] = []

    def add(self, count: int) -> None:
        """Adds ``count`` random records."""
        new = [self._drawn() for _ in range(count)]
        produce_json(self._broker.bootstrap, self._topic, new)
        self.made += new

    def _drawn(self) -> dict[str, Any]:
        random = self._random

        def some(value: Any) -> Any:
            return None if random.random() < 0.2 else value

        return {
            "k": some(random.randrange(10)),
            "day": some(f"2026-01-0{random.randint(1, 3)}"),
            "v": some(random.randint(-5, 5)),
            "price": some(str(Decimal(random.randint(-10_000, 10_000)) / 100)),
            "word": some(random.choice(("a", "b", "", "ä😀"))),
            "ratio": some(random.choice((0.5, -1.25, 3.0))),
        }


@pytest.fixture
def records(session: AttachedSession, broker: BrokerInfo, topic_name: str, seed: int) -> Records:
    return Records(session, broker, topic_name, seed)


def require_rows(session: AttachedSession, records: Records, view: str = "v", query: str = QUERY) -> None:
    """Requires that a view equals its query over all records, as Spark computes it."""
    columns = "k INT, day STRING, v INT, price STRING, word STRING, ratio DOUBLE"
    frame = session.spark.createDataFrame(records.made, columns).selectExpr(
        "k", "CAST(day AS DATE) AS day", "v", "CAST(price AS DECIMAL(8, 2)) AS price", "word", "ratio"
    )
    wanted = session.spark.sql(query.replace("FROM s", "FROM {rows}"), rows=frame).collect()
    found = session.flushed_rows_of(view)
    assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, map(tuple, wanted)))


def version_of(session: AttachedSession, view: str) -> int:
    """The newest version of a view's table."""
    context = session.attached._runtime.context
    record = context.metastore.snapshot().find("materialized_view", view)
    assert record is not None
    assert record.maintenance.strategy == COMBINED
    return DeltaTable(context.warehouse.data(record.id, record.generation)).version()


def test_a_thread_combines_small_batches(
    session: AttachedSession, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "_start_query", None)
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}", f"CREATE MATERIALIZED VIEW one AS {ONE}")
    assert session.rows_of("one") == [(0, None, None)]
    for count in (7, 1, 40):
        records.add(count)
        require_rows(session, records)
        require_rows(session, records, "one", ONE)
        assert has_thread(session, "v")
        assert has_thread(session, "one")
    session.run("PAUSE SOURCE s", "RESUME SOURCE s")
    records.add(5)
    require_rows(session, records)


def test_a_thread_follows_a_backfill(session: AttachedSession, records: Records) -> None:
    """The log has some records twice, so that a new view copies its history into a table of its own."""
    session.allow_unsafe()
    session.run(f"CREATE MATERIALIZED VIEW first AS {QUERY}")
    records.add(20)
    session.run("FLUSH", "PAUSE SOURCE s")
    splits = ", ".join(f"'{split}' = 0" for split in session.positions("s"))
    session.run(f"INJECT SOURCE OFFSETS s VALUES ({splits})", "RESUME SOURCE s", "FLUSH")
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}", f"CREATE MATERIALIZED VIEW one AS {ONE}")
    for count in (4, 30):
        records.add(count)
        require_rows(session, records)
        require_rows(session, records, "one", ONE)
    wait_until(lambda: has_thread(session, "v") and has_thread(session, "one"), "the threads have begun")


@pytest.mark.long
def test_a_query_combines_large_batches(
    session: AttachedSession, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches above 30 rows are grouped by Spark; above 10 groups, Spark also combines them with the table's rows."""
    monkeypatch.setattr(planned_rows, "SMALL_ROWS", 30)
    monkeypatch.setattr(combined, "may_hold", lambda _held, count: count <= 10)
    ways = noted_ways(monkeypatch)
    session.run(
        f"CREATE MATERIALIZED VIEW v AS {QUERY}",
        "CREATE MATERIALIZED VIEW w AS SELECT k, max(price) AS most FROM s GROUP BY k",
        "CREATE MATERIALIZED VIEW d AS SELECT DISTINCT k, word FROM s",
        f"CREATE MATERIALIZED VIEW one AS {ONE}",
    )
    assert session.flushed_rows_of("one") == [(0, None, None)]
    for count in (100, 200, 3, 150):
        records.add(count)
        require_rows(session, records)
        require_rows(session, records, "w", "SELECT k, max(price) AS most FROM s GROUP BY k")
        require_rows(session, records, "d", "SELECT DISTINCT k, word FROM s")
        require_rows(session, records, "one", ONE)
    assert ways == {"_write_few", "_write_measured", "_merge"}


def noted_ways(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The ways in which Spark writes large batches from now on, by the names of the methods."""
    ways: set[str] = set()

    def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            ways.add(name)
            return method(*given)

        return noted

    for name in ("_write_few", "_write_measured", "_merge"):
        monkeypatch.setattr(combined.Combined, name, noting(name, getattr(combined.Combined, name)))
    return ways


def test_a_view_of_many_groups_reads_only_those_of_a_batch(
    session: AttachedSession, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combined, "SMALL_ROWS", 5)
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
    for count in (60, 3, 1, 8):
        records.add(count)
        require_rows(session, records)
        assert has_thread(session, "v")


def test_rows_that_change_no_group_are_not_committed(session: AttachedSession, records: Records) -> None:
    session.run("CREATE MATERIALIZED VIEW v AS SELECT word, max(1) AS one FROM s GROUP BY word")
    records.add(60)
    session.run("FLUSH")
    before = version_of(session, "v")
    records.add(20)
    require_rows(session, records, "v", "SELECT word, max(1) AS one FROM s GROUP BY word")
    assert version_of(session, "v") == before


def test_readers_of_a_view_do_not_see_its_hidden_columns(
    session: AttachedSession, records: Records, tmp_path: Path
) -> None:
    query = "SELECT k, avg(v) AS mean FROM s WHERE k IS NOT NULL GROUP BY k"
    session.run(
        f"CREATE MATERIALIZED VIEW v AS {query}",
        "CREATE MATERIALIZED VIEW w AS SELECT * FROM v",
        "CREATE MATERIALIZED VIEW means AS SELECT mean, count(*) AS n FROM v GROUP BY mean",
        f"CREATE SINK archive FROM v WITH (connector = 'deltalake', location = '{tmp_path}/archive', "
        "type = 'upsert', primary_key = 'k')",
    )
    for count in (20, 5):
        records.add(count)
        require_rows(session, records, "v", query)
        require_rows(session, records, "w", query)
        groups = session.rows_of("v", "mean")
        assert dict(session.rows_of("means")) == {mean: groups.count((mean,)) for (mean,) in groups}
        archived = DeltaTable(f"{tmp_path}/archive").to_pyarrow_table()
        assert archived.schema.names == ["k", "mean"]
        assert sorted(map(repr, archived.to_pylist())) == sorted(
            repr({"k": k, "mean": mean}) for k, mean in session.rows_of("v")
        )


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ("sum(v) div (count(*) - 3)", "DIVIDE_BY_ZERO"),
        ("sum(3074457345618258603 + abs(coalesce(v, 0)))", "ARITHMETIC_OVERFLOW"),
    ],
)
def test_an_error_of_a_group_is_told_as_by_a_query(
    session: AttachedSession, records: Records, column: str, error: str
) -> None:
    """The third record makes the error."""
    session.run(f"CREATE MATERIALIZED VIEW v AS SELECT 1 AS one, {column} AS n FROM s GROUP BY 1")
    records.add(1)
    session.run("FLUSH")
    records.add(2)
    wait_until(lambda: error in session.job("v").reason, "the error in SHOW JOBS")


OVER = {
    "sums": "SELECT n % 3 AS class, count(*) AS groups, sum(total) AS total, sum(paid) FILTER (WHERE n > 1) AS paid, "
    "avg(most) AS most, count_if(mean > 0) AS positive, round(avg(total), 2) || '' AS text FROM v GROUP BY n % 3",
    "days": "SELECT DISTINCT day, n > 2 AS large FROM v",
    "one": "SELECT count(*) AS groups, sum(total) AS total, avg(n) AS n FROM v WHERE total > 0",
    "kept": "SELECT day, k, n * 2 AS twice, upper(name) AS name, r FROM v WHERE n % 3 > 0",
    "totals": "SELECT total FROM v WHERE known > 1",
}
"""Queries over the view ``v``, whose groups change."""


def require_over(session: AttachedSession) -> None:
    """Requires that the views of OVER equal their queries over the rows of ``v``."""
    session.sql("FLUSH")
    for name, query in OVER.items():
        wanted = [tuple(row) for row in session.sql(query)]
        assert sorted(map(repr, session.rows_of(name))) == sorted(map(repr, wanted)), name


@pytest.mark.long
def test_a_thread_follows_groups_that_change(
    session: AttachedSession, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = [f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in OVER.items()]
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}", *created)
    records.add(7)
    require_over(session)

    def have_threads() -> bool:
        """A thread takes a query's place after a batch."""
        records.add(1)
        require_over(session)
        return all(has_thread(session, name) for name in OVER)

    wait_until(have_threads, "threads write the views")
    monkeypatch.setattr(View, "_start_query", None)
    for count in (20, 1, 60, 3):
        records.add(count)
        require_over(session)
        assert all(has_thread(session, name) for name in OVER)
    assert session.sql("SELECT count(*) FROM days")[0][0] > 0


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.long)])
def test_groups_whose_last_row_goes_are_removed(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    if by_spark:
        monkeypatch.setattr(combined, "combine", lambda *_: None)
    create_topic(broker.bootstrap, topic_name, 1)
    session.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT UPSERT ENCODE JSON",
        "CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS v, avg(v) AS mean FROM t GROUP BY k",
        "CREATE MATERIALIZED VIEW parts AS SELECT k, 100 * count_if(v > 5) / count(*) AS part FROM t GROUP BY k",
        "CREATE MATERIALIZED VIEW ks AS SELECT DISTINCT k FROM t",
        "CREATE MATERIALIZED VIEW one AS SELECT sum(v) AS v, count(*) AS n FROM t",
    )

    def put(*rows: tuple[int, str | None, int | None]) -> None:
        given = [
            Record(
                value=None if k is None else json.dumps({"id": id_, "k": k, "v": v}).encode(),
                key=json.dumps({"id": id_}).encode(),
            )
            for id_, k, v in rows
        ]
        produce_records(broker.bootstrap, topic_name, given)

    for rows, sums, one in (
        ([(1, "a", 5), (2, "b", 7), (3, "a", None)], [("a", 5, 5.0), ("b", 7, 7.0)], (12, 3)),
        ([(2, "a", 1)], [("a", 6, 3.0)], (6, 3)),
        ([(1, None, None), (2, None, None)], [("a", None, None)], (None, 1)),
        ([(3, None, None), (4, "c", 2), (4, None, None)], [], (None, 0)),
        ([(5, "a", 9)], [("a", 9, 9.0)], (9, 1)),
    ):
        put(*rows)
        assert session.flushed_rows_of("sums") == sums
        assert [k for k, _ in session.rows_of("parts")] == [k for k, _, _ in sums]
        assert session.rows_of("ks") == [(k,) for k, _, _ in sums]
        assert session.rows_of("one") == [one]


@pytest.mark.long
def test_random_sizes_restarts_and_moves(
    session: AttachedSession, records: Records, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With a limit of 30 rows, batches go back and forth between the thread and the query."""
    random = Random(seed)
    monkeypatch.setattr(planned_rows, "SMALL_ROWS", 30)
    monkeypatch.setattr(combined, "SMALL_ROWS", random.choice((5, 1_000)))
    monkeypatch.setattr(combined, "may_hold", lambda _held, count: count <= 20)
    monkeypatch.setattr(batch_mode, "MOST_NEEDED", 2)
    created = [f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in OVER.items()]
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}", *created)
    for _ in range(25):
        records.add(random.choice((0, 1, 5, 20, 29, 60, 200)))
        if random.random() < 0.15:
            session = restarted(session, random.choice((0.0, *PAUSES.values())))
        elif random.random() < 0.6:
            session.run("FLUSH")
    require_rows(session, records)
    require_over(session)
