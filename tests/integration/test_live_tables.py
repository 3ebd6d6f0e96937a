"""Tables over Kafka, in an attached session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from tests.integration.attached import AttachedSession, produce_json

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


def over(broker: BrokerInfo, topic: str) -> str:
    return (
        f"WITH (connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{broker.bootstrap}') "
        "FORMAT PLAIN ENCODE JSON"
    )


def definitions(session: AttachedSession) -> tuple[str, str]:
    """The output of SHOW CREATE for the table and for its source."""
    return tuple(session.sql(f"SHOW CREATE {kind} t")[0][1] for kind in ("TABLE", "SOURCE"))


def test_what_is_done_to_the_source_of_a_table(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    old, new = f"{topic_name}.old", f"{topic_name}.new"
    for topic in (old, new):
        create_topic(broker.bootstrap, topic, 1)
    produce_json(broker.bootstrap, old, [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 1, "n": 3}, {"id": 3}])
    produce_json(broker.bootstrap, new, [{"id": 2, "n": 20}, {"id": 4, "n": 40}])
    session.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT DEFAULT 7, twice INT AS n * 2) "
        f"INCLUDE offset AS at {over(broker, old)}",
        "CREATE MATERIALIZED VIEW total AS SELECT count(*) AS rows, sum(n) AS n FROM t",
        "CREATE MATERIALIZED VIEW odd AS SELECT id, n FROM t WHERE n % 2 = 1",
    )
    session.allow_unsafe()
    assert session.flushed_rows_of("t") == [(1, 3, 6, "2"), (2, 2, 4, "1"), (3, 7, None, "3")]
    assert (session.rows_of("total"), session.rows_of("odd")) == ([(3, 12)], [(1, 3), (3, 7)])

    session.run(
        "PAUSE SOURCE t",
        f"ALTER TABLE t UNSAFE SET (topic = '{new}')",
        "RESET SOURCE SPLITS t",
        "RESUME SOURCE t",
    )
    assert session.flushed_rows_of("t", "id, n") == [(1, 3), (2, 20), (3, 7), (4, 40)]
    assert (session.rows_of("total"), session.rows_of("odd")) == ([(4, 70)], [(1, 3), (3, 7)])
    of_table, of_source = definitions(session)
    assert f"topic = '{new}'" in of_table
    assert f"topic = '{new}'" in of_source

    # One record is skipped and one read again: the key's row is the topic's last one, and is counted once.
    produce_json(broker.bootstrap, new, [{"id": 2, "n": 21}, {"id": 5, "n": 50}])
    session.run(
        "FLUSH", "PAUSE SOURCE t", f"INJECT SOURCE OFFSETS t VALUES ('{new}:0' = 1) ALLOW DUPLICATES", "RESUME SOURCE t"
    )
    produce_json(broker.bootstrap, new, [{"id": 3, "n": 1}])
    assert session.flushed_rows_of("t", "id, n") == [(1, 3), (2, 21), (3, 1), (4, 40), (5, 50)]
    assert (session.rows_of("total"), session.rows_of("odd")) == ([(5, 115)], [(1, 3), (2, 21), (3, 1)])

    assert definitions(session) == (of_table, of_source)
    session.run("DROP TABLE t CASCADE", of_table)
    assert definitions(session) == (of_table, of_source)
    session.run("DROP TABLE t", of_source)
    assert session.sql("SHOW CREATE SOURCE t")[0][1] == of_source


def test_a_view_over_a_source_beside_a_table_has_no_rows_of_bad_records(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    names, clicks = f"{topic_name}.names", f"{topic_name}.clicks"
    for topic in (names, clicks):
        create_topic(broker.bootstrap, topic, 1)
    produce_json(broker.bootstrap, names, [{"id": 1, "name": "a"}])
    produce(
        broker.bootstrap, clicks, [Record(value=b'{"id": 1}'), Record(value=b"no JSON"), Record(value=b'{"id": 2}')]
    )
    session.run(
        f"CREATE TABLE names (id INT PRIMARY KEY, name VARCHAR) {over(broker, names)}",
        f"CREATE SOURCE clicks (id INT) {over(broker, clicks)}",
    )
    session.sql("CREATE MATERIALIZED VIEW named AS SELECT c.id, n.name FROM clicks c LEFT JOIN names n ON c.id = n.id")
    assert session.flushed_rows_of("named") == [(1, "a"), (2, None)]
    produce_json(broker.bootstrap, names, [{"id": 2, "name": "b"}])
    produce(broker.bootstrap, clicks, [Record(value=b"none either"), Record(value=b'{"id": 2}')])
    assert session.flushed_rows_of("named") == [(1, "a"), (2, "b"), (2, "b")]


def test_rows_that_stay_as_they_came(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce(broker.bootstrap, topic_name, [Record(value=b"1,a", key=b"k"), Record(value=b"1,b"), Record(value=b"2,")])
    csv = over(broker, topic_name).replace("ENCODE JSON", "ENCODE CSV (without_header = 'true', delimiter = ',')")
    session.run(
        f"CREATE TABLE every (id INT, name VARCHAR) INCLUDE key AS k {csv}",
        f"CREATE TABLE firsts (id INT PRIMARY KEY, name VARCHAR) APPEND ONLY {csv}",
        f"CREATE TABLE bytes (b BYTEA, PRIMARY KEY (at)) INCLUDE offset AS at {over(broker, topic_name)}".replace(
            "ENCODE JSON", "ENCODE BYTES"
        ),
        "CREATE MATERIALIZED VIEW names AS SELECT name, count(*) AS n FROM every GROUP BY name",
    )
    session.sql("FLUSH")
    assert session.rows_of("every") == [(1, "a", bytearray(b"k")), (1, "b", None), (2, None, None)]
    assert session.rows_of("firsts") == [(1, "a"), (2, None)]
    assert session.rows_of("bytes", "at") == [("0",), ("1",), ("2",)]
    produce(broker.bootstrap, topic_name, [Record(value=b"2,c"), Record(value=b"3,a")])
    assert session.flushed_rows_of("firsts") == [(1, "a"), (2, None), (3, "a")]
    assert session.rows_of("names") == [(None, 1), ("a", 2), ("b", 1), ("c", 1)]
    assert session.sql("SELECT name, append_only FROM rw_catalog.rw_tables ORDER BY name")[0].name == "bytes"


def test_csv_records_from_before_a_column_came_stay_readable(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    csv = over(broker, topic_name).replace("ENCODE JSON", "ENCODE CSV (without_header = 'true', delimiter = ',')")

    def send(*lines: str) -> None:
        produce(broker.bootstrap, topic_name, [Record(value=line.encode()) for line in lines])

    send("1,a", "2,b,3,4")
    session.run(f"CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR) {csv}")
    assert session.flushed_rows_of("t") == [(1, "a")]
    session.run(
        "PAUSE SOURCE t",
        "ALTER TABLE t ADD COLUMN n INT",
        "ALTER TABLE t RENAME COLUMN n TO number",
        "ALTER TABLE t ADD COLUMN twice INT AS (id * 2)",
        "ALTER TABLE t ADD COLUMN note VARCHAR",
        "RESUME SOURCE t",
    )
    # Records from before any column was added, of each number of columns in between, and of the present one; records
    # that are too short or too long, and wrong values.
    send("3,c", "4,d,40", "5,e,50,five", "6", "7,g,70,x,y", "8,h,eight", "9,", "10,j,,", '11,"k,k"')
    session.sql("FLUSH")
    assert session.rows_of("t", "id, name, number, twice, note") == [
        (1, "a", None, None, None),
        (3, "c", None, 6, None),
        (4, "d", 40, 8, None),
        (5, "e", 50, 10, "five"),
        (9, None, None, 18, None),
        (10, "j", None, 20, None),
        (11, "k,k", None, 22, None),
    ]
    (log,) = (row for row in session.sql("SHOW SOURCES") if row.name == "t")
    assert log.decode_errors == 4


def test_a_column_is_added_while_views_follow_the_table(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    session.run(
        f"CREATE TABLE t (id INT PRIMARY KEY) {over(broker, topic_name)}",
        "CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM t",
    )
    assert session.flushed_rows_of("counted") == [(2,)]
    session.run("ALTER TABLE t ADD COLUMN n INT")
    produce_json(broker.bootstrap, topic_name, [{"id": 2, "n": 20}, {"id": 3, "n": 30}])
    assert session.flushed_rows_of("t") == [(1, None), (2, 20), (3, 30)]
    assert session.flushed_rows_of("counted") == [(3,)]
    session.run("ALTER TABLE t DROP COLUMN n")
    produce_json(broker.bootstrap, topic_name, [{"id": 2, "n": 21}, {"id": 4, "n": 40}])
    assert session.flushed_rows_of("t") == [(1,), (2,), (3,), (4,)]
    assert session.flushed_rows_of("counted") == [(4,)]
    session.run("ALTER TABLE t RENAME TO u", "ALTER TABLE u DROP CONNECTOR")
    assert session.rows_of("u") == [(1,), (2,), (3,), (4,)]
    assert session.rows_of("counted") == [(4,)]


@pytest.mark.parametrize("keeps", ["id INT", "id INT PRIMARY KEY"], ids=["appends", "replaces"])
def test_columns_come_and_go_below_views_of_all_of_them(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, keeps: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": 1, "a": 1, "b": 10, "c": 100}])
    session.run(
        f"CREATE TABLE t ({keeps}, a INT, b INT DEFAULT 7, twice INT AS a * 2) INCLUDE offset AS at "
        f"{over(broker, topic_name)}",
        "CREATE MATERIALIZED VIEW few AS SELECT id, a FROM t",
    )
    assert session.flushed_rows_of("t") == [(1, 1, 10, 2, "0")]
    session.run("ALTER TABLE t DROP COLUMN twice", "ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN c INT")
    session.run("CREATE MATERIALIZED VIEW every AS SELECT * FROM t", "ALTER TABLE t ADD COLUMN d INT")
    produce_json(broker.bootstrap, topic_name, [{"id": 2, "a": 2, "b": 20, "c": 200, "d": 2000}])
    assert session.flushed_rows_of("t") == [(1, 1, None, None, "0"), (2, 2, 200, 2000, "1")]
    assert session.rows_of("few") == [(1, 1), (2, 2)]
    assert session.rows_of("every") == [(1, 1, None, "0"), (2, 2, 200, "1")]
    # More rows than a driver handles by itself: Spark writes them.
    rows = [{"id": number, "a": number, "b": 0, "c": 0, "d": 0} for number in range(3, 20_103)]
    session.run("PAUSE SOURCE t")
    produce_json(broker.bootstrap, topic_name, rows)
    session.run("RESUME SOURCE t")
    session.sql("FLUSH")
    for name, columns in (("t", 5), ("few", 2), ("every", 4)):
        found = session.sql(f"SELECT * FROM {name} ORDER BY id")
        assert [row[:2] for row in found] == [(1, 1), (2, 2), *((row["id"], row["a"]) for row in rows)]
        assert {len(row) for row in found} == {columns}


@pytest.mark.parametrize("keeps", ["id INT", "id INT PRIMARY KEY"], ids=["appends", "replaces"])
def test_the_same_query_again_gives_a_view_the_columns_that_its_table_got(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, keeps: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": 1, "a": 1}])
    every = "CREATE OR REPLACE MATERIALIZED VIEW every AS SELECT * FROM t"
    session.run(
        f"CREATE TABLE t ({keeps}) {over(broker, topic_name)}",
        every,
        "CREATE MATERIALIZED VIEW above AS SELECT * FROM every",
        "ALTER TABLE t ADD COLUMN a INT",
    )
    produce_json(broker.bootstrap, topic_name, [{"id": 2, "a": 2}])
    assert session.flushed_rows_of("every") == [(1,), (2,)]
    session.run(every, "WAIT MATERIALIZED VIEW every")
    produce_json(broker.bootstrap, topic_name, [{"id": 3, "a": 3}])
    assert session.flushed_rows_of("every") == session.flushed_rows_of("above") == [(1, None), (2, 2), (3, 3)]
    (answer,) = session.sql(every)
    assert answer.detail == "it already has this definition"


@pytest.mark.parametrize(
    "keeps", ["id INT", pytest.param("id INT PRIMARY KEY", marks=pytest.mark.long)], ids=["appends", "replaces"]
)
def test_a_column_is_renamed_below_views_and_sinks(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, tmp_path: Path, keeps: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": 1, "a": 1, "c": 5}, {"id": 2, "a": 2, "c": 5}])
    target, how = tmp_path / "sink", "upsert" if "KEY" in keeps else "append-only"
    session.run(
        f"CREATE TABLE t ({keeps}, a INT, b INT AS a * 2, c INT DEFAULT 7) {over(broker, topic_name)}",
        "CREATE MATERIALIZED VIEW few AS SELECT id FROM t",
        "CREATE MATERIALIZED VIEW per_c AS SELECT c, count(*) AS n FROM t GROUP BY c",
    )
    assert session.flushed_rows_of("few") == [(1,), (2,)]
    session.run("ALTER TABLE t RENAME COLUMN a TO b_half", "ALTER TABLE t RENAME COLUMN b TO a")
    # Readers of the table that do not name its renamed columns continue; new readers see the new names.
    session.run(
        "CREATE MATERIALIZED VIEW every AS SELECT * FROM t",
        f"CREATE SINK k FROM t WITH (connector = 'deltalake', location = '{target}', type = '{how}')",
    )
    produce_json(broker.bootstrap, topic_name, [{"id": 3, "a": 3}])
    assert session.flushed_rows_of("t", "id, b_half, a, c") == [(1, 1, 2, 5), (2, 2, 4, 5), (3, 3, 6, 7)]
    assert session.sql("SELECT * FROM t LIMIT 1")[0].asDict().keys() == {"id", "b_half", "a", "c"}
    assert session.rows_of("few") == [(1,), (2,), (3,)]
    assert session.rows_of("per_c") == [(5, 2), (7, 1)]
    assert session.rows_of("every", "id, b_half, a") == [(1, 1, 2), (2, 2, 4), (3, 3, 6)]
    assert session.rows_of(f"delta.`{target}`", "id, b_half, a") == [(1, 1, 2), (2, 2, 4), (3, 3, 6)]
    # More rows than a driver handles by itself: Spark writes them.
    rows = [{"id": number, "a": number} for number in range(4, 20_104)]
    session.run("PAUSE SOURCE t", "ALTER TABLE t ADD COLUMN d INT FROM e")
    produce_json(broker.bootstrap, topic_name, [*rows, {"id": 0, "a": 0, "e": 9}])
    session.run("RESUME SOURCE t")
    session.sql("FLUSH")
    wanted = [(0, 0, 0), (1, 1, 2), (2, 2, 4), (3, 3, 6), *((row["id"], row["a"], row["a"] * 2) for row in rows)]
    for name in ("t", "every", f"delta.`{target}`"):
        assert session.rows_of(name, "id, b_half, a") == wanted
    assert session.rows_of("t WHERE id = 0", "id, d") == [(0, 9)]
    made = session.sql("SHOW CREATE TABLE t")[0][1]
    assert "b_half INT FROM a,\n  a INT AS b_half*2," in made.replace(" * ", "*")
    session.run("DROP SINK k", "DROP TABLE t CASCADE", made)
    assert session.flushed_rows_of("t", "id, b_half, a") == wanted
