"""Tests of pipelines by the product's runner: the guide's examples, reports of what differs, and what can be given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.kafka_topics import topics
from rw_sql.cli.testing.runner import Bench, TestOptions, collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.cli.kafka_broker import BrokerInfo
    from rw_sql.cli.testing.outcome import TestOutcome

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "test-pipelines.md"

PIPELINE = """\
CREATE SOURCE orders (id INT, customer VARCHAR, amount NUMERIC(10, 2), at TIMESTAMPTZ, tags VARCHAR[])
INCLUDE timestamp AS received INCLUDE header 'origin' AS origin
WITH (connector = 'kafka', topic = :'topic', properties.bootstrap.server = 'nowhere:9092') FORMAT PLAIN ENCODE JSON;

CREATE TABLE customers (name VARCHAR PRIMARY KEY, country VARCHAR)
WITH (connector = 'kafka', topic = 'customers', properties.bootstrap.server = 'nowhere:9092') FORMAT PLAIN ENCODE JSON;

CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, sum(amount) AS amount, max(received) AS received FROM orders GROUP BY customer;

CREATE MATERIALIZED VIEW rich AS SELECT customer, amount FROM totals WHERE amount > 10;

CREATE MATERIALIZED VIEW by_country AS
SELECT c.country, o.id, o.tags, o.origin, o.at FROM orders o JOIN customers c ON o.customer = c.name;

CREATE SOURCE raw (id INT) INCLUDE key INCLUDE timestamp
WITH (connector = 'kafka', topic = 'raw', properties.bootstrap.server = 'nowhere:9092') FORMAT PLAIN ENCODE JSON;

CREATE MATERIALIZED VIEW seen AS SELECT id, CAST(_rw_kafka_key AS STRING) AS k, _rw_kafka_timestamp AS at FROM raw;

INSERT INTO nowhere SELECT 'statements of Spark are not run';
"""

TESTS = """\
variables: {topic: orders}
tests:
  - name: sums
    view: totals
    given:
      orders:
        - {id: 1, customer: ann, amount: 10.05, received: 2026-01-02 03:04:05}
        - {id: 2, customer: ann, amount: "0.95", received: 2026-01-02 03:04:06+00:00}
        - {id: 3, amount: 7}
    expect:
      - {customer: ann, orders: 2, amount: 11, received: "2026-01-02T03:04:06Z"}
      - {customer: null, orders: 1, amount: 7}
  - name: no rows
    view: totals
    given: {orders: []}
    expect: []
  - name: through a view
    view: rich
    given: {orders: {file: orders.csv}}
    expect: [{customer: ann, amount: 11}]
  - name: a view that is given
    view: rich
    given:
      totals: [{customer: ann, amount: 11}, {customer: bob, amount: 9.99}]
    expect: [{customer: ann}]
  - name: a table, arrays and headers
    view: by_country
    given:
      orders:
        - {id: 1, customer: ann, tags: [a, null], origin: "\\\\x77", at: 2026-01-02 03:04:05+02:00}
      customers: [{name: ann, country: FR}, {name: bob, country: DE}]
    expect: [{country: FR, id: 1, tags: [a, null], origin: w, at: "2026-01-02 01:04:05Z"}]
  - name: wrong
    view: totals
    given: {orders: [{id: 1, customer: ann, amount: 1}, {id: 2, customer: cid}]}
    expect: [{customer: ann, orders: 2}, {customer: bob, orders: 1}]
  - name: no such column
    view: totals
    given: {orders: []}
    expect: [{custmer: ann}]
  - name: lacks rows
    view: by_country
    given: {orders: []}
    expect: []
  - name: gives too much
    view: rich
    given: {totals: [], orders: []}
    expect: []
  - name: no number
    view: totals
    given: {orders: [{id: x}]}
    expect: []
  - name: with a broker
    view: seen
    given: {raw: [{id: 1, _rw_kafka_key: a, _rw_kafka_timestamp: 2026-01-02 03:04:05}, {id: 2}]}
    expect: [{id: 1, k: a}, {id: 2, k: null}]
  - name: records
    view: seen
    given: {raw: {records: [{value: '{"id": 7}', key: b}, {value: "no JSON"}, {value: {id: 8}, partition: 1}]}}
    expect: [{id: 7, k: b}, {id: 8}]
"""

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
    spark: SparkSession, folder: Path, path: str, broker: BrokerInfo | None, workers: int = 1
) -> dict[str, TestOutcome]:
    """The outcomes of the tests of a path, by their names."""
    collected = collect([str(folder / path)], {})
    assert collected.wrong == ()
    options = TestOptions(workers=workers, variables={"given": "one"})
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


def test_what_unit_tests_give_and_say(spark: SparkSession, broker: BrokerInfo, tmp_path: Path) -> None:
    (tmp_path / "pipeline.sql").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "orders.csv").write_text("id,customer,amount\n1,ann,11\n2,bob,\n", encoding="utf-8")
    (tmp_path / "totals.test.yaml").write_text(TESTS, encoding="utf-8")
    outcomes = run(spark, tmp_path, "totals.test.yaml", broker, workers=3)
    told = {name: (outcome.status, outcome.message, outcome.detail) for name, outcome in outcomes.items()}
    for name in (
        "sums",
        "no rows",
        "through a view",
        "a view that is given",
        "a table, arrays and headers",
        "with a broker",
        "records",
    ):
        assert told[name] == ("passed", "", ""), (name, *told[name])
    assert told["wrong"] == (
        "failed",
        "totals: 1 missing, 1 unexpected, 1 changed rows; 0 as expected",
        "  customer | orders\n"
        "  ---------+-------\n"
        "~ ann      | 2 → 1\n"
        "- bob      | 1\n"
        "+ cid      | 1\n"
        "  (~ changed, expected → found; - missing; + unexpected)",
    )
    assert told["no such column"] == ("failed", 'totals has no column "custmer"', 'did you mean "customer"?')
    file = tmp_path / "totals.test.yaml"
    assert told["lacks rows"][1].endswith(
        'the test gives no rows of "customers", which by_country reads: customers: []'
    )
    assert told["gives too much"][:2] == (
        "error",
        f'{file}:{outcomes["gives too much"].line}: the test gives rows of "orders", which rich does not read',
    )
    assert told["no number"][1].endswith("given orders, row 1, column \"id\": 'x' is no INT")
    assert outcomes["wrong"].line == next(
        number for number, line in enumerate(TESTS.splitlines(), start=1) if "name: wrong" in line
    )


def test_a_file_of_statements(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.slt").write_text(SLT, encoding="utf-8")
    (tmp_path / "b.slt").write_text("topic t partitions 1", encoding="utf-8")
    (tmp_path / "c.slt").write_text("statement ok\nSELECT\n  nothing", encoding="utf-8")
    outcomes = run(spark, tmp_path, ".", None, workers=2)
    line = SLT.splitlines().index("query I rowsort") + 1
    assert (outcomes["a"].status, outcomes["a"].line) == ("failed", line)
    assert outcomes["a"].detail.splitlines()[2:] == ["- 3", "+ 2", "  (- missing; + unexpected)"]
    assert outcomes["a"].notes == ("line 9: the query has no ORDER BY and the record no rowsort",)
    assert outcomes["b"].status == "error"
    assert outcomes["b"].message.endswith("b.slt:1: topic needs a broker: run rw-sql test --kafka")
    assert outcomes["c"].status == "failed"
    assert "LINE 3:   nothing\n" in outcomes["c"].detail
