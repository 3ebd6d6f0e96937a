"""Arguments of ``spark.sql`` in statements that read sources: ``:name``, ``?`` and ``{name}``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.errors import SqlError
from rw_sql.runtime.spark.sessions import plain_sql
from rw_sql.session.results import read_rows
from rw_sql.session.scripts import run_statements
from tests.integration.attached import noted_ranges, produce_json

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.session.results import Rows
    from tests.integration.attached import AttachedSession

pytestmark = pytest.mark.spark


@pytest.fixture
def files(session: AttachedSession, tmp_path: Path) -> AttachedSession:
    """Two sources over a file with the numbers 0 to 9; the name of one of them needs quotes."""
    folder = tmp_path / "files"
    folder.mkdir()
    rows = [{"x": at, "w": "a" if at % 2 else None, "t": f"2024-01-01T00:00:0{at}Z"} for at in range(10)]
    (folder / "a.json").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    for name in ("src", '"my src"'):
        session.sql(
            f"CREATE SOURCE {name} (x INT, w VARCHAR, t TIMESTAMPTZ) WITH (connector = 'posix_fs', "
            f"posix_fs.root = '{folder}') FORMAT PLAIN ENCODE JSON"
        )
    return session


def test_named_and_positional_arguments(files: AttachedSession) -> None:
    spark = files.spark

    def numbers(text: str, args: object = None, **fields: object) -> list[int]:
        return sorted(row.x for row in spark.sql(text, args, **fields).collect())  # type: ignore[arg-type]

    assert numbers("SELECT x FROM src WHERE x >= :p", {"p": 7}) == [7, 8, 9]
    assert numbers("SELECT x FROM src WHERE x >= ? AND x < ?", [7, 9]) == [7, 8]
    assert numbers("SELECT x FROM `my src` WHERE x = :p OR ':p' = w", {"p": 7}) == [7]
    assert numbers("SELECT x FROM src WHERE w <=> :w", {"w": None}) == [0, 2, 4, 6, 8]
    assert numbers("SELECT x FROM src WHERE w = :w AND x > :p", {"w": "a", "p": 4}) == [5, 7, 9]
    moment = datetime(2024, 1, 1, 0, 0, 8, tzinfo=UTC)
    assert numbers("SELECT x FROM src WHERE t >= :t", {"t": moment}) == [8, 9]
    assert numbers("SELECT x FROM src WHERE t >= ?", [moment]) == [8, 9]
    assert numbers("SELECT x FROM src WHERE array_contains(:list, x)", {"list": f.array(f.lit(1), f.lit(3))}) == [1, 3]
    assert numbers("SELECT x FROM src ORDER BY x LIMIT :n", {"n": 2}) == [0, 1]
    assert numbers("SELECT x FROM IDENTIFIER(:source) WHERE x > :p", {"source": "src", "p": 8}) == [9]
    assert numbers("WITH big AS (SELECT * FROM src WHERE x > :p) SELECT x FROM big", {"p": 7}) == [8, 9]
    assert numbers("SELECT x FROM src WHERE x < 2", {}) == numbers("SELECT x FROM src WHERE x < 2", []) == [0, 1]


def test_fields_of_a_text(files: AttachedSession) -> None:
    spark = files.spark
    few = spark.createDataFrame([(3,), (5,)], "x INT")
    text = "SELECT src.x FROM {few} JOIN src ON src.x = {few}.x"
    assert sorted(row.x for row in spark.sql(text, few=few).collect()) == [3, 5]
    text = "SELECT src.x FROM {few} AS few JOIN src ON src.x = few.x WHERE src.x > :p AND src.w = {w}"
    assert [row.x for row in spark.sql(text, {"p": 3}, few=few, w="a").collect()] == [5]
    text = "SELECT {x} FROM public.src WHERE {x} >= ?"
    assert sorted(row.x for row in spark.sql(text, [8], x=f.col("x")).collect()) == [8, 9]


@pytest.fixture
def totals(files: AttachedSession) -> AttachedSession:
    """A view ``totals`` in ``public``, and one in the schema ``mart``."""
    files.run(
        "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM src",
        "CREATE SCHEMA mart",
        "CREATE MATERIALIZED VIEW mart.few AS SELECT x FROM src WHERE x < 2",
        "FLUSH",
    )
    return files


def test_a_change_of_an_object_that_an_argument_names_is_refused(totals: AttachedSession) -> None:
    spark = totals.spark
    with pytest.raises(SqlError, match='RW236: "totals" is a materialized view') as caught:
        spark.sql("DROP VIEW IDENTIFIER(:v)", {"v": "totals"})
    assert caught.value.span is not None
    assert (caught.value.text, caught.value.span.column) == ("DROP VIEW IDENTIFIER(:v)", 11)
    for text, args in (
        ("CREATE OR REPLACE VIEW IDENTIFIER(?) AS SELECT 1 AS n", ["totals"]),
        ("ALTER VIEW IDENTIFIER(:s || '.few') AS SELECT 1 AS n", {"s": "mart"}),
        ("EXECUTE IMMEDIATE :s", {"s": "DROP VIEW totals"}),
    ):
        with pytest.raises(SqlError, match=r"totals|few"):
            spark.sql(text, args)
    with pytest.raises(SqlError, match="totals"):
        spark.sql("DROP VIEW IDENTIFIER({v})", v="totals")
    assert (totals.rows_of("totals"), totals.rows_of("mart.few")) == ([(10,)], [(0,), (1,)])


def test_an_argument_names_any_object_that_a_text_can_name(totals: AttachedSession) -> None:
    spark = totals.spark

    def rows(text: str, args: object = None, **fields: object) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in spark.sql(text, args, **fields).collect())  # type: ignore[arg-type]

    assert rows("SELECT name FROM IDENTIFIER(:t)", {"t": "rw_catalog.rw_sources"}) == [("my src",), ("src",)]
    assert rows("SELECT count(*) FROM IDENTIFIER(?)", ["`src$errors`"]) == [(0,)]
    assert rows("SELECT n + ? FROM IDENTIFIER(?) WHERE n > ?", [1, "public.totals", 2]) == [(11,)]
    assert rows("SELECT n FROM IDENTIFIER('public.totals')") == [(10,)]
    assert rows("SELECT x FROM IDENTIFIER({t})", t="public.src")[:1] == [(0,)]
    few = spark.createDataFrame([(1,), (7,)], "x INT")
    assert rows("SELECT {few}.x FROM IDENTIFIER(:t) f JOIN {few} ON f.x = {few}.x", {"t": "mart.few"}, few=few) == [
        (1,)
    ]
    totals.sql("SET search_path = mart, public")
    assert rows("SELECT x FROM IDENTIFIER(:t)", {"t": "few"}) == [(0,), (1,)]


def test_a_view_that_was_dropped_without_rw_sql_is_created_again(totals: AttachedSession) -> None:
    spark = totals.spark
    assert totals.rows_of("`src$errors`") == []
    assert len(totals.sql("SELECT * FROM rw_catalog.rw_sources")) == 2
    for name in ("totals", "mart.few", "rw_catalog.rw_sources"):
        plain_sql(spark, f"DROP VIEW {name}")
    spark.catalog.dropTempView("src$errors")
    assert totals.rows_of("totals") == [(10,)]
    assert [row.x for row in spark.table("mart.few").sort("x").collect()] == [0, 1]
    assert totals.rows_of("`src$errors`") == []
    assert len(totals.sql("SELECT * FROM rw_catalog.rw_sources")) == 2
    with pytest.raises(SqlError, match="total"):
        spark.sql("SELECT * FROM total")


def test_a_statement_that_writes_runs_once(files: AttachedSession) -> None:
    files.sql("CREATE TABLE kept (x INT) USING delta")
    try:
        files.spark.sql("INSERT INTO kept SELECT x FROM src WHERE x >= :p", {"p": 8})
        assert files.rows_of("kept") == [(8,), (9,)]
    finally:
        files.sql("DROP TABLE kept")


def test_a_missing_argument_is_named(files: AttachedSession) -> None:
    with pytest.raises(SqlError, match="q"):
        files.spark.sql("SELECT x FROM src WHERE x >= :q", {"p": 7})


def test_no_arguments_are_none(files: AttachedSession) -> None:
    none: tuple[dict[str, object] | list[object], ...] = ({}, [])
    for args in none:
        assert {row.name for row in files.spark.sql("SHOW SOURCES", args).collect()} == {"src", "my src"}


@pytest.mark.kafka
@pytest.mark.long
def test_an_argument_narrows_what_is_read(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": id_} for id_ in range(10)], 0)
    session.sql(
        f"""CREATE SOURCE s (id INT) INCLUDE partition AS part INCLUDE offset AS place WITH (
            connector = 'kafka', topic = '{topic_name}', properties.bootstrap.server = '{broker.bootstrap}'
        ) FORMAT PLAIN ENCODE JSON"""
    )
    read = noted_ranges(monkeypatch)
    found = session.spark.sql("SELECT id FROM s WHERE part = :p AND place::bigint >= :o", {"p": "0", "o": 7}).collect()
    assert sorted(row.id for row in found) == [7, 8, 9]
    assert read[-1] == {"0": (7, 10)}


def test_a_result_that_python_cannot_represent_has_a_code(session: AttachedSession) -> None:
    """In a shell, a raw error would end the process, which may run the jobs."""
    taken: list[Rows | None] = []
    with pytest.raises(SqlError, match="its result cannot be shown") as caught:
        run_statements(
            session.spark,
            "SELECT 1;\nSELECT TIMESTAMP '+12345-01-01 00:00:00' AS t",
            answer=None,
            on_result=lambda _, frame: taken.append(None if frame is None else read_rows(frame)),
        )
    assert (caught.value.code, caught.value.line) == ("RW409", 2)
