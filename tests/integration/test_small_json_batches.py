"""Small batches that Arrow decodes in this process have the same rows as those that Spark decodes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.runtime.jobs import arrow_batches
from rw_sql.runtime.jobs.arrow_batches import ArrowBatches
from tests.integration.json_reference import Texts
from tests.integration.test_arrow_batches import COLUMNS, INCLUDED, shown

if TYPE_CHECKING:
    import pyarrow as pa

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_PLAIN = (
    b'{"id":%d,"name":"n%d","ratio":%d.5,"no":7,"day":"2024-02-29","bare":"2024-01-02T03:04:05.%d",'
    b'"zoned":"2024-03-31 01:59:59.25+05:30","ison":true,"other":[{"id":1}],"addr":{"zipcode":"z"},"lines":[{"qty":1}]}'
)


def test_the_rows_are_those_of_spark(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_batches, "_REST_BATCHES", 0)
    is_used, taken = True, {True: 0, False: 0}  # whether Arrow may decode, and how often it did
    decoded = ArrowBatches.rows

    def noted(batches: ArrowBatches, *given: Any, **named: Any) -> pa.Table | None:
        rows = decoded(batches, *given, **named) if is_used else None
        taken[rows is not None] += 1
        return rows

    monkeypatch.setattr(ArrowBatches, "rows", noted)
    create_topic(broker.bootstrap, topic_name, 2)
    for name in ("by_arrow", "by_spark"):
        session.run(
            f"CREATE SOURCE {name} ({COLUMNS}) {INCLUDED} WITH (connector = 'kafka', topic = '{topic_name}', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
            f"CREATE MATERIALIZED VIEW {name}_rows AS SELECT * FROM {name}",
            f"PAUSE SOURCE {name}",
        )
    texts = Texts(Random("small batches"))
    batches: list[list[Record]] = []
    for number in range(8):
        values = [_PLAIN % (at, at, at, at) for at in range(number * 20, number * 20 + 20)]
        if number % 2:
            values += [texts.draw() for _ in range(10)]
        batches.append([Record(value=value, key=b"\xff%d" % number) for value in values])
    batches.append([Record(value=None, key=b"k"), Record(value=b"{}", key=None)])
    session.run("RESUME SOURCE by_arrow")
    for batch in batches:
        produce(broker.bootstrap, topic_name, batch)
        session.sql("FLUSH")
    assert taken[True] >= 4
    assert taken[False] >= 4
    is_used = False
    session.run("RESUME SOURCE by_spark", "FLUSH")
    wanted = shown(session, "by_spark_rows")
    assert len(wanted) >= 160
    assert shown(session, "by_arrow_rows") == wanted
    errors = session.rows_of("`by_spark$errors`")
    assert errors
    assert session.rows_of("`by_arrow$errors`") == errors
