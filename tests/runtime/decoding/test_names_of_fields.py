"""Names of fields that differ from a column's in case only, on a machine with Turkish settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from rw_sql.runtime.decoding.json_text import field_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def in_turkish(spark: SparkSession) -> Iterator[None]:
    """The JVM's default locale is that of Turkey, as with LANG=tr_TR.UTF-8."""
    jvm: Any = spark._jvm
    locale = jvm.java.util.Locale
    before = locale.getDefault()
    locale.setDefault(locale.forLanguageTag("tr-TR"))
    yield
    locale.setDefault(before)


@pytest.mark.spark
@pytest.mark.usefixtures("in_turkish")
def test_names_are_compared_alike_in_every_locale(spark: SparkSession) -> None:
    """The columns of ``CREATE SOURCE s (AÇIKLAMA VARCHAR, İL VARCHAR, id INT)``, as Python folds them."""
    names = ["AÇIKLAMA".lower(), "İL".lower(), "id"]
    texts = {"AÇIKLAMA": "one", "İL": "two", "İD": "not id"}
    fields = f.create_map(*(f.lit(word) for pair in texts.items() for word in pair))
    found = spark.range(1).select(*(field_of(fields, name, names) for name in names)).collect()
    assert [tuple(row) for row in found] == [("one", "two", None)]
