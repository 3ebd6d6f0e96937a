"""REWIND on a live session: views of every kind return to the state without the operation, and continue."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from tests.integration.attached import AttachedSession, produce_json, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

VIEWS = (
    "CREATE MATERIALIZED VIEW m AS SELECT id, k FROM s",
    "CREATE MATERIALIZED VIEW c AS SELECT k, count(*) AS n, sum(id) AS total FROM s GROUP BY k",
    "CREATE MATERIALIZED VIEW j AS SELECT s.id AS id, t.id AS other FROM s JOIN t ON s.k = t.k",
    "CREATE MATERIALIZED VIEW top AS SELECT id FROM m WHERE id >= 0",
)

Ids = Counter[int]


def require(session: AttachedSession, of_s: Ids, of_t: Ids) -> None:
    """The views contain the result of their queries over these records, each as often as it was delivered."""
    session.run("FLUSH")
    assert Counter(session.rows_of("m")) == Counter({(id_, id_ % 3): n for id_, n in of_s.items()})
    assert Counter(session.rows_of("top")) == Counter({(id_,): n for id_, n in of_s.items()})
    groups: dict[int, list[int]] = defaultdict(list)
    for id_ in of_s.elements():
        groups[id_ % 3].append(id_)
    assert session.rows_of("c") == sorted((k, len(ids), sum(ids)) for k, ids in groups.items())
    joined = Counter((a, b) for a in of_s.elements() for b in of_t.elements() if a % 3 == b % 3)
    assert Counter(session.rows_of("j")) == joined


def records(ids: Iterable[int]) -> list[dict[str, int]]:
    """Records of these ids, of three keys."""
    return [{"id": id_, "k": id_ % 3} for id_ in ids]


def sent(folder: Path) -> Ids:
    """The rows that the sink has sent, with their numbers."""
    return Counter(DeltaTable(str(folder / "archive")).to_pyarrow_table()["id"].to_pylist())


def test_what_an_operation_brought_is_reverted(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    other = f"{topic_name}.other"
    for topic in (topic_name, other):
        create_topic(broker.bootstrap, topic, 1)
    produce_json(broker.bootstrap, topic_name, records(range(12)))
    produce_json(broker.bootstrap, other, records(range(100, 104)))
    session.allow_unsafe()
    # Every reader arrives in time, however slow the machine: that none is waited for longer is shown elsewhere.
    session.run("ALTER SYSTEM SET rewind_point_timeout = '20s'")
    for name, topic in (("s", topic_name), ("t", other)):
        session.run(
            f"CREATE SOURCE {name} (id INT, k INT) WITH (connector = 'kafka', topic = '{topic}', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
        )
    session.run(
        *VIEWS,
        f"CREATE SINK archive FROM s WITH (connector = 'deltalake', location = '{tmp_path}/archive')",
    )
    of_s, of_t = Counter(range(12)), Counter(range(100, 104))
    require(session, of_s, of_t)
    # Five records are read again: they are in the rows, in the sums, and in the state of the join.
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO SHIFT -5 REASON 'meant the other source'")
    operation = session.sql("SHOW UNSAFE OPERATIONS FOR s")[0].operation
    wait_until(
        lambda: session.sql("SHOW UNSAFE OPERATIONS FOR s")[0].rewind == f"REWIND SOURCE s TO OPERATION {operation}",
        "the rewind point is made",
    )
    session.run("RESUME SOURCE s")
    produce_json(broker.bootstrap, topic_name, records(range(12, 15)))
    produce_json(broker.bootstrap, other, records([104, 105]))
    of_s.update(range(12, 15))
    of_t.update([104, 105])
    require(session, of_s + Counter(range(7, 12)), of_t)
    # While the source runs; later records are not lost: they are read again.
    out = of_s + Counter(range(7, 12))
    assert sent(tmp_path) == out
    with pytest.raises(SqlError, match='sink "archive" has sent rows since'):
        session.sql(f"REWIND SOURCE s TO OPERATION {operation}")
    answers = session.sql(f"REWIND SOURCE s TO OPERATION {operation} ALLOW DUPLICATES REASON 'wrong source'")
    assert (answers[0].change, answers[0].detail) == ("REWOUND", f"to just before operation {operation}")
    preview = session.questions[-1].preview
    assert "note: m: 8 rows are removed, 12 stay" in preview
    assert f"{topic_name}:0  15   12" in preview
    rewind = session.sql("SHOW UNSAFE OPERATIONS FOR s")[0].operation
    require(session, of_s, of_t)
    produce_json(broker.bootstrap, topic_name, records(range(15, 20)))
    produce_json(broker.bootstrap, other, records([106]))
    of_s.update(range(15, 20))
    of_t.update([106])
    require(session, of_s, of_t)
    # Rows that a sink has sent stay; records that are read again are sent again, and none is left out.
    assert sent(tmp_path) == out + Counter(range(12, 20))
    told = {row.operation: row.status for row in session.sql("SHOW SOURCE CONTINUITY s")}
    assert (told[operation], told[rewind], told[None]) == ("TAKEN BACK", "AS PREDICTED", "UNBROKEN")
    with pytest.raises(SqlError, match="reverts it and removes the rows"):
        session.sql(f"UNDO OPERATION {rewind}")
    offered = session.sql("SELECT epoch, undo FROM rw_catalog.rw_operations WHERE is_unsafe ORDER BY epoch")
    assert [tuple(row) for row in offered] == [(operation, f"UNDO OPERATION {operation}"), (rewind, None)]
    points = Metastore.open(session.warehouse).jobs.rewind_points()
    # The sink stops for the rewind, so it has not caught up at the rewind's own point.
    assert [point.operation for point in points] == [operation, rewind]
    assert points[0].reason is None
    assert "sink archive" in (points[1].reason or "")


def test_a_view_is_rebuilt_while_its_old_rows_serve(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, records(range(30)))
    session.run(
        f"CREATE SOURCE s (id INT, k INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW c AS SELECT k, count(DISTINCT id) AS n FROM s GROUP BY k",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
        "CREATE MATERIALIZED VIEW top AS SELECT id FROM m WHERE id >= 10",
        "FLUSH",
    )
    before = session.rows_of("c")
    answers = session.sql("REBUILD MATERIALIZED VIEW c REASON 'try it'")
    assert [(row.object, row.change) for row in answers] == [("c", "REBUILDING")]
    with pytest.raises(SqlError, match='materialized view "top"'):
        session.sql("REBUILD MATERIALIZED VIEW m")
    session.run("REBUILD MATERIALIZED VIEW m CASCADE")
    metastore = Metastore.open(session.warehouse)
    seen: list[bool] = []

    def have_caught_up() -> bool:
        seen.append(session.rows_of("c") == before)
        return not metastore.snapshot().all("rebuild")

    wait_until(have_caught_up, "all three serve new rows")
    assert all(seen)
    assert {view.generation for view in metastore.snapshot().all("materialized_view")} == {2}
    produce_json(broker.bootstrap, topic_name, records(range(30, 36)))
    session.run("FLUSH")
    assert session.rows_of("c") == [(0, 12), (1, 12), (2, 12)]
    assert session.rows_of("top") == [(id_,) for id_ in range(10, 36)]
    assert {row.job.partition(".")[2] for row in session.sql("SHOW JOBS")} == {""}
    wait_until(lambda: {job.state for job in session.jobs().values()} == {"RUNNING"}, "all run")
    # The partitions of a state change with the table that it belongs to, and with nothing else.
    assert state_partitions(session, "c") == {"0", "1"}
    session.run("ALTER MATERIALIZED VIEW c SET PARALLELISM = 5")
    begun = session.epoch()
    session.run("WAIT MATERIALIZED VIEW c")
    produce_json(broker.bootstrap, topic_name, records(range(36, 39)))
    session.run("FLUSH")
    assert session.rows_of("c") == [(0, 13), (1, 13), (2, 13)]
    assert state_partitions(session, "c") == {"0", "1", "2", "3", "4"}
    (row,) = session.sql("SHOW CREATE MATERIALIZED VIEW c")
    assert "WITH (parallelism = 5)" in row.create_sql
    session.run(f"UNDO OPERATION {begun}", "FLUSH")
    assert session.rows_of("c") == [(0, 13), (1, 13), (2, 13)]
    assert state_partitions(session, "c") == {"0", "1"}


def state_partitions(session: AttachedSession, view: str) -> set[str]:
    """The partitions of the state of a view's query, as Spark stores them."""
    record = Metastore.open(session.warehouse).snapshot().find("materialized_view", view)
    assert record is not None
    warehouse = session.attached._runtime.context.warehouse
    names = warehouse.list_names(f"{warehouse.view_checkpoint(record.id, record.generation)}/state/0")
    return {name for name in names if name.isdigit()}


def test_a_view_gets_another_query_while_records_come(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    other = f"{topic_name}.other"
    for topic in (topic_name, other):
        create_topic(broker.bootstrap, topic, 1)
    produce_json(broker.bootstrap, topic_name, records(range(30)))
    produce_json(broker.bootstrap, other, records(range(3)))
    for name, topic in (("s", topic_name), ("t", other)):
        session.run(
            f"CREATE SOURCE {name} (id INT, k INT) WITH (connector = 'kafka', topic = '{topic}', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
        )
    session.run(
        "CREATE MATERIALIZED VIEW c AS SELECT k, count(*) AS n FROM s GROUP BY k",
        "CREATE MATERIALIZED VIEW top AS SELECT k, n FROM c WHERE n > 0",
        "FLUSH",
    )
    before = session.rows_of("c")
    # Unread records are read for the new query, while the old one still serves.
    query = "SELECT k, count(*) AS n, sum(id) AS total FROM t GROUP BY k"
    session.run(f"ALTER MATERIALIZED VIEW c AS {query}")
    begun = session.epoch()
    metastore = Metastore.open(session.warehouse)
    at, seen = 3, set()

    def have_caught_up() -> bool:
        nonlocal at
        produce_json(broker.bootstrap, other, records(range(at, at + 30)))
        at += 30
        seen.add(tuple(session.spark.table("c").columns))
        assert session.rows_of("c")
        return not metastore.snapshot().all("rebuild")

    wait_until(have_caught_up, "both serve by the new query")
    assert seen <= {("k", "n"), ("k", "n", "total")}
    session.run("FLUSH")
    expected = [(k, at // 3, sum(range(k, at, 3))) for k in range(3)]
    assert session.rows_of("c") == expected
    assert session.rows_of("top") == [(k, n) for k, n, _ in expected]
    # The old rows serve again at once, and continue from their old position.
    produce_json(broker.bootstrap, topic_name, records(range(30, 60)))
    session.run(f"UNDO OPERATION {begun}")
    assert session.spark.table("c").columns == ["k", "n"]
    assert all(n >= m for (_, n), (_, m) in zip(session.rows_of("c"), before, strict=True))
    session.run("FLUSH")
    assert session.rows_of("c") == [(k, 20) for k in range(3)]
    assert session.rows_of("top") == [(k, 20) for k in range(3)]
    # If it is undone in progress, nothing of it remains; the next rebuild uses a new table.
    session.run("ALTER MATERIALIZED VIEW c AS SELECT k, count(*) AS n, max(id) AS last FROM s GROUP BY k")
    session.run(f"UNDO OPERATION {session.epoch()}")
    session.run(
        "CREATE OR REPLACE MATERIALIZED VIEW c AS SELECT k, count(*) AS n, min(id) AS first FROM s GROUP BY k",
        "WAIT MATERIALIZED VIEW c",
        "FLUSH",
    )
    assert session.rows_of("c") == [(k, 20, k) for k in range(3)]
    assert session.rows_of("top") == [(k, 20) for k in range(3)]


def test_rows_that_a_target_refused_before_the_point_stay_among_the_rejected_ones(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, records(range(6)))
    table = DeltaTable.create(
        str(tmp_path / "archive"), Schema([Field("id", PrimitiveType("integer")), Field("k", PrimitiveType("integer"))])
    )
    table.alter.add_constraint({"lucky": "id NOT IN (3, 13)"})
    session.allow_unsafe()
    session.run(
        "ALTER SYSTEM SET rewind_point_timeout = '20s'",
        f"CREATE SOURCE s (id INT, k INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE SINK archive FROM s WITH (connector = 'deltalake', on_error = 'skip', "
        f"location = '{tmp_path}/archive')",
        "FLUSH",
        "PAUSE SOURCE s",
        "INJECT SOURCE OFFSETS s TO SHIFT -1 REASON 'one record again'",
    )
    operation = session.sql("SHOW UNSAFE OPERATIONS FOR s")[0].operation
    wait_until(
        lambda: session.sql("SHOW UNSAFE OPERATIONS FOR s")[0].rewind == f"REWIND SOURCE s TO OPERATION {operation}",
        "the rewind point is made",
    )
    produce_json(broker.bootstrap, topic_name, records((13, 14)))
    session.run("RESUME SOURCE s", "FLUSH")
    rejected = "SELECT id FROM `archive$rejected` ORDER BY id"
    assert session.sql(rejected) == [(3,), (13,)]
    session.run(f"REWIND SOURCE s TO OPERATION {operation} ALLOW DUPLICATES", "FLUSH")
    # The sink reads 13 again, and 3 no more.
    assert session.sql(rejected) == [(3,), (13,)]
    assert sent(tmp_path) == Counter({0: 1, 1: 1, 2: 1, 4: 1, 5: 2, 14: 2})
    session.run("ALTER SINK archive CONNECTOR WITH (on_error = 'stop')", "FLUSH")
    assert session.sql(rejected) == [(3,), (13,)]
