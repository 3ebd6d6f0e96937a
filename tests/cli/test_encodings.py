"""Files in the forms that editors write: byte-order marks, other encodings, line breaks, invisible characters."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.checking.check import run_check
from rw_sql.cli.formatting.command import run_fmt
from rw_sql.cli.servers.command import records_of
from rw_sql.cli.shell.prompt import is_complete
from rw_sql.cli.text_input import read_text
from rw_sql.errors import SqlError
from rw_sql.metastore import Snapshot, catalog_from_json, catalog_to_json
from rw_sql.model.offset_files import read_offsets
from rw_sql.plan.deploy.plan_file import from_json, saved_plan, to_json
from rw_sql.runtime.support.text_files import read_text_file
from rw_sql.syntax import could_be_ours, parse_script, parse_statement, split_script

if TYPE_CHECKING:
    from pathlib import Path

MARK = "\ufeff"
SCRIPT = "create   source s (v int) with (connector='datagen');\nselect   1;\npause source s;\n"
FORMATTED = "CREATE SOURCE s (v INT) WITH (connector = 'datagen');\nSELECT 1;\nPAUSE SOURCE s;\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sql"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", MARK])
def test_fmt_keeps_the_mark_and_the_line_ends(path: Path, mark: str, end: str) -> None:
    path.write_bytes((mark + SCRIPT.replace("\n", end)).encode())
    assert run_fmt([str(path)], check=True) == 1
    assert run_fmt([str(path)]) == 0
    assert path.read_bytes() == (mark + FORMATTED.replace("\n", end)).encode()
    assert run_fmt([str(path)], check=True) == 0


def test_fmt_keeps_line_ends_that_differ(path: Path) -> None:
    path.write_bytes(b"flush ;\r\n-- a\n/* b\r\n */ wait;\r\nselect '\n';\n")
    assert run_fmt([str(path)]) == 0
    assert path.read_bytes() == b"FLUSH ;\r\n-- a\n/* b\r\n */ WAIT;\r\nSELECT '\n';\n"


def test_fmt_of_standard_input_keeps_the_mark(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{MARK}flush ;\r\n".encode())))
    assert run_fmt(["-"]) == 0
    assert capsysbinary.readouterr().out == f"{MARK}FLUSH ;\r\n".encode()


def test_check_reads_behind_the_mark(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(f"{MARK}-- first\n{SCRIPT}", encoding="utf-8")
    assert run_check([str(path)], output="json") == 0
    kinds = [line.split('"kind": "')[1].split('"')[0] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["CREATE SOURCE", "spark", "PAUSE SOURCE"]


def test_a_mark_begins_any_statement_of_files_put_together() -> None:
    parts = split_script(f"{MARK}PAUSE SOURCE s;\n{MARK}\n{MARK}-- b\nSELECT 1;{MARK}FLUSH")
    assert [(part.text, part.line, part.column) for part in parts] == [
        ("PAUSE SOURCE s", 1, 1),
        ("SELECT 1", 4, 1),
        ("FLUSH", 4, 11),
    ]
    assert len(parse_script(f"{MARK}PAUSE SOURCE s;\n{MARK}/* b */ FLUSH;{MARK}WAIT")) == 3


def test_a_mark_before_a_statement_is_nothing() -> None:
    assert could_be_ours(f"{MARK}PAUSE SOURCE s")
    assert parse_statement(f"{MARK}PAUSE SOURCE s") == parse_statement("PAUSE SOURCE s")
    with pytest.raises(SqlError) as caught:
        parse_statement(f"{MARK}PAUSE SORCE s")
    assert (caught.value.line, caught.value.column) == (1, 7)
    assert "LINE 1: PAUSE SORCE s\n              ^^^^^" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "column", "name"),
    [
        ("PAUSE SOURCE\u200b s", 13, "U+200B ZERO WIDTH SPACE"),
        ("\u200bPAUSE SOURCE s", 1, "U+200B ZERO WIDTH SPACE"),
        ("PAUSE\u2060SOURCE s", 6, "U+2060 WORD JOINER"),
        ("DROP\ufeffSOURCE s", 5, "U+FEFF BYTE ORDER MARK"),
        ("DROP SOURCE s\0", 14, "U+0000 NUL"),
        ("CREATE MATERIALIZED VIEW m AS SELECT\u202e 1", 37, "U+202E RIGHT-TO-LEFT OVERRIDE"),
        ("SELECT\u200d 1", 7, "U+200D ZERO WIDTH JOINER"),
        ("SELECT '\u200b' AS a,\u00ad 1", 17, "U+00AD SOFT HYPHEN"),
    ],
)
def test_a_character_that_is_not_shown_is_named(
    path: Path, capsys: pytest.CaptureFixture[str], text: str, column: int, name: str
) -> None:
    path.write_text(f"{MARK}WAIT;\n{text};\n", encoding="utf-8")
    if "\0" not in text:  # which no file may hold
        for command in (run_check, run_fmt):
            assert command([str(path)]) == 1
            told = "".join(capsys.readouterr())
            assert f"RW101: the invisible character {name} is here" in told
            assert told.splitlines()[2].index("^") == len("LINE 2: ") + column - 1
    assert is_complete(f"{text};")
    if could_be_ours(text):
        with pytest.raises(SqlError, match=name.replace("+", r"\+")) as caught:
            parse_statement(text)
        assert caught.value.column == column


def test_strings_names_and_comments_hold_any_character() -> None:
    assert parse_statement('PAUSE SOURCE "s\u200b" /* \u200b */ -- \u200b') is not None


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u3000", "\t", "\f"])
def test_blanks_of_any_width_part_words(blank: str) -> None:
    assert parse_statement(f"PAUSE{blank}SOURCE{blank}s") == parse_statement("PAUSE SOURCE s")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("PAUSE SOURCE s;".encode("utf-16"), "it is not UTF-8 text: it begins with the byte-order mark of UTF-16"),
        (b"\xfe\xff\0W\0A", "it is not UTF-8 text: it begins with the byte-order mark of UTF-16"),
        ("WAIT;".encode("utf-32"), "it is not UTF-8 text: it begins with the byte-order mark of UTF-32"),
        ("WAIT;".encode("utf-16-le"), "it is not text, or it is UTF-16, byte 2 (line 1, byte 2 of it) is 0x00"),
        (b"WAIT;\nSELECT '\xe4';\n", "it is not UTF-8 text, byte 15 (line 2, byte 9 of it) is 0xE4"),
    ],
)
def test_another_encoding_is_refused(
    path: Path, capsys: pytest.CaptureFixture[str], content: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(content)
    for command in (run_check, run_fmt):
        assert command([str(path)]) == 2
        assert f'RW408: cannot read "{path}": {told}' in capsys.readouterr().err
    assert path.read_bytes() == content
    with pytest.raises(SqlError) as caught:
        read_text_file(str(path))
    assert caught.value.message == f"cannot read file {str(path)!r}: {told}"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(SqlError, match="RW408: cannot read standard input: "):
        read_text("-")


def test_fmt_refuses_a_text_that_is_no_statement(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("select 1;\npuase source s;\n")
    assert run_fmt([str(path)]) == 1
    assert "LINE 2: puase source s" in capsys.readouterr().err


def test_offsets_and_records_of_a_file_with_a_mark(path: Path) -> None:
    path.write_text(f'{MARK}{{"t:0": 3}}', encoding="utf-8")
    assert [entry.split for entry in read_offsets(read_text_file(str(path)), str(path)).entries] == ["t:0"]
    lines = f'{MARK}{{"id": 1}}\n{{"id": 2}}\n'.encode().splitlines(keepends=True)
    records = records_of(lines, file="f", key="id", partition_by=None, partitions=1)
    assert [(record.key, record.value) for record in records] == [(b"1", b'{"id": 1}'), (b"2", b'{"id": 2}')]


def test_a_catalog_and_a_plan_with_a_mark(path: Path) -> None:
    catalog = catalog_to_json(Snapshot())
    assert catalog_from_json(MARK + catalog, "f").epoch == catalog_from_json(catalog, "f").epoch
    plan = to_json(saved_plan(Snapshot(), "/srv/rw", ()))
    assert from_json(MARK + plan, str(path)) == from_json(plan, str(path))
