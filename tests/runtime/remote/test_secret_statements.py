"""Which process runs CREATE SECRET and ALTER SECRET of a session without a JVM: values stay in the client."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.errors import SqlError
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.runtime.remote.remote_sessions import Client, Pair, request_names
from tests.support.stored_warehouse import KEY
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    made.server.start()
    yield made
    made.server.stop()


def bodies(pair: Pair) -> str:
    """All versions of all requests."""
    return json.dumps(DeltaTable(f"{pair.written.uri}/rw_catalog/runtime_requests").to_pyarrow_table().to_pylist())


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SECRET pw WITH (backend = 'env', name = 'KAFKA_PW')",
        "CREATE SECRET pw WITH (backend = 'env', name = 'KAFKA_PW') AS NULL",
        "EXPLAIN CREATE SECRET pw WITH (backend = 'env', name = 'KAFKA_PW')",
    ],
)
def test_the_owner_reads_a_value_that_is_stored_elsewhere(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Here, client and owner share the environment, so the request shows who runs the statement."""
    monkeypatch.setenv("KAFKA_PW", "hunter2")
    client = Client(pair.written.uri)
    assert client.run(text)
    assert len(request_names(pair)) == 1
    monkeypatch.delenv("KAFKA_PW")
    missing = text.replace("KAFKA_PW", "OTHER_PW").replace("SECRET pw", "SECRET other")
    assert client.error(missing).code == "RW412"
    assert len(request_names(pair)) == 2
    assert "hunter2" not in bodies(pair)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SECRET s WITH (backend = 'meta') AS 'hunter2'",
        "CREATE SECRET s WITH (backend = 'meta') AS hunter2",
        "CREATE SECRET s WITH (backend = 'env', name = 'N') AS 'hunter2'",
        "CREATE SECRET s WITH (backend = 'hashicorp_vault', addr = 'http://v', auth_token = 'hunter2')",
        "CREATE SECRET s WITH (backend = 'hashicorp_vault', addr = 'http://u:hunter2@v', path = 'p', field = 'f')",
        "EXPLAIN CREATE SECRET s WITH (backend = 'hashicorp_vault', tokn = 'hunter2')",
        "ALTER SECRET word AS 'hunter2'",
    ],
)
def test_a_value_stays_in_the_client_also_if_the_statement_is_wrong(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    client = Client(pair.written.uri)
    client.run("CREATE SECRET word WITH (backend = 'meta') AS 'a'")
    with suppress(SqlError):  # Some of the statements are wrong.
        client.run(text)
    assert request_names(pair) == []
