"""The target of a sink with exactly-once delivery is deleted, and perhaps created again by somebody else."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import produce_json, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.parametrize("is_paused", [False, True], ids=["running", "paused"])
def test_a_sink_does_not_continue_in_another_table(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, tmp_path: Path, is_paused: bool
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    target = tmp_path / "target"
    made = f"CREATE SINK archive FROM s WITH (connector = 'deltalake', location = '{target}')"

    def send(*ids: int) -> None:
        produce_json(broker.bootstrap, topic_name, [{"id": id_} for id_ in ids])

    def ids() -> list[int]:
        return sorted(row["id"] for row in DeltaTable(str(target)).to_pyarrow_table().to_pylist())

    send(1)
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        made,
        "FLUSH",
    )
    send(2)
    session.run("FLUSH")
    assert ids() == [1, 2]
    if is_paused:
        session.run("PAUSE SINK archive")
    shutil.rmtree(target)
    for _ in range(0 if is_paused else 20):  # more commits than the sink has made
        write_deltalake(str(target), pa.table({"id": pa.array([100], pa.int32())}), mode="append")
    send(3)
    if is_paused:
        session.run("RESUME SINK archive")
    wait_until(lambda: session.job("archive").reason.startswith("REPLACED"), "the sink has noticed")
    job = session.job("archive")
    assert job.state == "STALLED"
    assert job.reason.endswith(
        "the target was deleted or created again: DROP SINK archive and create it again, which writes all rows of its "
        "input; to write only the new rows, create it WITH (snapshot = 'false')"
    )
    if is_paused:
        assert not target.exists()
    else:
        assert ids() == [100] * 20
    session.run("DROP SINK archive", made, "FLUSH")
    assert [id_ for id_ in ids() if id_ != 100] == [1, 2, 3]


def test_a_sink_does_not_continue_in_an_older_copy(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    target, copy = tmp_path / "target", tmp_path / "copy"

    def send(id_: int) -> None:
        produce_json(broker.bootstrap, topic_name, [{"id": id_}])
        session.run("FLUSH")

    def ids() -> list[int]:
        return sorted(row["id"] for row in DeltaTable(str(target)).to_pyarrow_table().to_pylist())

    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        f"CREATE SINK few AS SELECT id FROM s WHERE id < 100 WITH (connector = 'deltalake', location = '{target}', "
        "type = 'append-only')",
    )
    send(1)
    # A batch without rows leaves no mark in the target.
    send(200)
    session.run("PAUSE SINK few", "RESUME SINK few")
    send(2)
    assert ids() == [1, 2]
    shutil.copytree(target, copy)
    send(3)
    send(200)
    session.run("PAUSE SINK few")
    assert ids() == [1, 2, 3]
    shutil.rmtree(target)
    shutil.copytree(copy, target)
    session.run("RESUME SINK few")
    wait_until(lambda: session.job("few").reason.startswith("REPLACED"), "the sink has noticed")
    assert (
        "the target was replaced by an older copy of it: DROP SINK few and create it again" in session.job("few").reason
    )
    assert ids() == [1, 2]
