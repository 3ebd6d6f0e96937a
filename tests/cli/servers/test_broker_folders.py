"""A development broker in a folder whose path means something else to Java, to Kafka's lists or to URIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker

if TYPE_CHECKING:
    from pathlib import Path


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
