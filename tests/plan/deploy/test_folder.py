"""A folder's files: objects in any file, variables, comments with old names, and refused contents."""

from __future__ import annotations

import pytest

from rw_sql.cli.formatting.command import format_text
from rw_sql.errors import SqlError
from rw_sql.plan.deploy.folder import read_folder, read_variables, with_variables
from rw_sql.plan.deploy.order import in_order

SOURCE = "CREATE SOURCE s (id INT) WITH (connector = 'datagen');\n"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id FROM s;\n"


def registry(option: str) -> str:
    return (
        "CREATE SOURCE s WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'a:1')\n"
        f"FORMAT PLAIN ENCODE AVRO (schema.message = 'm',\n{option});"
    )


def refusal(*texts: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        read_folder([(f"{at}.sql", text) for at, text in enumerate(texts)], {})
    return caught.value


def test_objects_of_several_files_and_their_places() -> None:
    found = read_folder([("a.sql", "-- a view\n" + VIEW), ("b/c.sql", SOURCE)], {})
    assert [(each.kind, each.name, each.place) for each in found] == [
        ("materialized_view", "v", "a.sql:2"),
        ("source", "s", "b/c.sql:1"),
    ]
    assert [each.name for each in in_order(found)] == ["s", "v"]


@pytest.mark.parametrize(
    ("text", "was"),
    [
        ("-- rw: renamed from old\n" + VIEW, "old"),
        ("-- rw:  Renamed  from  OLD  \n" + VIEW, "old"),
        ('-- rw: renamed from "Old one"\n' + VIEW, "Old one"),
        ("CREATE MATERIALIZED VIEW v -- rw: renamed from old\n AS SELECT id FROM s;\n", "old"),
        ("-- rw: renamed from v\n" + VIEW, None),
        ('-- rw: renamed from raw."Old one"\n' + VIEW, "raw.Old one"),
        ("-- rw: renamed from public.old\n" + VIEW, "old"),
        (VIEW.rstrip() + " -- rw: renamed from old\n", "old"),
    ],
)
def test_the_name_before(text: str, was: str | None) -> None:
    for written in (text, format_text(text)):
        (found,) = read_folder([("a.sql", written)], {})
        assert found.was == was


@pytest.mark.parametrize(
    ("text", "was"),
    [
        ("-- rw: renamed from ${env}_old\nCREATE SOURCE ${env}_s (id INT) WITH (connector = 'datagen');\n", "prod_old"),
        ('-- rw: renamed from "${env} ${n}"\n' + VIEW, "prod 7"),
        (VIEW.rstrip() + " -- rw: renamed from ${env}_old", "prod_old"),
    ],
)
def test_the_name_before_may_contain_variables(text: str, was: str) -> None:
    (found,) = read_folder([("a.sql", text)], {"env": "prod", "n": "7"})
    assert found.was == was


def test_an_unset_variable_in_the_name_before_is_an_error() -> None:
    with pytest.raises(SqlError) as caught:
        read_folder([("a.sql", "-- ${nothing}\n-- rw: renamed from ${evn}_old\n" + VIEW)], {"env": "prod"})
    assert (caught.value.code, caught.value.line, caught.value.column) == ("RW250", 2, 21)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("CREATE TABLE t (id INT);", "for a table of rw_sql, add WITH (connector = 'kafka', …)"),
        ('CREATE TABLE "T" AS SELECT 1 AS a;', 'CREATE MATERIALIZED VIEW "T" AS …'),
    ],
)
def test_a_table_of_spark_has_a_hint_for_a_table_of_rw_sql(text: str, hint: str) -> None:
    said = refusal(text).hint or ""
    assert said.startswith("run other statements with rw-sql run; for a ")
    assert said.endswith(hint)


def test_a_comment_behind_a_statement_is_that_ones() -> None:
    one, other = read_folder([("a.sql", SOURCE.rstrip() + " -- a remark\n-- rw: renamed from old\n" + VIEW)], {})
    assert (one.was, other.was) == (None, "old")


@pytest.mark.parametrize(
    ("texts", "code", "said", "place"),
    [
        ((SOURCE + "PAUSE SOURCE s;",), "RW212", "a folder may contain only CREATE statements", ("0.sql", 2)),
        ((SOURCE + "\nCREATE SOURCE x (id INT) WITH (connector = );",), "RW101", "", ("0.sql", 3)),
        ((SOURCE, "SELECT 1;"), "RW212", "connections and secrets; this statement is Spark's", ("1.sql", 1)),
        (
            ("CREATE TABLE t (id INT, amount BIGINT);",),
            "RW212",
            "creates a Spark table",
            ("0.sql", 1),
        ),
        (("CREATE TABLE t AS SELECT 1 AS a;",), "RW212", "creates a Spark table", ("0.sql", 1)),
        (
            (SOURCE + "CREATE TABLE w (id INT PRIMARY KEY);",),
            "RW212",
            "creates a Spark table",
            ("0.sql", 2),
        ),
        ((SOURCE + "/* the views\n" + VIEW,), "RW102", "a comment starts here", ("0.sql", 2)),
        ((SOURCE + "/* in/*.csv */\n" + VIEW,), "RW102", "this /* opens a second comment", ("0.sql", 2)),
        ((SOURCE, SOURCE), "RW201", "already defined at 0.sql:1", None),
        ((SOURCE, "CREATE MATERIALIZED VIEW s AS SELECT 1 AS a FROM q;"), "RW201", "already defined at 0.sql:1", None),
        (
            ("CREATE SECRET p WITH (backend = 'meta') AS 'hunter2';",),
            "RW212",
            "the folder contains the value of secret",
            ("0.sql", 1),
        ),
        (
            ("-- rw: rename from x\n" + VIEW,),
            "RW212",
            "-- rw: rename from x is not a valid comment for renaming",
            ("0.sql", 2),
        ),
        (
            (VIEW, VIEW.replace("VIEW v", "VIEW w") + "\n-- rw: renamed from old\n"),
            "RW212",
            "no statement",
            ("1.sql", 3),
        ),
        (("-- rw: renamed from old;\n" + VIEW,), "RW212", "is not a valid comment", ("0.sql", 2)),
        ((registry("schema.registry.password = 'hunter2'"),), "RW208", "accepts only a secret", ("0.sql", 3)),
        ((registry("schema.registry = 'http://u:hunter2@r:8081'"),), "RW208", "must not contain a pass", ("0.sql", 3)),
        (
            (
                "CREATE SINK k FROM v WITH (connector = 'jdbc', type = 'append-only', table.name = 't',\n"
                " jdbc.url = 'jdbc:postgresql://h/d?user=u&password=hunter2');",
            ),
            "RW208",
            '"jdbc.url" must not contain a password',
            ("0.sql", 2),
        ),
        (
            (
                "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = 'a:1',\n"
                " properties.security.protocol = 'SASL_SSL', properties.sasl.mechanism = 'PLAIN',\n"
                " properties.sasl.username = 'u', properties.sasl.password = 'hunter2');",
            ),
            "RW208",
            "",
            ("0.sql", 3),
        ),
    ],
)
def test_what_is_refused(texts: tuple[str, ...], code: str, said: str, place: tuple[str, int] | None) -> None:
    error = refusal(*texts)
    assert error.code == code
    assert said in error.message
    assert "hunter2" not in error.message + (error.hint or "")
    if place is not None:
        assert (error.file, error.line) == place


@pytest.mark.parametrize(
    ("texts", "detail"),
    [
        (("SELECT 1;", VIEW), None),
        (("SELECT 1;\nSELECT 2;", VIEW), "1 more statement is wrong: 0.sql:2"),
        (("SELECT 1;", VIEW, "CREATE SORCE;\n" + SOURCE), "1 more statement is wrong: 2.sql:1"),
        ((VIEW + "\n-- rw: renamed from x", "SELECT ${unset};"), "1 more statement is wrong: 1.sql:1"),
        (
            (VIEW, "SELECT 1;\n" * 9),
            "8 more statements are wrong: 1.sql:2, 1.sql:3, 1.sql:4, 1.sql:5, 1.sql:6, 3 others",
        ),
    ],
)
def test_the_first_of_several_errors_names_the_places_of_the_others(texts: tuple[str, ...], detail: str | None) -> None:
    assert refusal(*texts).detail == detail


def test_circles_are_named() -> None:
    a, b = "CREATE MATERIALIZED VIEW a AS SELECT 1 AS x FROM b;", "CREATE MATERIALIZED VIEW b AS SELECT 1 AS x FROM a;"
    with pytest.raises(SqlError, match="a → b → a"):
        in_order(read_folder([("a.sql", a + b)], {}))


def test_variables_are_replaced_in_strings_and_names_and_not_in_comments() -> None:
    text = "-- ${nothing}\nCREATE SOURCE ${env}_s (id INT) WITH (topic = '${env}.orders')"
    assert with_variables(text, {"env": "prod"}, "a.sql").text.splitlines()[1:] == [
        "CREATE SOURCE prod_s (id INT) WITH (topic = 'prod.orders')"
    ]
    with pytest.raises(SqlError) as caught:
        with_variables("SELECT '${evn}'", {"env": "prod"}, "a.sql")
    assert (caught.value.code, caught.value.hint, caught.value.column) == ("RW250", 'did you mean "env"?', 9)


def test_an_environments_file() -> None:
    assert read_variables("# prod\nBROKER = b:9092\n\nname='orders'\n", "prod.env") == {
        "BROKER": "b:9092",
        "name": "orders",
    }
    assert read_variables("\ufeffBROKER=b:9092\r\n", "prod.env") == {"BROKER": "b:9092"}
    for text in ("BROKER\n", "a b = c\n", "x = it's\n", "x = a;b\n", "x = a--b\n"):
        with pytest.raises(SqlError) as caught:
            read_variables(text, "prod.env")
        assert caught.value.code == "RW214"
