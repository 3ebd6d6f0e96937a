"""A topic that lost records which a source has read: the source stalls instead of mixing two logs."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.cli.kafka_broker import start_broker, stop_broker
from rw_sql.cli.kafka_topics import create_topic
from rw_sql.metastore.records import SourceRecord
from tests.integration.attached import produce_json, wait_until
from tests.support.cut_log import cut_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    folder = tmp_path_factory.mktemp("own_broker")
    yield start_broker(folder, port=0)
    stop_broker(folder)


def create(session: AttachedSession, broker: BrokerInfo, *, is_shared: bool = True, has_topic: bool = False) -> None:
    session.allow_unsafe()
    if not has_topic:
        create_topic(broker.bootstrap, "orders", 1)
    session.run(
        f"""CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 'orders', shared = '{str(is_shared).lower()}',
        properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON""",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
    )


def put(broker: BrokerInfo, first: int, last: int) -> None:
    produce_json(broker.bootstrap, "orders", [{"id": id_} for id_ in range(first, last)])


def has_diverged(session: AttachedSession, job: str) -> bool:
    return "DIVERGED" in session.job(job).reason


def ids(session: AttachedSession) -> list[int]:
    return sorted(id_ for (id_,) in session.flushed_rows_of("m"))


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
        "to skip those before the position, INJECT SOURCE OFFSETS s VALUES ('orders:0' = 22) instead",
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
    session.run("CREATE MATERIALIZED VIEW g AS SELECT id % 2 AS k, count(*) AS n FROM s GROUP BY id % 2")
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
