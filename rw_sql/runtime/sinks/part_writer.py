"""The interface of sink writers that can write a batch in several parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class PartWriter(Protocol):
    """A :class:`rw_sql.connectors.sink.SinkWriter` that writes a batch that is too large for the memory."""

    def accepts_parts(self) -> bool:
        """Returns False if the target may refuse a part because of another part of the batch. In this case, only
        ``write`` may be used for the batch. Raises no error. If the target does not respond, the next write raises
        SinkError."""
        ...

    def write_part(self, rows: pa.Table, batch: int) -> None:
        """Writes a part of a batch. The batch counts as written only after ``write`` has written the last part.

        No other part of the batch has rows with the same keys. After a crash, all parts are written again. The batch
        may then be divided in another way. Raises the same errors as ``write``.
        """
        ...
