"""Asks Kafka brokers for topic ids again and again, over one connection."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rw_sql.connectors.kafka_admin import BrokerAdmin, BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT_SECONDS = 10.0


class TopicWatch:
    """The topic ids of a cluster, asked for before a batch is committed. One request each time, about a millisecond."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._admin: BrokerAdmin | None = None

    def incarnations(self, topics: Sequence[str]) -> dict[str, str | None]:
        """The id each topic has now; a topic that is gone is left out. Raises OSError where no broker answers."""
        try:
            if self._admin is None:
                self._admin = BrokerAdmin(self._properties, timeout=_TIMEOUT_SECONDS)
            self._admin.renew(time.monotonic() + _TIMEOUT_SECONDS)
            found = self._admin.topic_ids(topics)
        except BrokerError as error:
            self.close()
            raise ConnectionError(str(error)) from error
        return found

    def close(self) -> None:
        """Lets the connection go."""
        self._admin = None
