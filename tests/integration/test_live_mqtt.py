"""MQTT topics as sources in a live session: what is read, a broker that is away, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from tests.integration.attached import wait_until
from tests.support.mqtt_broker import mqtt_running

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.mqtt]


def test_a_broker_that_is_away_and_back(session: AttachedSession) -> None:
    session.allow_unsafe()
    with mqtt_running() as broker:
        session.run(
            "CREATE SOURCE q (id INT) INCLUDE topic AS topic INCLUDE offset AS seq INCLUDE partition AS part "
            f"INCLUDE payload AS payload WITH (connector = 'mqtt', url = '{broker.url}', topic = 'q/+') "
            "FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW v AS SELECT id, topic, seq, part, payload FROM q",
        )
        # What was published before its first connection does not arrive.
        wait_until(lambda: session.job("q").state == "RUNNING", "it is connected")
        broker.publish("q/a", [b'{"id": 1}', b"not JSON", b'{"id": 3}'])
        wait_until(lambda: len(session.rows_of("v")) == 2, "they are read")
        assert session.rows_of("v") == [
            (1, "q/a", "0", "q/a", '{"id": 1}'),
            (3, "q/a", "2", "q/a", '{"id": 3}'),
        ]
        assert session.sql("SELECT count(*) FROM `q$errors`")[0][0] == 1
        # A scan and a later view read the log.
        session.sql("CREATE MATERIALIZED VIEW later AS SELECT id FROM q")
        wait_until(lambda: session.rows_of("later") == [(1,), (3,)], "the log is read")
        assert session.sql("SELECT count(*) FROM q")[0][0] == 2
        assert [row.status for row in session.sql("SHOW SOURCE SPLITS q")] == ["OK"]

        # While it is paused, the broker keeps the messages.
        session.sql("PAUSE SOURCE q")
        broker.publish("q/b", [b'{"id": 4}'] * 3)
        for move in (
            "INJECT SOURCE OFFSETS q TO EARLIEST",
            "RESET SOURCE SPLITS q WITH (FORGET_OFFSETS = true)",
            "REWIND SOURCE q TO OPERATION 1",
        ):
            with pytest.raises(SqlError, match="discards acknowledged messages"):
                session.sql(move)
        session.sql("RESUME SOURCE q")
        wait_until(lambda: session.sql("SELECT count(*) FROM v WHERE id = 4")[0][0] == 3, "they are read")

        # A broker that is away stalls the source; a persistent one loses nothing.
        broker.stop()
        wait_until(lambda: "connection refused" in (session.job("q").reason or ""), "the reason is shown")
        broker.start()
        wait_until(lambda: session.job("q").state == "RUNNING", "it is connected again")
        broker.publish("q/c", [b'{"id": 5}'])
        wait_until(lambda: session.sql("SELECT count(*) FROM v WHERE id = 5")[0][0] == 1, "it is read")
        assert session.sql("SELECT count(*) FROM v WHERE id = 4")[0][0] == 3
        session.sql("DROP SOURCE q CASCADE")


@pytest.mark.long
def test_the_example_of_its_page_runs(session: AttachedSession) -> None:
    with mqtt_running() as broker:
        example = connector("mqtt").spec.example.replace("tcp://localhost:1883", broker.url)
        session.run(*(text for text in example.split(";") if text.strip()))
        wait_until(lambda: session.job("sensors").state == "RUNNING", "it is connected")
        broker.publish("sensors/k/temperature", [b'{"id": 1, "celsius": 20.5}', b'{"id": 1, "celsius": 21.5}'])
        broker.publish("sensors/k/humidity", [b'{"id": 2, "celsius": 1}'])
        wait_until(lambda: session.rows_of("warmest") == [(1, 21.5)], "they are read")
        assert session.rows_of("sensors", "topic") == [("sensors/k/temperature",)] * 2
        session.sql("DROP SOURCE sensors CASCADE")
