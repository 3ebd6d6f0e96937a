"""Manages durable subscriptions. While a source has a subscription, the broker keeps the messages that the source has
not committed.

Without a subscription, a broker whose retention is 0 removes a ledger as soon as the broker begins the next ledger. The
source acknowledges only the entries before the entry with the last committed message. The broker therefore keeps that
message. If this message still exists when the source starts again, no later message was removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.pulsar.client import CLIENTS, TopicMissingError, close, partitions_of, repeated, told
from rw_sql.connectors.pulsar.ids import BEGINNING, EntryId, entry_of, place_of
from rw_sql.connectors.pulsar.names import full_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.pulsar.client import Address


class Subscriptions:
    """The subscriptions of one run, one per partition. One thread at a time uses these subscriptions."""

    def __init__(self, address: Address, name: str) -> None:
        self._address, self._name = address, name
        self._consumers: dict[str, Any] = {}

    def open(self, positions: Mapping[str, int]) -> None:
        """Subscribes to each partition, and sets the subscription to the entry that :func:`_held` returns for the
        position. Raises PulsarError."""
        import pulsar

        try:
            for split, position in positions.items():
                self._consumers[split] = _subscribed(self._address, split, self._name)
                if position != BEGINNING:
                    # If INJECT or UNDO moved the position backwards, the subscription also keeps the messages after the
                    # new position that still exist.
                    held = _held(position)
                    self._seek(split, pulsar.MessageId(-1, held.ledger, held.entry, -1))
        except BaseException:
            self.close()
            raise

    @repeated
    def _seek(self, split: str, to: Any) -> None:
        with told(self._address):
            self._consumers[split].seek(to)

    def acknowledge(self, ends: Mapping[str, int]) -> None:
        """Acknowledges committed messages. Raises no error, because the next acknowledgement or the next run
        acknowledges these messages again."""
        import pulsar

        for split, end in ends.items():
            consumer, at = self._consumers.get(split), _held(end)
            # If the last committed message is in its ledger's first entry, no earlier entry of the ledger exists.
            if consumer is not None and at.entry > 0:
                try:
                    consumer.acknowledge_cumulative(pulsar.MessageId(-1, at.ledger, at.entry - 1, -1))
                except pulsar.PulsarException:
                    continue

    def close(self) -> None:
        """Ends the connections. The broker keeps the subscriptions. Raises no error."""
        for consumer in self._consumers.values():
            close(consumer)
        self._consumers.clear()


def _held(position: int) -> EntryId:
    """The oldest entry that the subscription keeps at a position: the entry of the message before the position. If the
    position is the beginning of an entry, the id of that message is unknown. The result is then the entry at the
    position."""
    return entry_of(position - 1) if place_of(position) else entry_of(position)


def remove(address: Address, topic: str, name: str) -> None:
    """Removes a subscription from all partitions of a topic. Raises PulsarError."""
    try:
        for partition in partitions_of(address, full_name(topic)):
            consumer = _subscribed(address, partition, name)
            with told(address):
                consumer.unsubscribe()
    except TopicMissingError:
        return


@repeated
def _subscribed(address: Address, split: str, name: str) -> Any:
    import pulsar

    topic = split if "://" in split else full_name(split)
    with told(address):
        return CLIENTS.of(address).subscribe(
            topic,
            name,
            # With this type of subscription, a run can subscribe before the broker has noticed the end of a killed run.
            consumer_type=pulsar.ConsumerType.Failover,
            consumer_name="rw_sql",
            receiver_queue_size=1,
            initial_position=pulsar.InitialPosition.Earliest,
        )
