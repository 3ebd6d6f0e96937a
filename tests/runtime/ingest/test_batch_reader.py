"""Which ranges of a batch a run must compare with the terms of their logs before it commits the batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.connectors.support.records.record_columns import RECORD_SCHEMA
from rw_sql.runtime.ingest.batch_reader import BatchPlan, BatchReader
from rw_sql.runtime.jobs.log_terms import LogTerms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass
class Fetcher:
    """A fetcher that returns records at given offsets, each split's records in one term."""

    offsets: Mapping[str, Sequence[int]]

    def fetch(self, ranges: Mapping[str, tuple[int, int]]) -> pa.Table:
        rows = [
            {"_rw_split": split, "_rw_offset": at}
            for split, (start, end) in ranges.items()
            for at in self.offsets.get(split, ())
            if start <= at < end
        ]
        return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)


@dataclass
class FetcherWithTerms(Fetcher):
    """The same with the terms of the records."""

    terms: Mapping[str, int] = field(default_factory=dict)


def read(fetcher: Fetcher, moved: dict[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    """The ranges of a batch that are not proved, of a source whose splits were in term 5 before."""
    reader = BatchReader(
        warehouse=cast("Any", None),
        opening=cast("Any", SimpleNamespace(fetcher=fetcher, kind=KafkaConnector())),
        lives={},
        schema=pa.schema([]),
        terms=LogTerms("s", cast("Any", None), {}, dict.fromkeys(moved, 5)),
        decoder=cast("Any", None),
        arrow=cast("Any", SimpleNamespace(rows=lambda records, *_, **__: records)),
        schemas=None,
    )
    found = reader.read(BatchPlan(batch=0, moved=moved, expected=1, bucket=0, since={}), None)
    assert found.fetched is not None
    return found.unproved


def test_a_range_is_proved_by_a_record_at_its_last_offset() -> None:
    records = {"a": (3, 4), "b": (5,), "c": ()}
    fetcher = FetcherWithTerms(records, terms={"a": 5, "b": 5})
    moved = {"a": (3, 5), "b": (5, 7), "c": (8, 9)}
    assert read(fetcher, moved) == {"b": (5, 7), "c": (8, 9)}


@pytest.mark.parametrize("offsets", [(3, 4), ()])
def test_a_fetcher_without_terms_proves_nothing(offsets: tuple[int, ...]) -> None:
    assert read(Fetcher({"a": offsets}), {"a": (3, 5)}) == {"a": (3, 5)}
