"""Merges one chunk of a refresh into the table, in one commit that writes only the rows that differ between the
upstream and the table."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.runtime.delta.job_output import JobOutput


def merge_chunk(output: JobOutput, rows: pa.Table, keys: Sequence[str], batch: int) -> None:
    """Writes the rows of a chunk as the batch ``batch``. If there are no rows, commits only the batch's number.

    Raises FencedError if another run has taken over.
    """
    if not rows.num_rows:
        output.mark(batch)
    elif not output.table.file_uris():
        output.append_rows(rows.filter(rows[KEEP]).drop_columns([KEEP]), batch)
    else:
        output.upsert_rows(rows, keys, batch)


def position_of(rows: pa.Table, keys: Sequence[str]) -> str | None:
    """The greatest key of a chunk, as a JSON object; None if the chunk has no rows."""
    if not rows.num_rows:
        return None
    last = pc.sort_indices(rows.select(list(keys)), sort_keys=[(key, "descending") for key in keys])[0].as_py()
    return json.dumps({key: _plain(rows[key][last]) for key in keys}, ensure_ascii=False)


def _plain(scalar: pa.Scalar[Any]) -> Any:
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        value = scalar.cast(pa.binary()).as_py()
    except (ValueError, OverflowError):  # A date or time after the year 9999, for which Python has no value.
        value = scalar.cast(pa.string()).as_py()
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, date | datetime | Decimal) else value
