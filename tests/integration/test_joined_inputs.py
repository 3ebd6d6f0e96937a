"""A view that joins a Kafka-Avro table, a NATS stream and an Iceberg table equals its batch query after moves."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.integration.joined_inputs import JoinedInputs

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.cli.servers.schema_registry import RegistryInfo
    from tests.integration.attached import AttachedSession
    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.registry, pytest.mark.nats, pytest.mark.long]


@pytest.mark.usefixtures("quick_discovery")
def test_a_join_of_three_upstreams_equals_its_batch_query(
    session: AttachedSession,
    broker: BrokerInfo,
    schema_registry: RegistryInfo,
    nats_server: NatsServer,
    tmp_path: Path,
    seed: int,
) -> None:
    session.allow_unsafe()
    joined = JoinedInputs(
        session,
        seed=seed,
        bootstrap=broker.bootstrap,
        registry=schema_registry.url,
        nats=nats_server,
        folder=tmp_path,
        name=f"join-{uuid4().hex[:8]}",
    )
    facts = joined.run(moves=3, steps=12)
    assert facts["moves"] == 3
    joined.drop()
