"""Frames with a statement's rows: every column that a plan can show has a type that a frame supports."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

import rw_sql.plan
from rw_sql.plan.result.plan import Table
from rw_sql.runtime.spark.frames import _TYPES, Answer, arrow_of


def test_every_type_of_a_shown_column_is_known() -> None:
    texts = [file.read_text(encoding="utf-8") for file in Path(rw_sql.plan.__file__).parent.rglob("*.py")]
    shown = {kind for text in texts for kind in re.findall(r'^\s*\(?\("\w+", "([A-Z]+)"\)', text, re.MULTILINE)}
    shown |= {kind for text in texts for kind in re.findall(r', \("\w+", "([A-Z]+)"\)', text)}
    assert {"STRING", "BIGINT", "DOUBLE"} <= shown
    # BINARY is the type of a hidden column of logs, which no plan shows.
    assert shown - {"BINARY"} <= _TYPES.keys()


def test_an_answer_is_made_by_every_version_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_spark_4_0(cls: type, jdf: Any, sql_ctx: Any) -> Any:
        made: Any = object.__new__(cls)
        made.__init__(jdf, sql_ctx)
        return made

    monkeypatch.setattr(ClassicDataFrame, "__new__", of_spark_4_0)
    session: Any = SimpleNamespace(_sc=None)
    assert Answer(session, *arrow_of(Table(columns=(("n", "BIGINT"),), rows=((1,),)))).columns == ["n"]
