"""A development broker in its folder: odd paths, starts at the same time, and a start that was killed."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers import kafka_broker, schema_registry
from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from rw_sql.cli.servers.local_server import LocalServer
from rw_sql.cli.servers.schema_registry import start_registry
from rw_sql.runtime.support.processes import process_start

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.cli.servers.schema_registry import RegistryInfo


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the started servers. Nothing is started in truth."""
    names: list[str] = []
    both = threading.Barrier(2)

    def start(server: LocalServer, _: object, facts: Mapping[str, object], *__: object) -> int:
        names.append(server.name)
        known = {"pid": os.getpid(), "started": process_start(os.getpid()), **facts}
        try:
            both.wait(0.2)  # Another start that is not kept waiting arrives here too.
        except threading.BrokenBarrierError:
            both.reset()
        (server.folder / server.file).write_text(json.dumps(known), encoding="utf-8")
        return os.getpid()

    def format_(_: object, home: Path, cluster_id: str, __: object) -> None:
        (home / "data").mkdir(exist_ok=True)
        (home / "data" / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\n", encoding="utf-8")

    monkeypatch.setattr(LocalServer, "start", start)
    monkeypatch.setattr(kafka_broker, "_format", format_)
    monkeypatch.setattr(kafka_broker, "_java", lambda: ["java"])
    monkeypatch.setattr(kafka_broker, "kafka_class_path", lambda: "")
    monkeypatch.setattr(schema_registry, "java_program", lambda: "java")
    monkeypatch.setattr(schema_registry, "registry_runner", lambda: "runner")
    return names


def test_two_starts_at_once_give_one_server(tmp_path: Path, started: list[str]) -> None:
    def broker(_: int) -> BrokerInfo:
        return start_broker(tmp_path / "broker", port=0)

    def registry(_: int) -> RegistryInfo:
        return start_registry(tmp_path / "registry", port=0)

    with ThreadPoolExecutor() as threads:
        first, second = threads.map(broker, range(2))
        assert first == second
        assert len(set(threads.map(registry, range(2)))) == 1
    assert started == ["broker", "registry"]
    meta = (tmp_path / "broker" / "data" / "meta.properties").read_text(encoding="utf-8")
    assert f"cluster.id={first.cluster_id}" in meta


@pytest.mark.parametrize("known", [None, {"cluster_id": "of-another-start", "port": 9092}])
def test_a_broker_has_the_cluster_id_of_its_data(
    tmp_path: Path, started: list[str], known: Mapping[str, object] | None
) -> None:
    """A start was killed before it stored its facts, or two starts stored different ones."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("#Kafka\ncluster.id=of-the-data\n", encoding="utf-8")
    if known is not None:
        facts = {"pid": 2**22 + 1, "started": "1", "bootstrap": "", "folder": "", **known}
        (tmp_path / "broker.json").write_text(json.dumps(facts), encoding="utf-8")
    assert start_broker(tmp_path, port=0).cluster_id == "of-the-data"
    assert started == ["broker"]


@pytest.mark.kafka
def test_a_broker_keeps_its_data_in_its_folder_whatever_the_path(tmp_path: Path) -> None:
    folder = tmp_path / "it's a, b%20#c?é"
    started = start_broker(folder, port=0)
    try:
        assert start_broker(folder, port=0) == started
        assert (folder / "data" / "meta.properties").is_file()
        assert (folder / "broker.log").is_file()
        assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    finally:
        stop_broker(folder)
