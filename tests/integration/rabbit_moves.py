"""Random moves of one source over two streams of a real RabbitMQ server, compared as ``nats_moves`` does."""

from __future__ import annotations

import json
import time

from rw_sql.connectors.rabbitmq.source import RabbitConnector, RabbitPartReader
from tests.integration.nats_moves import MovedStreams


class RabbitMovedStreams(MovedStreams):
    """Streams of RabbitMQ. Stored offsets of consumers leave holes in these streams. Messages are not removed."""

    connector = "rabbitmq"

    def _made_options(self) -> dict[str, str]:
        return {"url": self.server.url, "stream": ", ".join(self.streams)}

    def _create(self, stream: str) -> None:
        self.server.create(stream)

    def bounds(self) -> dict[str, tuple[int, int]]:
        """The first offset and the end of each stream, from the server."""
        splits = RabbitConnector().look(self.options).splits
        return {stream: (splits[stream].start, splits[stream].end) for stream in self.streams}

    def present(self, stream: str) -> list[int]:
        """The offsets of the stream's messages, from a separate subscription."""
        start, end = self.bounds()[stream]
        tables = RabbitPartReader().read(self.options, (stream, start, end))
        return [row["_rw_offset"] for table in tables for row in table.to_pylist()]

    def _fill(self) -> None:
        for stream in self.streams:
            value = json.dumps({"life": f"{stream}#{self.lives[stream]}"}).encode()
            # The messages are in chunks of one message and in chunks of several messages.
            self.server.publish(stream, [value] * self.random.randrange(1, 9))
            self.server.publish(stream, [value])
        self.times.append(int(time.time() * 1000))

    def _remove(self, *, with_unread: bool) -> None:
        if with_unread and self.random.random() < 0.5:
            self.server.store_offset(self.streams[1], "other", self.bounds()[self.streams[1]][1] - 1)

    def _make_group(self, stream: str, group: str, at: int) -> None:
        self.server.store_offset(stream, group, max(0, at - 1))
