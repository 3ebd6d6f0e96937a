"""Strings that are longer than the 20,000,000 characters to which Spark limits JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from rw_sql.metastore.records import LivePosition
from rw_sql.model.definitions import cdc_rows
from rw_sql.runtime.decoding.cdc_rows import cdc_frame
from rw_sql.runtime.decoding.decoder import BATCH, BUCKET, OFFSET, RUN, SINCE, SPLIT
from rw_sql.runtime.decoding.json_text import END, all_members, is_whole, members, part, with_end
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateTable

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = pytest.mark.spark

LONG = 20_000_001


def json_object(word: Column, digits: Column) -> Column:
    return f.concat(f.lit('{"id": "7", "digits": "'), digits, f.lit('", "word": "'), word, f.lit('"}'))


def test_a_row_of_a_captured_table(spark: SparkSession) -> None:
    statement = parse_statement(
        "CREATE TABLE t (id INT PRIMARY KEY, digits CHARACTER VARYING, word CHARACTER VARYING) FROM pg TABLE 'public.t'"
    )
    assert isinstance(statement, CreateTable)
    row = json_object(f.repeat(f.lit("x"), LONG), f.repeat(f.lit("9"), 131_072))
    log = spark.range(1).select(
        f.lit("shop").alias(SPLIT),
        *(f.lit(1).cast("long").alias(name) for name in (OFFSET, RUN, BATCH, SINCE, BUCKET, "_rw_index")),
        f.lit("public.t").alias("table_name"),
        f.lit("r").alias("op"),
        f.lit(None).cast("string").alias("key"),
        row.alias("row"),
        f.lit(None).cast("array<string>").alias("_rw_unchanged"),
        f.lit(None).cast("timestamp").alias("timestamp"),
    )
    rows = cdc_frame(log, cdc_rows(statement), LivePosition(0, 0, 0))
    (found,) = rows.select("id", f.length("word"), f.length("digits"), "_rw_error").collect()
    assert tuple(found) == (7, LONG, 131_072, None)


def test_a_record_of_json(spark: SparkSession) -> None:
    raw = json_object(f.repeat(f.lit("x"), LONG), f.lit("9")).cast("binary")
    text = with_end(raw)
    read = members(text, "id STRING, word STRING")
    fields = all_members(text)
    nested = part(raw.cast("string"), "MAP<STRING, STRING>")
    (found,) = (
        spark.range(1)
        .select(is_whole(read), f.length(read["word"]), f.length(fields["word"]), f.length(nested["word"]), fields[END])
        .collect()
    )
    assert tuple(found) == (True, LONG, LONG, LONG, "true")
