"""The columns of records: Spark's DDL has the types of Arrow's schema."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rw_sql.connectors.nats import reader as nats
from rw_sql.connectors.pulsar import reader as pulsar
from rw_sql.connectors.support.records.record_columns import RECORD_SCHEMA, record_ddl, record_schema

SCHEMAS = {
    "all connectors": RECORD_SCHEMA,
    "offsets as text": record_schema(pa.string()),
    "nats": nats.SCHEMA,
    "pulsar": pulsar.SCHEMA,
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_the_ddl_has_the_types_of_the_arrow_schema(schema: pa.Schema) -> None:
    columns = [f"{field.name} {field.dataType.simpleString()}" for field in from_arrow_schema(schema)]
    assert record_ddl(schema).split(", ") == columns
