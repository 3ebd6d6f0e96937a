"""A secret is encrypted only with the key that the process that runs the jobs has too."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.base import Upstream
from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.errors import SqlError
from rw_sql.metastore.records import PutObject, SourceRecord
from rw_sql.plan.lower import lower
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.support.secrets import KEY_FILE_VARIABLE, KEY_VARIABLE, read_secret
from rw_sql.syntax import parse_statement
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(32)).decode()


class SecretWarehouse:
    """A warehouse, and statements on its secrets from a process with any key."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written = WrittenWarehouse(folder)
        self._monkeypatch = monkeypatch
        monkeypatch.delenv(KEY_FILE_VARIABLE, raising=False)

    def run(self, text: str, key: str) -> str:
        """Runs a statement with a key; returns the text of the recorded operation."""
        self._monkeypatch.setenv(KEY_VARIABLE, key)
        context = self.written.context()
        snapshot = context.metastore.snapshot()
        plan = lower(parse_statement(text), snapshot, WarehouseInspector(context, snapshot))
        assert plan.operation is not None
        self.written.commit(*plan.operation.changes)
        return plan.operation.statement

    def refused(self, text: str, key: str) -> SqlError:
        """The error of a statement with a key."""
        with pytest.raises(SqlError) as caught:
            self.run(text, key)
        return caught.value

    def value(self, name: str, key: str) -> str:
        """The value of a secret, as a process with a key reads it."""
        self._monkeypatch.setenv(KEY_VARIABLE, key)
        record = self.written.metastore.snapshot().find("secret", name)
        assert record is not None
        return read_secret(record)


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SecretWarehouse:
    warehouse = SecretWarehouse(tmp_path / "w", monkeypatch)
    warehouse.run("CREATE SECRET pw WITH (backend = 'meta') AS 'one'", KEY)
    return warehouse


@pytest.mark.parametrize("text", ["ALTER SECRET pw AS 'two'", "CREATE SECRET pw2 WITH (backend = 'meta') AS 'two'"])
def test_a_secret_is_not_encrypted_with_a_key_that_decrypts_no_other(warehouse: SecretWarehouse, text: str) -> None:
    error = warehouse.refused(text, OTHER_KEY)
    assert error.code == "RW411"
    assert error.message == (
        'the key of this process is not the key of this warehouse: it does not decrypt secret "pw"'
    )
    assert error.hint == (
        "set RW_SQL_SECRET_KEY to the key that the process that runs the jobs has;"
        " if that key is lost, ALTER SECRET pw WITH (new_key = true) AS '…'"
    )
    assert warehouse.value("pw", KEY) == "one"
    warehouse.run(text, KEY)


@pytest.mark.parametrize("key", ["", "not base64!", base64.b64encode(b"short").decode()])
def test_the_hint_makes_no_new_key_for_a_warehouse_with_secrets(warehouse: SecretWarehouse, key: str) -> None:
    error = warehouse.refused("ALTER SECRET pw AS 'two'", key)
    assert (error.code, error.hint) == (
        "RW411",
        "set RW_SQL_SECRET_KEY to the key that the process that runs the jobs has",
    )
    with pytest.raises(SqlError) as caught:
        warehouse.value("pw", key)
    assert (caught.value.code, caught.value.hint) == (
        "RW411",
        "set RW_SQL_SECRET_KEY to the key that the secrets were encrypted with",
    )


def test_the_hint_makes_a_new_key_for_a_warehouse_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = SecretWarehouse(tmp_path / "w", monkeypatch)
    warehouse.run("CREATE SECRET other WITH (backend = 'file', path = '/dev/null')", "")
    error = warehouse.refused("CREATE SECRET pw WITH (backend = 'meta') AS 'one'", "")
    assert "openssl rand" in (error.hint or "")


def test_if_the_key_is_lost_the_secrets_get_new_values_with_a_new_key(warehouse: SecretWarehouse) -> None:
    warehouse.run("CREATE SECRET pw2 WITH (backend = 'meta') AS 'one'", KEY)
    assert "any of its 2 secrets" in warehouse.refused("ALTER SECRET pw AS 'two'", OTHER_KEY).message
    stored = warehouse.run("ALTER SECRET pw WITH (new_key = true) AS 'two'", OTHER_KEY)
    assert stored == "ALTER SECRET pw WITH (new_key = true) AS '…'"
    warehouse.run("ALTER SECRET pw2 AS 'two'", OTHER_KEY)
    assert [warehouse.value(name, OTHER_KEY) for name in ("pw", "pw2")] == ["two", "two"]


def test_if_the_key_is_lost_a_source_with_two_secrets_is_checked_with_the_last(
    warehouse: SecretWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, one of its secrets cannot be read."""
    warehouse.run("CREATE SECRET pw2 WITH (backend = 'meta') AS 'one'", KEY)
    looks: list[dict[str, str]] = []

    def look(_: object, options: dict[str, str], **__: object) -> Upstream:
        looks.append(options)
        return Upstream()

    monkeypatch.setattr(KafkaConnector, "look", look)
    definition = (
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'a:1',"
        " properties.security.protocol = 'sasl_ssl', properties.sasl.mechanism = 'PLAIN',"
        " properties.sasl.username = 'u', properties.sasl.password = SECRET pw,"
        " properties.ssl.key.password = SECRET pw2) FORMAT PLAIN ENCODE JSON"
    )
    source, *_ = warehouse.written.source(7, "s", uses=(1, 2))
    assert isinstance(source, PutObject)
    assert isinstance(source.record, SourceRecord)
    warehouse.written.commit(PutObject(record=replace(source.record, connector="kafka", definition=definition)))
    warehouse.run("ALTER SECRET pw WITH (new_key = true) AS 'two'", OTHER_KEY)
    assert looks == []
    warehouse.run("ALTER SECRET pw2 WITH (new_key = true) AS 'three'", OTHER_KEY)
    (options,) = looks
    assert [options["properties.sasl.password"], options["properties.ssl.key.password"]] == ["two", "three"]


def test_a_secret_with_another_key_gets_the_key_of_the_others(warehouse: SecretWarehouse) -> None:
    warehouse.run("CREATE SECRET pw2 WITH (backend = 'meta') AS 'one'", KEY)
    warehouse.run("ALTER SECRET pw WITH (new_key = true) AS 'two'", OTHER_KEY)
    warehouse.run("ALTER SECRET pw AS 'three'", KEY)
    assert warehouse.value("pw", KEY) == "three"


@pytest.mark.parametrize("options", ["new_key = false", "backend = 'meta'", "new_key = true, backend = 'meta'"])
def test_alter_secret_accepts_no_other_option(warehouse: SecretWarehouse, options: str) -> None:
    assert warehouse.refused(f"ALTER SECRET pw WITH ({options}) AS 'two'", KEY).hint == (
        "omit WITH: ALTER SECRET … AS '…'"
    )
