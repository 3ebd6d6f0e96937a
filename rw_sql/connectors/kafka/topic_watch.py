"""Polls Kafka brokers for topic ids over one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.kafka.admin import BrokerError
from rw_sql.connectors.kafka.client_pool import with_client

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT_SECONDS = 10.0


class TopicWatch:
    """Reads topic ids. Jobs use the watch before each commit of a batch, because one request takes only about a
    millisecond."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def incarnations(self, topics: Sequence[str]) -> dict[str, str | None]:
        """The current id of each topic; deleted topics are missing. Raises OSError if no broker responds."""
        try:
            return with_client(self._properties, lambda admin: admin.topic_ids(topics), timeout=_TIMEOUT_SECONDS)
        except BrokerError as error:
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        """Does nothing: the pool closes idle connections."""
