"""Tests of pipelines by the product's runner: the guide's examples, reports of differences, and all kinds of inputs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import topics
from rw_sql.cli.testing.runner import Bench, TestOptions, collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.cli.testing.outcome import TestOutcome

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "test-pipelines.md"

SLT = """\
statement ok
CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '3', fields.id.kind = 'sequence')

statement ok
CREATE MATERIALIZED VIEW m AS SELECT id FROM s

flush

query I
SELECT id FROM m
----
0
<slt:ignore>
2

let least, most
SELECT min(id), max(id) FROM m

query T
SELECT '${most} ${given}'
----
${most} one

statement error 42704
DROP SOURCE nothing

statement error RW409 DIVIDE
SELECT 1/0

query TI columns name,generation
SELECT * FROM rw_catalog.rw_sources
----
s 1

query I rowsort
SELECT id FROM m
----
0
1
3
"""


def run(
    spark: SparkSession,
    folder: Path,
    path: str,
    broker: BrokerInfo | None,
    workers: int = 1,
    *,
    is_recording: bool = False,
) -> dict[str, TestOutcome]:
    """The outcomes of the tests of a path, by their names."""
    collected = collect([str(folder / path)], {})
    assert collected.wrong == ()
    options = TestOptions(workers=workers, variables={"given": "one"}, is_recording=is_recording)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    bench = Bench(spark, work, options, broker.bootstrap if broker is not None else None)
    told: list[TestOutcome] = []
    outcomes = bench.run_all(collected.tests, told.append)
    assert sorted(outcome.id for outcome in told) == sorted(outcome.id for outcome in outcomes)
    assert list(work.iterdir()) == []
    return {outcome.name or Path(outcome.file).stem: outcome for outcome in outcomes}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.long
def test_the_examples_of_the_guide_pass(spark: SparkSession, broker: BrokerInfo, tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    pipeline, sql, slt = (block for block in blocks(text, "text") if re.match("CREATE|TEST|topic", block))
    yaml, records, _ = blocks(text, "yaml")
    expect = "    expect: [{id: 1, customer: ann}, {id: 2, customer: bob}]\n"
    more = f"  - name: records\n    view: names\n{records}{expect}"
    (tmp_path / "tests").mkdir()
    (tmp_path / "pipeline.sql").write_text(
        f"{pipeline}\nCREATE MATERIALIZED VIEW names AS SELECT id, customer FROM orders;", encoding="utf-8"
    )
    (tmp_path / "tests" / "totals.test.yaml").write_text(yaml + more, encoding="utf-8")
    (tmp_path / "tests" / "totals.sqltest").write_text(sql, encoding="utf-8")
    # The tests' broker is shared.
    (tmp_path / "tests" / "names.slt").write_text(
        slt.replace("orders partitions", "guide partitions")
        .replace("produce orders", "produce guide")
        .replace("topic = 'orders'", "topic = 'guide'"),
        encoding="utf-8",
    )
    outcomes = run(spark, tmp_path, "tests", broker, workers=2)
    assert {outcome.id: (outcome.message, outcome.detail) for outcome in outcomes.values() if outcome.message} == {}
    assert len(outcomes) == 4
    assert "guide" not in {topic.name for topic in topics(broker.bootstrap)}


@pytest.mark.long
def test_a_file_of_statements(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.slt").write_text(SLT, encoding="utf-8")
    (tmp_path / "b.slt").write_text("topic t partitions 1", encoding="utf-8")
    (tmp_path / "c.slt").write_text("statement ok\nSELECT\n  nothing", encoding="utf-8")
    outcomes = run(spark, tmp_path, ".", None, workers=2)
    line = SLT.splitlines().index("query I rowsort") + 1
    assert (outcomes["a"].status, outcomes["a"].line) == ("failed", line)
    assert outcomes["a"].detail.splitlines()[2:] == ["- 3", "+ 2", "  (- missing; + unexpected)"]
    assert outcomes["a"].notes == ("line 9: the query has no ORDER BY, and the record has no rowsort",)
    assert outcomes["b"].status == "error"
    assert outcomes["b"].message.endswith("b.slt:1: topic needs a broker: run rw-sql test --kafka")
    assert outcomes["c"].status == "failed"
    assert "LINE 3:   nothing\n" in outcomes["c"].detail


TYPED = """\
CREATE SOURCE s (id INT, code VARCHAR, price NUMERIC(20, 2), share REAL, at TIMESTAMPTZ)
WITH (connector = 'kafka', topic = 's', properties.bootstrap.server = 'none:9092') FORMAT PLAIN ENCODE JSON;
CREATE MATERIALIZED VIEW m AS
SELECT id, code, price, share, at, map('b', id, 'a', 0) AS parts, array('a, b') AS list FROM s;
"""

TYPED_TESTS = """\
tests:
  - name: values
    view: m
    given:
      s: [{id: 1, code: NO, price: 123456789012345678.91, share: 0.1, at: 2024-01-02 03:04:05}]
    expect:
      - id: 1
        code: NO
        price: 123456789012345678.91
        share: 0.1
        at: 2024-01-02 03:04:05
        parts: {a: 0, b: 1}
        list: ["a, b"]
  - name: another list
    view: m
    given: {s: [{id: 1}]}
    expect: [{list: [a, b]}]
  - name: a query that fails
    view: m
    given: {s: {sql: "SELECT 1/0 AS id"}}
    expect: []
"""


@pytest.mark.long
def test_values_arrive_as_they_are_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "m.SQL").write_text(TYPED, encoding="utf-8")
    (tmp_path / "m.test.yaml").write_text(TYPED_TESTS, encoding="utf-8")
    outcomes = run(spark, tmp_path, "m.test.yaml", None, workers=2)
    assert [outcome.status for outcome in outcomes.values()] == ["passed", "failed", "failed"], outcomes
    assert "['a, b']" in outcomes["another list"].detail
    assert "DIVIDE_BY_ZERO" in outcomes["a query that fails"].message


FIELDS = {
    "a.sql": """
SET query_dialect TO 'risingwave';
CREATE TABLE t (id INT PRIMARY KEY, total INT FROM sum, twice INT AS total * 2)
WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'none:9092') FORMAT PLAIN ENCODE JSON;
CREATE MATERIALIZED VIEW totals AS SELECT id, total::VARCHAR AS total, twice FROM t;
""",
    "b.sql": """
CREATE TABLE stamped (id INT PRIMARY KEY, total INT FROM sum) INCLUDE timestamp
WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'none:9092') FORMAT PLAIN ENCODE JSON;
CREATE MATERIALIZED VIEW halves AS SELECT id, total / 2 AS half, "text" AS written FROM totals;
CREATE MATERIALIZED VIEW copies AS SELECT id, total FROM stamped;
""",
    "x.test.yaml": """
tests:
  - name: in the dialect of its file
    view: halves
    given: {t: [{id: 1, total: 5}]}
    expect: [{id: 1, half: 2.5, written: text}]
  - name: a computed column
    view: totals
    given: {t: [{id: 1, total: 5}]}
    expect: [{id: 1, total: "5", twice: 10}]
  - name: of a topic
    view: copies
    given: {stamped: [{id: 1, total: 5}]}
    expect: [{id: 1, total: 5}]
""",
}


@pytest.mark.long
def test_columns_with_other_fields_are_given_and_settings_are_of_their_files(
    spark: SparkSession, broker: BrokerInfo, tmp_path: Path
) -> None:
    """In Spark's SQL, ``/`` divides exactly and double quotes enclose a string."""
    for name, text in FIELDS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    outcomes = run(spark, tmp_path, "x.test.yaml", broker, workers=2)
    assert [outcome.status for outcome in outcomes.values()] == ["passed"] * 3, outcomes


RECORDED = """\
include common/rows.slt

# another line, so that the rows of both files have the same place
query IT
SELECT 1, '${dir}'
----
1 <slt:ignore>

query T rowsort
SELECT col FROM VALUES ('${given}'), ('done'), ('${dir}') AS t(col)
----
${given}
other

query T
SELECT timestamp'2024-01-02 03:04:05'
----
2024-01-02 03:04:05
"""


@pytest.mark.long
def test_recorded_rows_stay_as_written_where_they_match(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "rows.slt").write_text("# a\n# b\n# c\n\nquery I\nSELECT 7\n----\n7\n", encoding="utf-8")
    (tmp_path / "a.slt").write_text(RECORDED, encoding="utf-8")
    (tmp_path / "d.slt").write_text("statement error ((\nSELECT\n", encoding="utf-8")
    (tmp_path / "e.slt").write_text("onlyif other\nflush\n", encoding="utf-8")
    before = time.tzname
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        try:
            outcomes = run(spark, tmp_path, ".", None, is_recording=True)
        finally:
            patch.undo()
            time.tzset()
    assert time.tzname == before
    recorded = outcomes["a"].rewritten
    assert recorded == RECORDED.replace("${given}\nother\n", "${dir}\ndone\n${given}\n"), outcomes["a"]
    assert (outcomes["d"].status, outcomes["e"].status) == ("error", "skipped")
    assert "is not a regular expression" in outcomes["d"].message
