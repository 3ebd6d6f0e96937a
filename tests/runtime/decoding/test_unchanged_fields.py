"""Fields of a STRUCT that did not change: each keeps its value, and the fields beside it have the record's values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, decode
from tests.integration import json_reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GONE = '"__debezium_unavailable_value"'
COLUMNS = (
    'id INT PRIMARY KEY, addr STRUCT<zipcode VARCHAR, no INT, "Note" VARCHAR, deep STRUCT<body VARCHAR, tags INT[], '
    "n VARCHAR>>"
)
LONG = "1234567890123456789012345678901234567890123"

CASES: dict[str, tuple[Any, list[str]]] = {
    f'{{"zipcode":{GONE},"no":5,"Note":"x"}}': ((None, 5, "x", None), ["addr.zipcode"]),
    f'{{"zipCode":{GONE},"no":5,"Note":"x"}}': ((None, 5, "x", None), ["addr.zipcode"]),
    f'{{"zipCode":{GONE},"No":5,"note":1.10}}': ((None, 5, "1.10", None), ["addr.zipcode"]),
    f'{{"zipCode":{GONE},"no":5,"note":{LONG}}}': ((None, 5, LONG, None), ["addr.zipcode"]),
    f'{{"zipcode":"1","zipCode":{GONE},"no":4,"no":5}}': (("1", 5, None, None), []),
    f'{{"zipcode":{GONE},"no":4,"no":5}}': ((None, 5, None, None), ["addr.zipcode"]),
    f'{{"no":5,"Deep":{{"Body":{GONE},"Tags":[1,2],"N":2.50}}}}': (
        (None, 5, None, (None, [1, 2], "2.50")), ["addr.deep.body"]
    ),
    f'{{"No":5,"Deep":{{"body":"b","tags":[{GONE}]}},"NOTE":{GONE}}}': (
        (None, 5, None, ("b", None, None)), ["addr.Note", "addr.deep.tags"]
    ),
    f'{{"no":5,"DEEP":{GONE}}}': ((None, 5, None, None), ["addr.deep"]),
    f'[{{"zipcode":{GONE}}}]': ("is not of type STRUCT", []),
    f'{{"zipcode":{GONE},"No":"x"}}': ("is not of type STRUCT", []),
}  # fmt: skip


def test_fields_are_found_as_in_other_records(spark: SparkSession) -> None:
    statement = source_definition(
        f"CREATE SOURCE t ({COLUMNS}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        "FORMAT DEBEZIUM ENCODE JSON"
    )
    as_text = [json.dumps(value) for value in CASES if GONE in value]
    values = [*CASES, *as_text]
    wanted = [*CASES.values(), *(CASES[json.loads(value)] for value in as_text)]
    records = [
        ("t:0", at, b'{"id":1}', f'{{"op":"u","after":{{"id":1,"addr":{value}}}}}'.encode(), "0", None, None)
        for at, value in enumerate(values)
    ]
    frame = spark.createDataFrame(records, json_reference.RECORDS).coalesce(1)
    rows = decode(frame, statement, run=0, batch=0, bucket=0).orderBy("_rw_offset").collect()
    for value, (row, paths), found in zip(values, wanted, rows, strict=True):
        if isinstance(row, str):
            assert row in found[ERROR], value
        else:
            assert (found[ERROR], found.addr, sorted(found._rw_unchanged or [])) == (None, row, sorted(paths)), value
