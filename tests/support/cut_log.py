"""Removes the newest records from the log of a partition, as an unclean leader election or a lost disk does.

No other test may use the broker, because this module stops and restarts the broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

_HEAD = 12
"""The number of bytes at the start of a record batch that the batch's length does not count: its first offset and the
length itself."""

_MADE_FROM_LOG = (".index", ".timeindex", ".txnindex", ".snapshot")


def cut_log(broker: BrokerInfo, topic: str, end: int, partition: int = 0) -> BrokerInfo:
    """Removes the records of a partition from ``offset`` on. The record at this offset must be the first of a batch.

    Stops the broker and starts it again. The partition keeps its topic id; its leader gets a new epoch.
    """
    stop_broker(broker.folder)
    data = Path(broker.folder) / "data"
    folder = data / f"{topic}-{partition}"
    (log,) = folder.glob("*.log")
    content = log.read_bytes()
    at = 0
    while at < len(content) and int.from_bytes(content[at : at + 8], "big") < end:
        at += _HEAD + int.from_bytes(content[at + 8 : at + _HEAD], "big")
    assert at < len(content), f"no record at {end}"
    assert int.from_bytes(content[at : at + 8], "big") == end, f"{end} is inside a batch"
    log.write_bytes(content[:at])
    for file in folder.iterdir():
        if file.suffix in _MADE_FROM_LOG:
            file.unlink()
    # Without these, the broker examines the whole log.
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).unlink(missing_ok=True)
    return start_broker(broker.folder, port=0)
