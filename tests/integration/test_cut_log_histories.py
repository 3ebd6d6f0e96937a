"""A topic that lost records: views that read their history then, or are rebuilt later, have each remaining record
once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.metastore.records import SourceRecord
from tests.integration.attached import wait_until
from tests.integration.cut_logs import create, has_diverged, ids, put
from tests.support.cut_log import cut_log

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.alone]


@pytest.mark.long
def test_a_backfill_does_not_read_another_log(session: AttachedSession, own_broker: BrokerInfo) -> None:
    session.allow_unsafe()
    create_topic(own_broker.bootstrap, "orders", 1)
    put(own_broker, 0, 12)
    put(own_broker, 12, 20)
    session.run(
        f"""CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 'orders', scan.startup.mode = 'latest',
        properties.bootstrap.server = '{own_broker.bootstrap}') FORMAT PLAIN ENCODE JSON""",
        "SET background_ddl = true",
        "CREATE MATERIALIZED VIEW m WITH (scan.startup.mode = 'earliest', backfill_rate_limit = 0) AS SELECT id FROM s",
        "SET background_ddl = false",
    )
    wait_until(lambda: session.job("m").state == "BACKFILLING", "history is read")
    # The source has committed a batch, with the term of its log.
    put(own_broker, 20, 21)
    wait_until(lambda: session.positions("s") == {"orders:0": 21}, "the source has read a record")
    cut_log(own_broker, "orders", 12)
    put(own_broker, 100, 130)
    session.run("ALTER MATERIALIZED VIEW m SET BACKFILL_RATE_LIMIT = DEFAULT")
    wait_until(lambda: session.job("m").reason.startswith("DIVERGED"), "the view has noticed")
    assert (session.job("m").state, session.job("m").reason) == (
        "STALLED",
        "DIVERGED orders:0 at 12: the log was cut at this offset before its backfill was complete, and has other "
        "records from there on: REBUILD MATERIALIZED VIEW m starts again with the existing records",
    )
    wait_until(lambda: session.job("s").reason.startswith("DIVERGED"), "the source has noticed")
    session.run(
        "PAUSE SOURCE s",
        "INJECT SOURCE OFFSETS s VALUES ('orders:0' = 12)",
        "RESUME SOURCE s",
        "REBUILD MATERIALIZED VIEW m",
    )
    (waited,) = session.sql("WAIT MATERIALIZED VIEW m")
    assert waited.change == "WAITED", waited.detail
    assert ids(session) == [*range(12), *range(100, 130)]


@pytest.mark.long
def test_a_backfill_has_the_newest_reading_of_each_offset_once(
    session: AttachedSession, own_broker: BrokerInfo
) -> None:
    create(session, own_broker)
    put(own_broker, 0, 12)
    put(own_broker, 12, 20)
    assert ids(session) == list(range(20))
    # The log has these records twice, so that new views copy their history from it.
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('orders:0' = 4)", "RESUME SOURCE s", "FLUSH")
    session.run(
        f"""CREATE SOURCE l (id INT) WITH (connector = 'kafka', topic = 'orders', scan.startup.mode = 'latest',
        properties.bootstrap.server = '{own_broker.bootstrap}') FORMAT PLAIN ENCODE JSON""",
        "SET background_ddl = true",
        "SET backfill_rate_limit = 0",
        "CREATE MATERIALIZED VIEW repeated AS SELECT id FROM s",
    )
    # A re-read of records that are still the same is no cut: this view has them with its history and once more.
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('orders:0' = 16)", "RESUME SOURCE s", "FLUSH")
    session.run("ALTER MATERIALIZED VIEW repeated SET BACKFILL_RATE_LIMIT = DEFAULT", "WAIT MATERIALIZED VIEW repeated")
    twice = sorted([*range(20), *range(16, 20)])
    assert sorted(id_ for (id_,) in session.flushed_rows_of("repeated")) == twice
    session.run(
        "CREATE MATERIALIZED VIEW copied AS SELECT id FROM s",
        "CREATE MATERIALIZED VIEW grouped AS SELECT id, count(*) AS n FROM s GROUP BY id",
        "CREATE MATERIALIZED VIEW from_topic WITH (scan.startup.mode = 'earliest') AS SELECT id FROM l",
        "SET background_ddl = false",
    )
    made = ("copied", "grouped", "from_topic")
    wait_until(lambda: all(session.job(view).state == "BACKFILLING" for view in made), "the views have begun")
    cut_log(own_broker, "orders", 12)
    put(own_broker, 100, 130)
    for source in ("s", "l"):
        wait_until(partial(has_diverged, session, source), f"{source} has noticed")
        session.run(
            f"PAUSE SOURCE {source}",
            f"INJECT SOURCE OFFSETS {source} VALUES ('orders:0' = 12)",
            f"RESUME SOURCE {source}",
        )
    wait_until(lambda: session.positions("s") == session.positions("l") == {"orders:0": 42}, "the new records are read")
    for view in made:
        session.run(f"ALTER MATERIALIZED VIEW {view} SET BACKFILL_RATE_LIMIT = DEFAULT")
    for view in made:
        (waited,) = session.sql(f"WAIT MATERIALIZED VIEW {view}")
        assert waited.change == "WAITED", waited.detail
    session.run("FLUSH")
    found = {view: sorted(row[0] for row in session.rows_of(view)) for view in (*made, "repeated")}
    expected = [*range(12), *range(100, 130)]
    # The backfill of the last one was complete, so that it is one of the views that keep the lost records.
    assert found == {**dict.fromkeys(made, expected), "repeated": [*twice, *range(100, 130)]}
    assert {n for _, n in session.rows_of("grouped")} == {1}


@pytest.mark.long
def test_a_rebuilt_view_equals_the_view_that_ran_all_the_time(session: AttachedSession, own_broker: BrokerInfo) -> None:
    create_topic(own_broker.bootstrap, "orders", 1)
    put(own_broker, 0, 12)
    put(own_broker, 12, 20)
    create(session, own_broker, has_topic=True)
    # This view begins with the records after CREATE SOURCE.
    session.run("CREATE MATERIALIZED VIEW later WITH (scan.startup.mode = 'latest') AS SELECT id FROM s")
    session.run("CREATE MATERIALIZED VIEW earlier WITH (scan.startup.mode = 'earliest') AS SELECT id FROM s")
    assert ids(session) == list(range(20))
    cut_log(own_broker, "orders", 12)
    put(own_broker, 100, 130)
    wait_until(partial(has_diverged, session, "s"), "the source has noticed")
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('orders:0' = 20)", "RESUME SOURCE s")
    everything = [*range(20), *range(108, 130)]
    expected = {"m": everything, "earlier": everything, "later": everything[20:]}
    session.run("FLUSH")
    assert {view: sorted(id_ for (id_,) in session.rows_of(view)) for view in expected} == expected
    for view in expected:
        session.run(f"REBUILD MATERIALIZED VIEW {view}")
        (waited,) = session.sql(f"WAIT MATERIALIZED VIEW {view}")
        assert waited.change == "WAITED", waited.detail
    session.run("FLUSH")
    assert {view: sorted(id_ for (id_,) in session.rows_of(view)) for view in expected} == expected
    # As after log.retention: the history comes from the topic, which has other records in place of the lost ones.
    session.run("PAUSE SOURCE s")
    context = session.attached._runtime.context
    source = context.metastore.snapshot().find("source", "s")
    assert isinstance(source, SourceRecord)
    DeltaTable(context.log_path(source)).delete("_rw_bucket > 0")
    session.run("RESUME SOURCE s", "REBUILD MATERIALIZED VIEW earlier")
    (waited,) = session.sql("WAIT MATERIALIZED VIEW earlier")
    assert waited.change == "WAITED", waited.detail
    found = sorted(id_ for (id_,) in session.flushed_rows_of("earlier"))
    assert found == [*range(12), *range(108, 130)]
