"""Files and variables of ``rw-sql run``, before anything runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.script.environments import environments_of
from rw_sql.cli.script.loading import hiding, hiding_all, load_scripts, read_assignments
from rw_sql.errors import UNDEFINED_COLUMN, Span, SqlError
from tests.cli.test_main import rw_sql

if TYPE_CHECKING:
    from pathlib import Path


def test_what_one_file_sets_holds_in_the_next(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("\\set a 1\n\\unset gone\nSELECT :a;", encoding="utf-8")
    (tmp_path / "b.sql").write_text("\\ir sub.sql\nSELECT :a, :b, :{?gone};\r\nSELECT 2", encoding="utf-8")
    (tmp_path / "sub.sql").write_text("DROP SOURCE\n  x", encoding="utf-8")
    scripts, _ = load_scripts([str(tmp_path / "a.sql"), str(tmp_path / "b.sql")], {"b": "2", "gone": "x"})
    assert [[part.text for part in script.parts] for script in scripts] == [
        ["SELECT 1"],
        ["DROP SOURCE\n  x", "SELECT 1, 2, FALSE", "SELECT 2"],
    ]
    places = [scripts[1].place(part) for part in scripts[1].parts]
    assert [(os.path.basename(file or ""), line, column) for file, line, column in places] == [
        ("sub.sql", 1, 1),
        ("b.sql", 2, 1),
        ("b.sql", 3, 1),
    ]


def test_an_environment_gives_what_spark_keeps_without_one(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (tmp_path / "dev.env").write_text("TOPIC=orders\n", encoding="utf-8")
    (folder / "a.sql").write_text("SELECT '${env}.${TOPIC}', :n", encoding="utf-8")
    file = str(folder / "a.sql")
    (alone,), _ = load_scripts([file], {"n": "1"})
    (in_dev,), _ = load_scripts([file], {"n": "1"}, environments_of("dev"))
    assert alone.parts[0].text == "SELECT '${env}.${TOPIC}', 1"
    assert in_dev.parts[0].text == "SELECT 'dev.orders', 1"
    (given,), _ = load_scripts([file], {"n": "1", "TOPIC": "other"}, environments_of("dev"))
    assert given.parts[0].text == "SELECT 'dev.other', 1"
    assert environments_of(None) is None


def test_assignments() -> None:
    assert read_assignments(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1", "a-b=1", "a b=1"):
        with pytest.raises(SqlError, match="RW107: --var takes NAME=VALUE"):
            read_assignments([wrong])


def test_secrets_are_hidden_wherever_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "a.sql"
    path.write_text("\\set api_token 'hun''ter3'\nSELECT 1", encoding="utf-8")
    _, hide = load_scripts([str(path)], {"db_password": "hunter2", "topic": "orders", "empty_secret": ""})
    told = hide("CREATE SECRET s AS 'other'; x = 'hunter2', y = 'hun''ter3', hun'ter3, orders")
    assert "other" not in told
    assert told.endswith("x = '*****', y = '*****', *****, orders")
    assert hiding(["a", "abc"])("abc a") == "***** *****"


def test_the_secret_values_of_an_environment_are_hidden_too(tmp_path: Path) -> None:
    """Each file has the environment of its own folder."""
    for name, value in (("one", "tok-1"), ("other", "tok-2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "prod.env").write_text(f"API_TOKEN={value}\nTOPIC=orders\n", encoding="utf-8")
        (tmp_path / name / "a.sql").write_text("SELECT '${API_TOKEN}', '${TOPIC}'", encoding="utf-8")
    files = [str(tmp_path / name / "a.sql") for name in ("one", "other")]
    scripts, hide = load_scripts(files, {}, environments_of("prod"))
    assert [script.parts[0].text for script in scripts] == ["SELECT 'tok-1', 'orders'", "SELECT 'tok-2', 'orders'"]
    for script in scripts:
        assert hide(script.parts[0].text) == hide.values(script.parts[0].text) == "SELECT '*****', 'orders'"
    scripts, hide = load_scripts(files[:1], {"API_TOKEN": "given"}, environments_of("prod"))
    assert hide(scripts[0].parts[0].text) == "SELECT '*****', 'orders'"


def test_hiders_are_joined() -> None:
    """A value may contain the value of another one."""
    joined = hiding_all([hiding(["abc"]), hiding(["a"]), hiding([])])
    assert joined("abc a") == "***** *****"


@pytest.mark.parametrize(
    ("script", "options", "told"),
    [
        ("SELECT :nothing;", (), 'RW250: variable "nothing" is not set\nLINE 1: SELECT :nothing;'),
        ("\\i none.sql", (), 'RW408: cannot read "none.sql": No such file or directory\nLINE 1: \\i none.sql'),
        ("\\nonsense", (), "RW251: there is no command \\nonsense"),
        ("SELECT 1", ("--var", "a-b=1"), "RW107: --var takes NAME=VALUE"),
        ("SELECT 1", ("--output", "xml"), "--output must be text, json or junit, but is 'xml'"),
        ("SELECT '${TOPIC}';", ("--env", "dev"), 'RW408: no folder of "'),
    ],
)
def test_what_cannot_be_run_has_status_2_before_spark_starts(
    script: str, options: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    (tmp_path / "a.sql").write_text(script, encoding="utf-8")
    # Without Java: Spark could not even start.
    env = {"PATH": "/nowhere", "HOME": str(tmp_path), "JAVA_HOME": str(tmp_path), "COLUMNS": "200"}
    done = rw_sql("run", str(tmp_path / "a.sql"), *options, env=env)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("value", ["hun\\ter2", "hun'ter2", "h\\un'ter2", 'hun"ter2', "hun`ter2", "hun\nter2"])
def test_a_secret_is_hidden_in_any_quotes(tmp_path: Path, value: str) -> None:
    file = tmp_path / "a.sql"
    file.write_text(
        "INSERT INTO t VALUES (:'api_token');\nSELECT :'api_token', :\"api_token\";\n"
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM s WHERE a = :'api_token';\n"
        "ALTER SOURCE s SET (topic = :'api_token', :\"api_token\" = 'x');\n",
        encoding="utf-8",
    )
    (script,), hide = load_scripts([str(file)], {"api_token": value})
    for part in script.parts:
        assert "ter2" in part.text
        assert "ter2" not in hide(part.text)
        assert "ter2" not in hide.statement(part.text)


def test_an_error_is_free_of_the_values_of_secret_variables() -> None:
    error = hiding(["hunter2"]).error(SqlError(UNDEFINED_COLUMN, "no hunter2", hint="omit hunter2", detail="hunter2"))
    assert "hunter2" not in f"{error.render()} {error.args}"


@pytest.mark.parametrize("secret", ["hunter2", "h2", "a very long secret"])
@pytest.mark.parametrize("word", ["first", "wrong", "last"])
def test_the_line_of_an_error_is_free_of_them_and_the_caret_stays_at_its_word(secret: str, word: str) -> None:
    text = f"SELECT first, '{secret}'\nFROM '{secret}' wrong, '{secret}' last"
    at = text.index(word)
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    error = SqlError(UNDEFINED_COLUMN, "no", span=Span(at, at + len(word), line, column)).located(text)
    error.statement_range = (0, len(text))
    shown = hiding([secret]).error(error).render()
    assert secret not in shown
    _, quoted, caret = shown.splitlines()
    assert quoted[caret.index("^") :].startswith(word)
    assert caret.count("^") == len(word)
    assert (error.line, error.column, error.statement_range) == (line, column, (0, len(error.text or "")))


def test_the_caret_below_a_hidden_value_stays_inside_the_asterisks() -> None:
    text = "SELECT 'hunter2', a"
    error = SqlError(UNDEFINED_COLUMN, "no", span=Span(8, 15, 1, 9)).located(text)
    _, quoted, caret = hiding(["hunter2"]).error(error).render().splitlines()
    assert quoted.endswith("SELECT '*****', a")
    assert quoted[caret.index("^") : caret.rindex("^") + 1] == "*****"
