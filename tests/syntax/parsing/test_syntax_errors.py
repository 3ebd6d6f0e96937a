"""Every wrong fixture is refused with the recorded text: code, sentence, line, caret, hint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rw_sql import errors
from rw_sql.errors import SqlError
from rw_sql.masking import masked
from rw_sql.syntax import parse_statement
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = sorted((FIXTURES / "syntax" / "errors").glob("*.sql"))


def blocks(path: Path) -> list[str]:
    """The wrong statements of a file, blank lines between them."""
    return [block.strip("\n") for block in path.read_text(encoding="utf-8").split("\n\n") if block.strip()]


def refusal(text: str) -> SqlError:
    """The error of a wrong statement."""
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    return caught.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_error_text(path: Path, recorded: Callable[[Path, str], None]) -> None:
    shown = []
    for text in blocks(path):
        error = refusal(text)
        assert error.line is not None, text
        shown.append(f"{text}\n{error.render()}\n")
    recorded(path.with_suffix(".txt"), "\n".join(shown))


def test_every_syntax_code_is_raised_by_a_fixture() -> None:
    known = {c.code for c in vars(errors).values() if isinstance(c, errors.ErrorCode) and c.code.startswith("RW1")}
    met = {refusal(text).code for path in FILES for text in blocks(path)}
    assert known <= met
    assert met <= known | {errors.UNSUPPORTED_TYPE.code}


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SECRET s WITH (backend = 'meta') AS 'hunter2' AND MORE",
        "create secret s with (backend = 'it''s') as 'hunter2' and more",
        "ALTER SECRET s AS 'hunter2",
        'ALTER SECRET s AS "hunter2" TWICE',
        "ALTER SECRET s\nAS hunter2 TWICE",
        "ALTER SECRET s AS $$a hunter2$$ TWICE",
        "ALTER SECRET s AS $x$ $$ hunter2",
        "ALTER SECRET s AS E'\\'hunter2\\'' TWICE",
        "CREATE SOURCE s WITH (properties.sasl.password = 'hunter2' AND)",
        "ALTER CONNECTION c SET (my.Secret.Token 'x', s3.secret.key = 'hunter2', ) ,",
        "ALTER SECRET pw AS 'pa'hunter2'",
        "ALTER SECRET pw AS 'it\\'s hunter2'",
        "ALTER SECRET pw AS 'pa' hunter2 'x",
        "CREATE SECRET pw WITH (backend = 'meta') 'hunter2'",
        "CREATE SECRET pw WITH (backend = 'meta') hunter2",
        "ALTER SECRET pw TO 'hunter2'",
        "ALTER SECRET pw TO hunter2",
        "ALTER SECRET pw = 'hunter2'",
        "ALTER SECRET pw SET 'hunter2'",
        "ALTER SECRET pw 'hunter2'",
        "ALTER SECRET pw hunter2",
        "ALTER SECRETS pw AS 'hunter2'",
        "ALTER SERCET pw AS 'hunter2'",
        "ALTRE SECRET pw AS 'hunter2'",
        "UPDATE SECRET pw SET 'hunter2'",
        "CREATE OR REPLACE SECRET pw WITH (backend = 'meta') AS 'hunter2'",
        "ALTER SECRET pw AS /* it's */ 'hunter2' TWICE",
        "CREATE SOURCE s WITH (properties.sasl.password = hunter2)",
        "CREATE SOURCE s WITH (properties.sasl.password = Hunter2.hunter2)",
        "CREATE SOURCE s WITH (password = SECRET 'hunter2')",
        "CREATE SOURCE s WITH (password = 'a' 'hunter2')",
        "CREATE SOURCE s WITH (password : 'hunter2')",
        "CREATE SOURCE s WITH (password => 'hunter2')",
        "CREATE SOURCE s WITH (password == 'hunter2')",
        "CREATE SOURCE s WITH (password = 'pa'hunter2')",
        "CREATE SOURCE s WITH (password = :'hunter2')",
        "CREATE SOURCE s WITH (password = a-hunter2)",
    ],
)
def test_no_secret_is_in_the_line_that_an_error_shows(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    told = caught.value.located(text).render()
    assert "LINE " in told
    assert "hunter2" not in told.lower()
    assert "hunter2" not in f"{caught.value!r} {caught.value.message} {caught.value.hint}".lower()
    assert len(masked(text)) == len(text)


@pytest.mark.parametrize("number", ["\u0663", "1\u0663", "\uff11", "1.\u0967", "1e\u0663"])
def test_digits_of_other_scripts_are_no_number(number: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(f"INJECT SOURCE OFFSETS s VALUES ('0' = {number})")
    assert caught.value.code == errors.SYNTAX_ERROR.code


@pytest.mark.parametrize(
    "text", ["DROP", "DROP SOURCE", "DROP MATERIALIZED", "PAUSE", "RESUME", "REBUILD", "SHOW CREATE"]
)
def test_an_example_names_no_existing_object(text: str) -> None:
    hint = refusal(text).hint or ""
    example = hint.partition("for example: ")[2]
    assert not example or re.search(r" a_[a-z]+$", example), hint
