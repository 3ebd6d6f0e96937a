"""Writes large batches of records whose schemas are in a registry. Normally, the records are read only once.

A large batch is first decoded with the schemas known so far. A record with an unknown schema becomes an error row in
the written files. If the registry has this schema, the schema is fetched, and the batch is read and written again. The
second attempt is possible because the files of the first attempt are not committed yet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rw_sql.runtime.decoding.decoder import ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deltalake.transaction import AddAction, RemoveAction
    from pyspark.sql import DataFrame

    from rw_sql.runtime.decoding.registry.message_records import MessageRecords
    from rw_sql.runtime.decoding.registry.records import SchemaRecords
    from rw_sql.runtime.support.warehouse import Warehouse


class NewSchemasError(Exception):
    """Raised if a batch contains records with schemas that were not known when the batch was planned."""


def write_by_known_schemas(
    schemas: SchemaRecords | MessageRecords,
    warehouse: Warehouse,
    path: str,
    rows: Callable[[frozenset[bytes]], DataFrame],
    write: Callable[[DataFrame, Callable[[Sequence[AddAction | RemoveAction]], None]], None],
) -> None:
    """Decodes the batch's rows with the schemas that are known so far, and calls ``write`` with these rows. If the
    written files show that the registry has further schemas of the batch's records, decodes and writes the batch again
    with these schemas too.

    ``rows`` returns the batch's rows, decoded with the schemas of the given heads (see :class:`SparkBatch`). ``path``
    is the path of the table to which ``write`` adds rows. The second argument of ``write`` is a check of the written
    files, which ``write`` must call before the commit. Raises StalledError if the registry does not respond.
    """
    if not schemas.known_heads:
        schemas.add_versions()
    while True:
        heads = schemas.known_heads

        def check(actions: Sequence[AddAction | RemoveAction], heads: frozenset[bytes] = heads) -> None:
            if schemas.unknown_in(_errors(warehouse, path, actions)) - heads:
                raise NewSchemasError

        try:
            write(rows(heads), check)
        except NewSchemasError:
            continue
        return


def _errors(warehouse: Warehouse, path: str, actions: Sequence[AddAction | RemoveAction]) -> Iterator[str]:
    """The distinct errors of the rows in written files. Files without errors are not read."""
    for action in actions:
        counts = json.loads(getattr(action, "stats", None) or "{}")
        if counts.get("nullCount", {}).get(ERROR) == counts.get("numRecords", -1):
            continue
        with warehouse.files.open(f"{path}/{action.path}") as file:
            yield from filter(None, pq.read_table(file, columns=[ERROR])[ERROR].unique().to_pylist())
