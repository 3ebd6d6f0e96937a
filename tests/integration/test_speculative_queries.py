"""A reader's query that starts before its run reads nothing until then, and no batch of a dead query is continued."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.runtime.rewind import scheduler as rewinding
from rw_sql.runtime.rewind.points import make_points
from tests.integration.attached import AttachedSession, produce_json, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def _create(session: AttachedSession, broker: BrokerInfo, topic: str, records: int) -> None:
    """A source of one partition with that many records, and a view ``v`` that has read them.

    The column of headers makes a query read the records. Without it, a thread would.
    """
    create_topic(broker.bootstrap, topic, 1)
    produce_json(broker.bootstrap, topic, [{"id": number} for number in range(records)])
    session.allow_unsafe()
    session.run(
        f"CREATE SOURCE s (id INT) INCLUDE header AS h WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    assert _ids(session) == list(range(records))


def _ids(session: AttachedSession) -> list[int]:
    return sorted(id_ for (id_,) in session.flushed_rows_of("v"))


def _checkpoints(session: AttachedSession) -> Path:
    """The folder of the source's checkpoints, one per run."""
    (found,) = Path(session.warehouse, "checkpoints").glob("ingest-*")
    return found


def _ending(session: AttachedSession) -> Any:
    """The resources that remain of the source's last run in this process."""
    owner: Any = session.attached._runtime.owner
    return next(iter(owner._reconciler._stopped_readers.values()), None)


@pytest.mark.long
def test_a_source_that_is_paused_again_has_read_nothing(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(session, broker, topic_name, 3)
    may_go_on = threading.Event()
    make: Callable[..., None] = make_points

    def held_up(*arguments: Any) -> None:
        assert may_go_on.wait(60)
        make(*arguments)

    monkeypatch.setattr(rewinding, "make_points", held_up)
    try:
        session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO EARLIEST", "SET statement_timeout = '1s'")
        session.run("RESUME SOURCE s")
        wait_until(lambda: _ending(session).prepared is not None, "its next run is prepared")
        early = _ending(session).prepared.result().early
        # It has planned its first batch, whose entry exists already, and waits.
        planned = _checkpoints(session) / str(early.run) / "offsets" / "0"
        wait_until(planned.exists, "its first batch is planned")
        assert early.query.isActive
        session.run("PAUSE SOURCE s")
        wait_until(lambda: not early.query.isActive, "its query has ended")
        assert _ending(session).prepared is None
        assert early.query.exception() is None
    finally:
        may_go_on.set()
    session.run("SET statement_timeout = '60s'", "RESUME SOURCE s")
    assert _ids(session) == [0, 0, 1, 1, 2, 2]
    produce_json(broker.bootstrap, topic_name, [{"id": 3}])
    assert _ids(session) == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.long
def test_what_a_killed_process_has_started_for_a_run_is_begun_again(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    _create(session, broker, topic_name, 10)
    session.run("PAUSE SOURCE s")
    session.detach()
    (last,) = _checkpoints(session).iterdir()
    # A planned batch of the next run: up to the tenth record.
    left = last.with_name(str(int(last.name) + 1))
    shutil.copytree(last, left)
    for file in (left / "commits").iterdir():
        file.unlink()
    assert [file.name for file in (left / "offsets").iterdir()] == ["0"]
    produce_json(broker.bootstrap, topic_name, [{"id": number} for number in range(10, 40)])
    again = AttachedSession(session.spark, session.warehouse)
    again.allow_unsafe()
    again.run("INJECT SOURCE OFFSETS s TO OFFSET 20", "RESUME SOURCE s")
    assert _ids(again) == [*range(10), *range(20, 40)]
    # If it were continued, that batch would fail, and the repeated records would depend on its end.
    job = again.job("s")
    assert (job.run, job.restarts) == (int(left.name), 0)
