"""Finds new messages in the streams that one run reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, Stretch
from rw_sql.connectors.rabbitmq import reader
from rw_sql.connectors.rabbitmq.client import RabbitError, StreamMissingError, address_of
from rw_sql.connectors.rabbitmq.names import stream_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.rabbitmq.client import Address

FULL_SECONDS = 2.0
"""While a stream has no new messages, the poller requests the stream's bounds only once in this time, in seconds. A
request for the bounds transfers a chunk. Between two such requests, the poller only asks for a chunk after the
position."""


@dataclass(slots=True)
class Poller:
    """Polls the streams of one run. Implements the protocol ``Stretches`` of the module ``range_stream``. Not
    thread-safe.

    ``quiet`` has an entry for each stream that had no messages after its position. The entry contains this position,
    and the time at which the poller will request the stream's bounds again.
    """

    quiet: dict[str, tuple[int, float]] = field(default_factory=dict)

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The range of unread messages of each stream.

        Raises OSError if a stream is missing, has lost unread messages, or ends before its position.
        """
        address = address_of(options)
        try:
            found = [self._stretch(address, split, state) for split, state in sorted(positions.items())]
        except StreamMissingError as error:
            raise OSError(f"MISSING stream {error}") from error
        except RabbitError as error:
            raise OSError(str(error)) from error
        return tuple(stretch for stretch in found if stretch is not None)

    def _stretch(self, address: Address, split: str, state: SplitState) -> Stretch | None:
        stream, offset, now = stream_of(split), state.offset, time.monotonic()
        at, until = self.quiet.get(split, (-1, 0.0))
        if at == offset and now < until and not reader.has_any_from(address, stream, offset, RESOLVE_TIMEOUT_SECONDS):
            return None
        bounds = reader.bounds_of(address, stream, RESOLVE_TIMEOUT_SECONDS)
        # Each of these errors ends the run. When the reader starts again, it makes the same checks and reports the
        # statement that fixes the problem.
        if state.incarnation is not None and bounds.birth not in (None, state.incarnation):
            raise OSError(
                f"RECREATED {split}: the stream's first message is from {bounds.birth}, but the first message of the "
                f"stream that was read was from {state.incarnation}"
            )
        if not bounds.is_empty and offset < bounds.start:
            raise OSError(f"EXPIRED {split}: its first message is {bounds.start}, after the position {offset}")
        if not bounds.is_empty and offset > bounds.end:
            raise OSError(f"AHEAD {split}: its end is {bounds.end}, before the position {offset}")
        if offset < bounds.end:
            self.quiet.pop(split, None)
            return Stretch(split=split, start=offset, end=bounds.end)
        self.quiet[split] = (offset, now + FULL_SECONDS)
        return None
