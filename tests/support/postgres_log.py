"""The changes in the log of a source over PostgreSQL, and the changes that PostgreSQL's own ``test_decoding`` shows."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from rw_sql.connectors.postgres_cdc.connection import connect
from rw_sql.runtime.decoding.decoder import BATCH, OFFSET
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Change = tuple[str, str, str, str]
"""A change: the table, the kind of the change, the key before the change (if the change contains this key), and a
digest of the row after the change."""

_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "TRUNCATE": "t"}
_INDEX = "_rw_index"
_CHANGE = re.compile(r"table ([^:]+): (INSERT|UPDATE|DELETE|TRUNCATE): (.*)", re.DOTALL)
_VALUE = re.compile(r"(\w+)\[[^]]+\]:(?:'((?:[^']|'')*)'|(\S+))")
_UNSENT = "unchanged-toast-datum"


def logged_changes(path: str) -> list[list[Change]]:
    """The transactions of a source's log; see :func:`transactions`."""
    columns = ["table_name", "op", "key", "row", OFFSET, _INDEX, BATCH]
    table = DeltaTable(path).to_pyarrow_table(columns=columns).rename_columns({"table_name": "table"})
    table = table.filter(pc.is_in(table["op"], value_set=pa.array(_OPS.values())))
    table = table.sort_by([(OFFSET, "ascending"), (_INDEX, "ascending")])
    return transactions(row for batch in table.to_batches(max_chunksize=10_000) for row in batch.to_pylist())


def transactions(rows: Iterable[Mapping[str, Any]]) -> list[list[Change]]:
    """The changes of each transaction, from rows in the order of their positions.

    Raises AssertionError if a position occurs twice, if a transaction is in two batches, or if a later batch has an
    earlier position.
    """
    made: list[list[Change]] = []
    last = (0, -1, -1)
    for row in rows:
        place = (row[OFFSET], row[_INDEX], row.get(BATCH, -1))
        assert place[:2] > last[:2], f"position {place[0]}, index {place[1]} is behind {last[0]}, {last[1]}"
        assert place[2] >= last[2], f"position {place[0]} is in batch {place[2]}, an earlier one in batch {last[2]}"
        if place[0] > last[0]:
            made.append([])
        else:
            assert place[2] == last[2], f"the transaction {place[0]} is in two batches"
        last = place
        key, new = (None if row[name] is None else json.loads(row[name]) for name in ("key", "row"))
        made[-1].append(_change(row["table"], row["op"], key, new))
    return made


def decoded_changes(
    options: Mapping[str, str], slot: str, names: Mapping[str, str], keys: Mapping[str, tuple[str, ...]]
) -> Iterator[list[Change]]:
    """The transactions that a slot of ``test_decoding`` shows, without the transactions that change none of the tables.

    ``names`` maps each table and part of a table to the table of the log; ``keys`` has the key of each of these.
    """
    made: list[Change] = []
    with connect(options, LAST_RESORT_SECONDS) as connection:
        connection.autocommit = False
        with connection.cursor(name="changes") as cursor:
            cursor.execute("SELECT data FROM pg_logical_slot_peek_changes(%s, NULL, NULL)", [slot])
            for (line,) in cursor:
                if line.startswith("COMMIT"):
                    if made:
                        yield made
                    made = []
                elif (found := _CHANGE.match(line)) is not None:
                    # TRUNCATE names a partitioned table and each of its parts.
                    for name in dict.fromkeys(names[each] for each in found[1].split(", ") if each in names):
                        made.append(_decoded(name, keys[name], found[2], found[3]))


def _decoded(table: str, key: tuple[str, ...], what: str, text: str) -> Change:
    """A change from the text of ``test_decoding``. As in the log, an update has a key only if the update changed the
    key. A value that is not sent is absent unless the old row has this value."""
    before, is_both, after = text.partition(" new-tuple: ")
    old = _values(before) if is_both or what == "DELETE" else {}
    if what in ("DELETE", "TRUNCATE"):
        return _change(table, _OPS[what], {name: old[name] for name in key} if old else None, None)
    new = _values(after if is_both else before)
    new = {name: old.get(name, value) if value == _UNSENT else value for name, value in new.items()}
    has_moved = bool(old) and any(old[name] != new[name] for name in key)
    moved = {name: old[name] for name in key} if has_moved else None
    return _change(table, _OPS[what], moved, {name: value for name, value in new.items() if value != _UNSENT})


def _values(text: str) -> dict[str, str | None]:
    made: dict[str, str | None] = {}
    for name, quoted, plain in _VALUE.findall(text):
        made[name] = (None if plain == "null" else plain) if plain else quoted.replace("''", "'")
    return made


def _change(table: str, op: str, key: Mapping[str, Any] | None, row: Mapping[str, Any] | None) -> Change:
    digest = "" if row is None else blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=12).hexdigest()
    return table, op, "" if key is None else json.dumps(key, sort_keys=True), digest
