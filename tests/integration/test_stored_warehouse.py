"""Warehouses of earlier versions open, run, move, undo and rewind: ``tests/fixtures/warehouses``, one per format."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic, delete_topic
from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.catalog import load_catalog
from rw_sql.runtime.support.secrets import KEY_VARIABLE, read_secret
from tests.integration.attached import AttachedSession, produce_json, wait_until
from tests.integration.test_live_sinks import consumed
from tests.support.stored_warehouse import DEAD, FOLDER, KEY, PASSWORD, SUFFIX, VIEWS, contents, contents_file, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

Contents = dict[str, Any]
KEPT = sorted(FOLDER.glob(f"*{SUFFIX}"))


def test_the_present_format_is_kept() -> None:
    assert int(KEPT[-1].name.removesuffix(SUFFIX)) == load_catalog().number, (
        "python -m tests.support.stored_warehouse writes it"
    )


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_a_kept_warehouse_is_small(kept: Path) -> None:
    assert kept.stat().st_size < 300_000


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.usefixtures("quick_discovery")
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_a_stored_warehouse_opens_runs_moves_undoes_and_rewinds(
    spark: SparkSession, broker: BrokerInfo, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    unpack(kept, tmp_path / "warehouse")
    known = json.loads(contents_file(kept).read_text(encoding="utf-8"))
    session = AttachedSession(spark, str(tmp_path / "warehouse"))
    try:
        opens(session, known)
        moves_to_another_broker(session, broker, known)
        undoes_and_rewinds(session, known)
    finally:
        session.detach()
        for topic in AT_THE_BROKERS:  # The next kept warehouse has topics of the same names.
            with suppress(SqlError):  # The test failed before it made them.
                delete_topic(broker.bootstrap, topic)


AT_THE_BROKERS = {"orders", "copied"}
"""The source and the sink whose connection leads to brokers that are gone."""


def opens(session: AttachedSession, known: Contents) -> None:
    """All contents are unchanged, and every job runs except the one whose brokers no longer exist."""
    assert json.loads(json.dumps(contents(session))) == known
    session.sql("FLUSH")
    assert {view: [list(row) for row in session.rows_of(view)] for view in VIEWS} == known["rows"]
    jobs = session.jobs()
    away = {name for name, job in jobs.items() if job.state == "STALLED"}
    assert {"orders"} <= away <= AT_THE_BROKERS
    assert all(jobs[name].reason.startswith("UNREACHABLE") for name in away)
    assert {job.state for name, job in jobs.items() if name not in AT_THE_BROKERS} == {"RUNNING"}
    (secret,) = Metastore.open(session.warehouse).snapshot().all("secret")
    assert read_secret(secret) == PASSWORD


def moves_to_another_broker(session: AttachedSession, broker: BrokerInfo, known: Contents) -> None:
    """The connection leads to a new cluster; the source, its view and the sink continue with its records."""
    for topic in ("orders", "copied"):
        create_topic(broker.bootstrap, topic, 1)
    produce_json(broker.bootstrap, "orders", [{"id": 100, "item": "a", "price": 1000}])
    session.answer(True)
    session.run(
        f"ALTER CONNECTION brokers SET (properties.bootstrap.server = '{broker.bootstrap}')",
        "PAUSE SOURCE orders",
        "RESET SOURCE SPLITS orders",
        "INJECT SOURCE OFFSETS orders TO EARLIEST",
        "RESUME SOURCE orders",
    )
    after = [(item, price + 1000 * (item == "a")) for item, price in known["rows"]["totals"]]
    assert session.flushed_rows_of("totals") == after
    assert [(key["item"], value["price"]) for key, value in consumed(broker.bootstrap, "copied")] == [
        ("a", after[0][1])
    ]
    assert DEAD not in session.sql("SHOW CREATE CONNECTION brokers")[0][-1]


def undoes_and_rewinds(session: AttachedSession, known: Contents) -> None:
    """UNDO reverts a new operation; REWIND reverts an old one, whose rewind point was kept, with its rows."""
    stood = session.positions("s")
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('2-1' = 15)")
    assert session.positions("s") == {**stood, "2-1": 15}
    session.sql(f"UNDO OPERATION {session.sql('SHOW UNSAFE OPERATIONS FOR s')[0].operation}")
    assert session.positions("s") == stood
    session.run("RESUME SOURCE s")
    moved = next(epoch for epoch, kind, *_ in known["operations"] if kind == "INJECT SOURCE OFFSETS")
    session.sql(f"REWIND SOURCE s TO OPERATION {moved} ALLOW DUPLICATES")
    assert session.flushed_rows_of("counted") == [(id_, 1) for id_ in range(1, 41)]
    wait_until(lambda: session.job("counted").state == "RUNNING", "it runs on")
