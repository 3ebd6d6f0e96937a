"""A topic that lost records which a source has read: the source stalls instead of mixing two logs."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import wait_until
from tests.integration.cut_logs import create, has_diverged, ids, put
from tests.support.cut_log import cut_log

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "direct"])
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "paused"])
def test_a_source_stalls_if_records_that_it_read_were_lost(
    session: AttachedSession, own_broker: BrokerInfo, is_running: bool, is_shared: bool
) -> None:
    reader = "s" if is_shared else "m"
    create(session, own_broker, is_shared=is_shared)
    put(own_broker, 0, 12)
    put(own_broker, 12, 20)
    assert ids(session) == list(range(20))
    # Another leader alone is not a reason.
    stop_broker(own_broker.folder)
    start_broker(own_broker.folder, port=0)
    put(own_broker, 20, 22)
    wait_until(lambda: session.job(reader).state == "RUNNING", "the source runs again")
    assert ids(session) == list(range(22))
    if not is_running:
        session.run("PAUSE SOURCE s")
    cut_log(own_broker, "orders", 12)
    put(own_broker, 100, 130)
    if not is_running:
        session.run("RESUME SOURCE s")
    wait_until(lambda: session.job(reader).reason.startswith("DIVERGED"), "the source has noticed")
    job = session.job(reader)
    assert (job.state, job.reason) == (
        "STALLED",
        "DIVERGED orders:0 at 22: the log was cut at 12 and has other records from there on; to read them: "
        "PAUSE SOURCE s; INJECT SOURCE OFFSETS s VALUES ('orders:0' = 12); RESUME SOURCE s; "
        "to skip those before the position, the second statement is INJECT SOURCE OFFSETS s VALUES ('orders:0' = 22)",
    )
    reads, skips = re.findall(r"INJECT SOURCE OFFSETS s VALUES \([^)]*\)", job.reason)
    statement, kept = (reads, range(100, 130)) if is_running else (skips, range(110, 130))
    session.run("PAUSE SOURCE s", statement, "RESUME SOURCE s")
    assert ids(session) == [*range(22), *kept]
    if is_running and is_shared:
        # The log still has the rows of the lost records, beside those that were read instead.
        session.run("REBUILD MATERIALIZED VIEW m")
        (waited,) = session.sql("WAIT MATERIALIZED VIEW m")
        assert waited.change == "WAITED", waited.detail
        assert ids(session) == [*range(12), *kept]


def test_a_transaction_that_ends_after_a_change_of_the_leader_is_not_a_loss(
    session: AttachedSession, own_broker: BrokerInfo
) -> None:
    create(session, own_broker)
    put(own_broker, 0, 5)
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    for id_ in range(5, 10):
        producer.produce("orders", b'{"id": %d}' % id_, partition=0)
    producer.flush()
    stop_broker(own_broker.folder)
    start_broker(own_broker.folder, port=0)
    producer.commit_transaction()
    wait_until(lambda: ids(session) == list(range(10)), "the records of the transaction")
    session.run("PAUSE SOURCE s", "RESUME SOURCE s")
    put(own_broker, 10, 12)
    wait_until(lambda: ids(session) == list(range(12)), "the records after the marker")
    assert not has_diverged(session, "s")


def test_a_source_without_a_batch_stalls_if_its_log_was_cut_before_its_position(
    session: AttachedSession, own_broker: BrokerInfo
) -> None:
    session.allow_unsafe()
    create_topic(own_broker.bootstrap, "orders", 1)
    put(own_broker, 0, 12)
    put(own_broker, 12, 20)
    modes = {"created": ("latest", True), "injected": ("earliest", True), "direct": ("latest", False)}
    for name, (mode, is_shared) in modes.items():
        session.run(
            f"""CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', topic = 'orders', shared = '{is_shared}',
            scan.startup.mode = '{mode}', paused = 'true', properties.bootstrap.server = '{own_broker.bootstrap}')
            FORMAT PLAIN ENCODE JSON""",
            f"CREATE MATERIALIZED VIEW of_{name} AS SELECT id FROM {name}",
        )
    session.run("INJECT SOURCE OFFSETS injected VALUES ('orders:0' = 20)")
    cut_log(own_broker, "orders", 12)
    put(own_broker, 100, 130)
    session.run(*(f"RESUME SOURCE {name}" for name in modes))
    for job in ("created", "injected", "of_direct"):
        wait_until(partial(has_diverged, session, job), f"{job} has noticed")
        assert session.job(job).reason.startswith("DIVERGED orders:0 at 20: the log was cut at 12")
    # The records from the cut on came after CREATE SOURCE.
    assert sorted(id_ for (id_,) in session.sql("SELECT id FROM created")) == list(range(100, 130))
    for name, offset in (("created", 12), ("injected", 20), ("direct", 12)):
        session.run(
            f"PAUSE SOURCE {name}",
            f"INJECT SOURCE OFFSETS {name} VALUES ('orders:0' = {offset})",
            f"RESUME SOURCE {name}",
        )
    session.run("FLUSH")
    found = {name: sorted(id_ for (id_,) in session.rows_of(f"of_{name}")) for name in modes}
    everything = list(range(100, 130))
    assert found == {"created": everything, "injected": everything[8:], "direct": everything}


def test_a_batch_without_its_state_is_not_repeated_with_other_records(
    session: AttachedSession, own_broker: BrokerInfo
) -> None:
    create(session, own_broker, is_shared=False)
    session.run("CREATE MATERIALIZED VIEW g AS SELECT id % 2 AS k, count(DISTINCT id) AS n FROM s GROUP BY id % 2")
    put(own_broker, 0, 12)
    assert sorted(session.flushed_rows_of("g")) == [(0, 6), (1, 6)]
    put(own_broker, 12, 20)
    assert sorted(session.flushed_rows_of("g")) == [(0, 10), (1, 10)]
    session.run("PAUSE SOURCE s")
    # As after a kill between the commit of the rows and that of the state.
    context = session.attached._runtime.context
    view = context.metastore.snapshot().find("materialized_view", "g")
    assert view is not None
    commits = Path(context.warehouse.view_checkpoint(view.id, view.generation)) / "commits"
    newest = max((int(file.name), file) for file in commits.iterdir() if file.name.isdigit())[1]
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    newest.unlink()
    cut_log(own_broker, "orders", 12)
    put(own_broker, 100, 130)
    session.run("RESUME SOURCE s")
    wait_until(lambda: session.job("g").reason.startswith("DIVERGED orders:0 at 20"), "the view has noticed")
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('orders:0' = 20)", "RESUME SOURCE s")
    wait_until(lambda: session.job("g").reason.startswith("UNFINISHED"), "the batch is not repeated")
    assert session.job("g").reason.endswith(
        "the upstream of source s has lost its records: DROP MATERIALIZED VIEW g and create it again"
    )
    # The other view has no state.
    assert ids(session) == [*range(20), *range(108, 130)]
