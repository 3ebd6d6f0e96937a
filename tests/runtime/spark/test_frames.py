"""Every column that a plan can show has a type that a frame supports."""

from __future__ import annotations

import re
from pathlib import Path

import rw_sql.plan
from rw_sql.runtime.spark.frames import _TYPES


def test_every_type_of_a_shown_column_is_known() -> None:
    texts = [file.read_text(encoding="utf-8") for file in Path(rw_sql.plan.__file__).parent.rglob("*.py")]
    shown = {kind for text in texts for kind in re.findall(r'^\s*\(?\("\w+", "([A-Z]+)"\)', text, re.MULTILINE)}
    shown |= {kind for text in texts for kind in re.findall(r', \("\w+", "([A-Z]+)"\)', text)}
    assert {"STRING", "BIGINT", "DOUBLE"} <= shown
    # BINARY is the type of a hidden column of logs, which no plan shows.
    assert shown - {"BINARY"} <= _TYPES.keys()
