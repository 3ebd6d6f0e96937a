"""Variables and backslash commands: where they are recognized, their results, and the places of errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.syntax import parse_statement, split_script
from rw_sql.syntax.statements import CreateSource
from rw_sql.syntax.variables.expand import expand
from tests.conftest import FIXTURES, rendered

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
VARIABLES = {"n": "5", "who": "it's", "path": "a\\b", "T": "My Table", "plain": "orders", "v": "x"}


def refusal(text: str, read_file: Callable[[str], str] | None = None, file: str | None = None) -> SqlError:
    with pytest.raises(SqlError) as caught:
        expand(text, VARIABLES, read_file, file=file)
    return caught.value


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("SELECT :n", "SELECT 5"),
        ("SELECT (:n)", "SELECT (5)"),
        ("SELECT -:n+:n", "SELECT -5+5"),
        ("SELECT a=:n,:n", "SELECT a=5,5"),
        ("SELECT * FROM raw.:plain", "SELECT * FROM raw.orders"),
        ("SELECT :'n'", "SELECT '5'"),
        ("SELECT :'who'", "SELECT 'it''s'"),
        ("SELECT * FROM :plain", "SELECT * FROM orders"),
        ("SELECT :{?n}, :{?m}", "SELECT TRUE, FALSE"),
        # Text as Spark quotes it, and as our statements do.
        ("SELECT :'path'", "SELECT 'a\\\\b'"),
        ("CREATE SECRET s WITH (backend = 'meta') AS :'path'", "CREATE SECRET s WITH (backend = 'meta') AS 'a\\b'"),
        ('DROP SOURCE :"T"', 'DROP SOURCE "My Table"'),
        ('DROP SOURCE :"plain"', "DROP SOURCE orders"),
        ('SELECT * FROM :"T"', "SELECT * FROM `My Table`"),
        (
            'CREATE MATERIALIZED VIEW :"T" AS SELECT :"T", :\'path\' FROM s',
            "CREATE MATERIALIZED VIEW \"My Table\" AS SELECT `My Table`, 'a\\\\b' FROM s",
        ),
        (
            "CREATE SINK k AS SELECT :'path' FROM s WITH (connector = :'path')",
            "CREATE SINK k AS SELECT 'a\\\\b' FROM s WITH (connector = 'a\\b')",
        ),
        ('/* of ours */ DROP SOURCE -- it is\n:"T"', '/* of ours */ DROP SOURCE -- it is\n"My Table"'),
        # A value is not read again.
        (":stmt", ":n"),
        # A variable may decide whether the statement is rw_sql's or Spark's, and so the meaning of quotes.
        ("DROP :kind 'a\\'; SELECT :n", "DROP SOURCE 'a\\'; SELECT 5"),
        ("SELECT \\:n, '\\:n'", "SELECT :n, '\\:n'"),
    ],
)
def test_what_a_variable_becomes(written: str, becomes: str) -> None:
    assert expand(written, {**VARIABLES, "stmt": ":n", "kind": "SOURCE"}).text == becomes


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ':n :''n'' :\"n\"'",
        "SELECT 'it''s :n'",
        "SELECT 'a\\' :n'",
        "SELECT r'\\', x::INT",
        'SELECT ":n"',
        "SELECT `:n`",
        'DROP SOURCE "a:n"',
        "DROP SOURCE a -- :n\n",
        "SELECT 1 /* :n /* :n */ :n */",
        "CREATE SECRET s WITH (backend = 'meta') AS $$ :n $$",
        "CREATE SECRET s WITH (backend = 'meta') AS $x$ :n $$ :n $x$",
        "CREATE SECRET s WITH (backend = 'meta') AS E'\\' :n'",
        "SELECT x::n, (x)::n, 'x'::n",
        "SELECT raw:n, raw:n.v, raw[0]:v, f(x):v, `raw`:v",
        "SELECT a[1:n], a[n:n]",
        "CREATE SOURCE s (a STRUCT<n:INT, v: INT>)",
        "SELECT a : n, 12:n, :, ::, :=n",
        "ADD JAR ivy://org:n:v",
        "SELECT '10:n'",
    ],
)
def test_where_nothing_is_replaced(text: str) -> None:
    assert expand(text, VARIABLES).text == text


def test_what_an_array_slice_and_an_unset_variable_say() -> None:
    error = refusal("SELECT 1;\nSELECT a[:m]")
    assert (error.code, error.line, error.column) == ("RW250", 2, 10)
    assert error.hint == r"--var m=VALUE or \set m VALUE; \:m is not a variable"
    assert refusal("SELECT :whoo").hint == "did you mean :who?"


def test_set_unset_and_echo() -> None:
    text = (
        "\\set a 1\n"
        "\\set b 'it''s\\t' :a 'x y'\n"
        "\\set empty\n"
        "\\echo a is :a, b is :b\n"
        "SELECT :a, :'b', :'empty'\n"
        "  \\set a 2\n"
        ", :a;\n"
        "\\unset a\n"
        "\\echo :{?a}"
    )
    made = expand(text, {"a": "0", "c": "3"})
    assert made.text.split() == ["SELECT", "1,", "'it''s", "1x", "y',", "''", ",", "2;"]
    assert [echo.text for echo in made.echoes] == ["a is 1, b is it's\t1x y", "FALSE"]
    assert [echo.at <= made.text.index("SELECT") for echo in made.echoes] == [True, False]
    assert made.variables_after({"a": "0", "c": "3"}) == {"b": "it's\t1x y", "c": "3", "empty": ""}


def test_branches() -> None:
    text = (
        "\\if :{?prod}\n"
        "SELECT 'it\\'s', ':nothing' :nothing;\n"
        "\\if neither\n\\else\n\\endif\n"
        "\\elif :n\nSELECT n;\n"
        "\\else\nSELECT :nothing;\n"
        "\\endif\n"
        "SELECT last"
    )
    assert [part.text for part in split_script(expand(text, {"n": "on"}).text)] == ["SELECT n", "SELECT last"]
    with pytest.raises(SqlError, match="prod"):
        expand("\\if :prod\n\\endif")


def test_branches_inside_of_a_statement() -> None:
    text = "SELECT 1\n\\if :d\n, 'it\\'s; :n'\n\\endif\nFROM t; SELECT :n"
    for value, wanted in (("true", "SELECT 1 , 'it\\'s; :n' FROM t; SELECT 5"), ("0", "SELECT 1 FROM t; SELECT 5")):
        assert " ".join(expand(text, {"d": value, "n": "5"}).text.split()) == wanted


FILES = {
    "main.sql": "\\ir sub/a.sql\nSELECT :from_b;\n\\i sub/last.sql\n",
    "sub/a.sql": "\\ir b.sql\nSELECT 'a' -- no semicolon",
    "sub/b.sql": "\\set from_b 7\nDROP SOURCE x;\n",
    "sub/last.sql": "SELECT 8",
}


def read(path: str) -> str:
    if path not in FILES:
        raise SqlError(FILE_UNREADABLE, f'cannot read "{path}": No such file or directory')
    return FILES[path]


def test_a_block_of_spark_keeps_the_quotes_of_spark() -> None:
    r"""``SET`` alone would be read by rw_sql's rules, in which ``\'`` ends a string."""
    text = "\\set n 5\nBEGIN\n SELECT 1;\n SET a = 'it\\'s :n; ' || :'path';\nEND;\nSELECT :n;"
    assert expand(text, VARIABLES).text.endswith(
        "BEGIN\n SELECT 1;\n SET a = 'it\\'s :n; ' || 'a\\\\b';\nEND;\nSELECT 5;"
    )
    unread = "\\if false\nBEGIN\n SELECT 1;\n SET a = 'it\\'s ; ';\nEND;\n\\endif\nSELECT :n;"
    assert expand(unread, VARIABLES).text.strip() == "SELECT 5;"


def test_an_included_file_may_end_inside_no_block() -> None:
    files = {"a.sql": "BEGIN SELECT 1;", "b.sql": "BEGIN SELECT 1; END;"}
    texts = {name: expand(f"\\i {name}\nDROP SOURCE s;", VARIABLES, files.__getitem__).text for name in files}
    assert [part.text for part in split_script(texts["b.sql"])] == ["BEGIN SELECT 1; END", "DROP SOURCE s"]


def test_instructions_in_comments_have_variables_of_the_environment() -> None:
    text = "-- ${v}\n--  rw: renamed from ${v}_${n}\nDROP SOURCE ${v}; -- rw: ${n}\n/* -- rw: ${v} */"
    found = expand(text, {}, braced=VARIABLES)
    assert found.text == "-- ${v}\n--  rw: renamed from x_5\nDROP SOURCE x; -- rw: 5\n/* -- rw: ${v} */"
    assert expand(text, {}).text == text


def test_included_files() -> None:
    made = expand(FILES["main.sql"], None, read, file="main.sql")
    parts = split_script(made.text)
    assert [part.text for part in parts] == ["DROP SOURCE x", "SELECT 'a'", "SELECT 7", "SELECT 8"]
    places = [made.source(part.start, part.start + len(part.text)) for part in parts]
    assert [(origin.file, span.line, span.column) for origin, span in places] == [
        ("sub/b.sql", 2, 1),
        ("sub/a.sql", 2, 1),
        ("main.sql", 2, 1),
        ("sub/last.sql", 1, 1),
    ]


def test_an_error_points_into_the_file_as_it_is_written() -> None:
    text = "\ufeffSELECT 1;\n\\set kind SORCE\n  CREATE :kind s (a INT); SELECT 2"
    made = expand(text, file="a.sql")
    part = split_script(made.text)[1]
    with pytest.raises(SqlError) as caught:
        parse_statement(part.text)
    error = made.locate(caught.value.moved_into(made.text, part.start, part.line, part.column, None))
    assert (error.file, error.line, error.column) == ("a.sql", 3, 10)
    assert "LINE 3:   CREATE :kind s (a INT); SELECT 2\n                 ^^^^^" in error.render()


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("\\sett x 1", "there is no command \\sett", (1, 1)),
        ("\\! ls", "there is no command \\!", (1, 1)),
        ("SELECT 1;\n \\set", "the command needs the name of a variable", (2, 2)),
        ("\\set a-b 1", '"a-b" is not a valid name of a variable', (1, 6)),
        ("\\set a 'x", "a quoted argument starts here and does not end", (1, 8)),
        ("\\set a :nope", 'variable "nope" is not set', (1, 8)),
        ("\\if maybe\n\\endif", '"maybe" is neither true nor false', (1, 1)),
        ("\\if o\n\\endif", '"o" is neither true nor false', (1, 1)),
        ("\\if 1\nSELECT 1", "\\if starts here and does not end", (1, 1)),
        ("\\endif", "\\endif has no \\if before it", (1, 1)),
        ("\\if 1\n\\else\n\\elif 1\n\\endif", "\\elif comes after \\else", (3, 1)),
        ("\\i", "\\i takes one file", (1, 1)),
        ("SELECT 1\n\\i sub/b.sql", "\\i is inside a statement", (2, 1)),
        ("SELECT 1;\n\\i none.sql", 'cannot read "none.sql": No such file or directory', (2, 4)),
        ("\\i main.sql", '"main.sql" includes itself', (1, 4)),
    ],
)
def test_what_is_wrong(text: str, message: str, place: tuple[int, int]) -> None:
    error = refusal(text, read, "main.sql")
    assert (error.message, (error.line, error.column)) == (message, place)
    assert error.file == "main.sql"


def test_an_included_file_is_named_where_it_is_wrong() -> None:
    error = refusal("\\i x.sql", {"x.sql": "SELECT\n:nope"}.__getitem__, "main.sql")
    assert (error.file, error.line, error.column) == ("x.sql", 2, 1)


def test_all_errors_can_be_had() -> None:
    errors: list[SqlError] = []
    made = expand("SELECT :a;\n\\oops\nSELECT :b, :n;\n\\if 1\n", VARIABLES, on_error=errors.append)
    assert [error.line for error in errors] == [1, 2, 3, 4]
    assert [fault.error for fault in made.faults] == errors
    assert [part.text for part in split_script(made.text)] == ["SELECT :a", "SELECT :b, 5"]


def test_texts_of_errors(recorded: Callable[[Path, str], None]) -> None:
    texts = ["DROP SOURCE :whoo;", "\\sett who me\nFLUSH;"]
    recorded(FIXTURES / "errors" / "variables.txt", "\n".join(rendered(refusal(text)) for text in texts))


PIECES = st.sampled_from(
    [
        *(
            "'",
            '"',
            "`",
            "\\",
            ":",
            "::",
            "$$",
            "$t$",
            "--",
            "/*",
            "*/",
            "\n",
            ";",
            " ",
            "n",
            "v",
            "SELECT",
            "DROP SOURCE",
        ),
        *("CREATE SECRET s AS ", ":n", ":'v'", ':"n"', ":{?v}", "E'", "r'", "a", "1", "[", "(", ")", "."),
    ]
)
SCRIPTS = st.lists(PIECES, max_size=25).map("".join)


@given(SCRIPTS)
def test_without_variables_nothing_changes(text: str) -> None:
    # Next to a colon and a backslash without meaning, so that the text is scanned.
    text = "SELECT a::b, '\\t';" + text.replace(":", "").replace("\\", "")
    assert expand(text).text == text


@given(SCRIPTS)
def test_every_character_is_its_files_or_stands_for_what_was_replaced(text: str) -> None:
    made = expand(text, VARIABLES, on_error=lambda _: None)
    replaced = {piece.at: piece for piece in made.pieces if not piece.is_copied}
    for at, character in enumerate(made.text):
        origin, span = made.source(at, at + 1)
        assert origin.text == text
        written = text[span.start : span.end]
        assert written == character or written.startswith((":", "\\")), (at, character, written)
    for piece in replaced.values():
        assert text[piece.start] in ":\\"


@given(SCRIPTS, st.sampled_from(["'", '"', "$$", "`"]))
def test_a_string_is_left_alone_whatever_it_contains(inner: str, quote: str) -> None:
    content = inner.replace(quote, "").replace("\\", "").replace("$", "")
    text = f"SELECT {quote}{content}{quote}"
    assert expand(text, VARIABLES, on_error=lambda _: None).text == text


@given(st.text(alphabet=st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20))
def test_a_literal_of_ours_means_the_value(value: str) -> None:
    made = expand("CREATE SOURCE s (a INT) WITH (connector = 'datagen', topic = :'v')", {"v": value})
    statement = parse_statement(made.text)
    assert isinstance(statement, CreateSource)
    assert statement.options[1].value.text == value  # type: ignore[union-attr]


def test_no_statement_of_the_fixtures_and_pages_is_taken_for_variables() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FIXTURES.rglob("*.sql")]
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        texts += re.findall(r"^```sql\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(texts) > 200
    assert [text for text in texts if expand(text).text != text] == []


def test_the_time_grows_in_proportion_to_the_script() -> None:
    text = "SELECT :n, 'x' FROM t;\n" * 5_000
    assert expand(text, VARIABLES).text.count("SELECT 5") == 5_000
