"""The interface of sink writers that can write a batch in several parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class PartWriter(Protocol):
    """A :class:`rw_sql.connectors.sink.SinkWriter` that can write a batch in parts, for batches that do not fit into
    memory."""

    def accepts_parts(self) -> bool:
        """Returns False if the target may refuse a part because of another part of the batch. If the result is False,
        the caller must write the whole batch with ``write``. This method raises no error: if the target does not
        respond, only the next write raises SinkError."""
        ...

    def write_part(self, rows: pa.Table, batch: int) -> None:
        """Writes a part of a batch. The batch counts as written only after ``write`` has written the last part.

        No other part of the batch has rows with the same keys. After a crash, all parts of the batch are written again.
        The batch may then be divided into different parts. Raises the same errors as ``write``.
        """
        ...
