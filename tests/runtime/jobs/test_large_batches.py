"""From which number of records Spark's tasks decode a batch with Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rw_sql.runtime.jobs.arrow_batches import is_large

_FEW = pa.schema({"id": pa.int64(), "name": pa.string()})
_MANY = pa.schema({f"c{at}": pa.int64() for at in range(24)})
_NESTED = pa.schema({"rows": pa.list_(pa.struct({f"c{at}": pa.int64() for at in range(24)}))})
_WIDE = pa.schema({f"c{at}": pa.int64() for at in range(300)})


@pytest.mark.parametrize(
    ("schema", "most"), [(_FEW, 100_000), (_MANY, 25_000), (_NESTED, 25_000), (_WIDE, 20_000), (pa.schema({}), 100_000)]
)
def test_wide_records_are_fewer(schema: pa.Schema, most: int) -> None:
    assert not is_large(most, schema)
    assert is_large(most + 1, schema)
