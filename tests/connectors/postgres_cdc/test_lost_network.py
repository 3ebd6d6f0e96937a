"""A server that does not confirm what is sent to it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc import connection, stream
from tests.support.captured import read_on
from tests.support.lossy_relay import relay
from tests.support.postgres_changes import Replica, cdc_options

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres


def test_a_network_that_loses_every_packet_ends_a_reader(
    postgres: PostgresInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_UNANSWERED", {"tcp_user_timeout": "1000"})
    monkeypatch.setattr(stream, "STATUS_SECONDS", 0.2)
    table = f"public.t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    replica = Replica(cdc_options(postgres), [table])
    with relay(postgres.port) as (port, lose):
        address, replica.options = replica.options, replica.options | {"port": str(port)}
        replica.catch_up(postgres)
        lose()
        with pytest.raises(CaptureError) as caught:
            read_on(replica)
        assert caught.value.is_temporary
        replica.close()
    replica.options = address
    postgres.run(f"INSERT INTO {table} VALUES (1)")
    replica.catch_up(postgres)
    assert replica.differences() == {}
    replica.drop()
