"""Standard output in an encoding that lacks characters of the output."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

from rich.text import Text

from rw_sql.cli.interface.standard_streams import usable_streams
from rw_sql.cli.terminal.output import console_for

if TYPE_CHECKING:
    import pytest


def test_characters_that_the_encoding_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="iso-8859-1"))
    with usable_streams():
        print("größe")
        console_for().print(Text("\u21bb rebuild übersicht"))
        sys.stdout.flush()
    assert written.getvalue() == "größe\n\\u21bb rebuild übersicht\n".encode("iso-8859-1")


def test_escaped_characters_leave_json_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"name": "größe € \U0001f600"}
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with usable_streams():
        print(json.dumps(named, ensure_ascii=False))
        sys.stdout.flush()
    assert json.loads(written.getvalue()) == named
