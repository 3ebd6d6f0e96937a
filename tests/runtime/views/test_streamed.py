"""Batches without rows: a query that maps row to row does nothing for them, any other query runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rw_sql.metastore.records import Maintenance
from rw_sql.runtime.delta.job_output import SMALL_FILE_BYTES
from rw_sql.runtime.positions.planned_rows import Planned
from rw_sql.runtime.views.streamed import Streamed


@pytest.mark.parametrize(
    ("rows", "size", "is_by_row", "keys", "written"),
    [
        (0, 0, True, (), []),
        (0, 0, False, (), ["upsert"]),  # a watermark may have passed the ends of many windows
        (1, 1000, False, (), ["upsert"]),
        (0, 0, False, ("k",), ["rows"]),
        (1, 1000, True, (), ["rows"]),
        (None, 0, True, ("k",), ["upsert"]),  # nobody knows how many
        (10_000_000, 1000, True, ("k",), ["upsert"]),
        (100, SMALL_FILE_BYTES + 1, True, ("k",), ["upsert"]),  # few, but large
    ],
)
def test_what_a_batch_is_written_as(
    rows: int | None,
    size: int,
    is_by_row: bool,
    keys: tuple[str, ...],
    written: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []
    monkeypatch.setattr(Streamed, "planned", lambda self, batch: Planned(most=rows, size=size))
    monkeypatch.setattr(Streamed, "_write_rows", lambda self, frame, batch, expected: found.append("rows"))
    monkeypatch.setattr(Streamed, "_write_measured", lambda self, frame, batch: found.append("upsert"))
    given = SimpleNamespace(kind="source", is_changing=False)
    spec = SimpleNamespace(keys=keys, inputs=(given,), maintenance=Maintenance())
    run: Any = SimpleNamespace(readers=None, spec=spec)
    frame: Any = None
    Streamed(run, ("Project", "Filter") if is_by_row else None).write(frame, 3)
    assert found == written
