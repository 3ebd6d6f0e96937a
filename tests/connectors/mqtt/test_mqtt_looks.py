"""The visit of a broker by which the MQTT connector finds out whether the broker answers. No broker runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.mqtt import session
from rw_sql.connectors.mqtt.source import MqttConnector

if TYPE_CHECKING:
    import pytest

OPTIONS = {"url": "tcp://broker", "topic": "t"}


def test_a_visit_has_an_identifier_that_begins_with_the_sources_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may refuse empty identifiers, or allow a user only those with a prefix; the source's own identifier
    would take the session from its reader."""
    visits: list[str] = []

    class Visitor(session.Session):
        def open(self, offset: int, timeout: float = 1.0) -> None:
            assert not self.is_listening
            visits.append(self.client_id)

        def close(self) -> None:
            pass

    monkeypatch.setattr(session, "Session", Visitor)
    kind = MqttConnector()
    for _ in range(2):
        assert kind.look({**OPTIONS, "client_id": "shop-orders"}).error is None
    assert all(visit.startswith("shop-orders_") for visit in visits)
    assert len(set(visits)) == 2
    assert kind.look({**OPTIONS, "client_prefix": "shop"}).error is None
    assert visits[-1].startswith("shop_")
