"""UNDO OPERATION on a live session: rows show where the reader continued."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from tests.integration.attached import AttachedSession, produce_json, wait_until
from tests.integration.undoing import undo_all

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


def newest_operation(session: AttachedSession) -> int:
    """The number of the newest unsafe operation, as the audit lists it."""
    return int(session.sql("SHOW UNSAFE OPERATIONS")[0].operation)


def test_what_a_move_did_is_given_back(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    other = f"{topic_name}.other"
    create_topic(broker.bootstrap, topic_name, 2)
    create_topic(broker.bootstrap, other, 1)
    for partition in (0, 1):
        produce_json(broker.bootstrap, topic_name, [{"id": 10 * partition + at} for at in range(10)], partition)
    produce_json(broker.bootstrap, other, [{"id": 100 + at} for at in range(5)])
    session.allow_unsafe()
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
    )
    once = Counter(range(20))
    assert counted(session) == once
    definition = session.sql("SHOW CREATE SOURCE s")[0].create_sql
    # A running source is moved away and back: it continues at its old position.
    session.run(f"ALTER SOURCE s UNSAFE SET (topic = '{other}')")
    moved = newest_operation(session)
    assert counted(session) == once + Counter(range(100, 105))
    produce_json(broker.bootstrap, topic_name, [{"id": 20}], 0)
    session.run(f"UNDO OPERATION {moved} REASON 'wrong topic'")
    assert session.sql("SHOW CREATE SOURCE s")[0].create_sql == definition
    assert session.positions("s")[f"{topic_name}:0"] in (10, 11)
    assert counted(session) == once + Counter(range(100, 105)) + Counter([20])
    # An injection that repeated rows is undone: the source continues at the reader's position before the injection.
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('1' = 4)", "RESUME SOURCE s")
    injected = newest_operation(session)
    expected = once + Counter(range(100, 105)) + Counter([20]) + Counter(range(14, 20))
    assert counted(session) == expected
    produce_json(broker.bootstrap, topic_name, [{"id": 21}], 1)
    wait_until(lambda: session.positions("s")[f"{topic_name}:1"] == 11, "the new record is read")
    session.run(f"UNDO OPERATION {injected}")
    assert counted(session) == expected + Counter([21, 21])
    audit = session.sql("SHOW UNSAFE OPERATIONS FOR s")[0]
    assert (audit.kind, audit.outcome) == ("UNDO OPERATION", "applied")
    assert audit.undo == f"UNDO OPERATION {audit.operation}"
    assert "in all: DUPLICATES" in audit.plan
    undone = session.sql(f"SELECT undo, undone_by FROM rw_catalog.rw_operations WHERE epoch = {injected}")
    assert [tuple(row) for row in undone] == [(f"UNDO OPERATION {injected}", audit.operation)]
    events = session.sql("SELECT event_type, info FROM rw_catalog.rw_event_logs")
    assert {"UNDO_OPERATION", "UNSAFE_SET", "OUTCOME", "JOB_STARTED", "JOB_RUNNING"} <= {
        row.event_type for row in events
    }
    assert any(json.loads(row.info).get("reason") == "wrong topic" for row in events)


def test_metrics_count_operations_and_jobs(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce(broker.bootstrap, topic_name, [Record(value=b'{"id": 1}'), Record(value=b"poison"), Record(value=b"{}")])
    port = session.attached.serve_metrics("0")
    session.allow_unsafe()
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "SHOW METRICS",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
        "FLUSH",
        "PAUSE SOURCE s",
    )
    produce_json(broker.bootstrap, topic_name, [{"id": 4}, {"id": 5}])
    session.run("SKIP RECORD AT '0' 3 ON SOURCE s REASON 'poison'", "RESUME SOURCE s")
    assert session.flushed_rows_of("m") == [(None,), (1,), (5,)]
    shown = {(row.name, row.labels): row.value for row in session.sql("SHOW METRICS")}
    assert shown["rw_sql_unsafe_operations_total", "kind=SKIP RECORD, source=s"] == 1
    assert shown["rw_sql_injected_split_states_total", "source=s"] == 1
    assert shown["rw_sql_job_rows_total", "job=ingest-2, object=s"] == 4
    assert shown["rw_sql_decode_errors_total", "source=s"] == 1
    assert shown["rw_sql_job_lag_records", "job=ingest-2, object=s"] == 0
    assert shown["rw_sql_job_running", "job=ingest-2, object=s"] == 1
    assert shown["rw_sql_job_restarts_total", "job=mv-3, object=m"] == 0
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'rw_sql_unsafe_operations_total{kind="SKIP RECORD",source="s"} 1.0' in text
    assert "# TYPE rw_sql_job_lag_records gauge" in text
    rows = [row for row in session.sql("SHOW SOURCE CONTINUITY s") if row.kind == "SKIP RECORD"]
    assert [(row.predicted, row.gaps, row.last_before, row.first_after, row.status) for row in rows] == [
        ("GAP 1", 1, 2, 4, "AS PREDICTED")
    ]
    done = session.sql("SELECT kind, undo, undone_by FROM rw_catalog.rw_operations ORDER BY epoch")
    undos = {row.kind: (row.undo, row.undone_by) for row in done}
    assert undos["CREATE SOURCE"] == (None, None)
    assert undos["PAUSE SOURCE"][0] is not None
    assert undos["SKIP RECORD"] == (f"UNDO OPERATION {rows[0].operation}", None)


@pytest.mark.parametrize("seed", [1])
def test_random_operations_are_undone_in_reverse_order(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, seed: int
) -> None:
    facts = undo_all(session, broker.bootstrap, topic_name, seed=seed, length=5)
    assert facts["operations undone"] >= 5


def counted(session: AttachedSession) -> Counter[int]:
    """How often each id is in the view, once all records are read."""
    return Counter(id_ for (id_,) in session.flushed_rows_of("m"))
