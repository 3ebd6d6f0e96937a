"""Objects with the oddest names: readable in plain Spark SQL, refused where Spark cannot distinguish them."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.syntax.lexing.identifiers import quoted, quoted_for_spark
from tests.integration.attached import AttachedSession

pytestmark = pytest.mark.spark

NAMES = (
    *("my view", " a", "a.b", "größe", 'a"b', "a'b", "a`b", "a-b", "a%20b", "a/b", "a:b", "a$b", "日本", "😀", "a\\b"),
    *("select", "a[b]", "a, b", "a;b", "a AS b", "1a", "Orders", "{a}", "İ"),
)
OVER = "WITH (connector = 'datagen', datagen.rows.total = '3')"


def number_rows(session: AttachedSession, relation: str) -> int:
    """The number of rows of a relation in plain Spark SQL."""
    return int(session.sql(f"SELECT count(*) AS n FROM {relation}")[0].n)


def other_case(name: str) -> str:
    """The name in upper case, unless Unicode writes it with other letters there (``ß``)."""
    return name.upper() if name.upper().lower() == name.lower() and len(name.upper()) == len(name) else name


@pytest.mark.long
def test_objects_with_odd_names_are_read_by_name(session: AttachedSession) -> None:
    for at, name in enumerate(NAMES):
        word = quoted(name)
        spark_word = quoted_for_spark(name)
        session.run(
            f"CREATE SOURCE {quoted(name + ' s')} (id INT) {OVER}",
            f"CREATE MATERIALIZED VIEW {word} AS SELECT id FROM {quoted_for_spark(name + ' s')}",
        )
        if at % 4 == 0:
            session.run(
                f"CREATE MATERIALIZED VIEW next{at} AS SELECT max(id) AS m FROM {spark_word}",
                f"CREATE TABLE {quoted(name + ' t')} (id INT PRIMARY KEY) {OVER}",
            )
    session.sql("FLUSH")
    for at, name in enumerate(NAMES):
        spark_word = quoted_for_spark(name)
        assert number_rows(session, spark_word) == 3, name
        assert number_rows(session, f"{spark_word} AS x WHERE x.id >= 0") == 3, name
        assert number_rows(session, quoted_for_spark(name + " s")) == 3, name
        assert session.spark.table(spark_word).count() == 3, name
        assert session.spark.read.table(quoted_for_spark(other_case(name))).count() == 3, name
        if at % 4 == 0:
            assert number_rows(session, f"next{at}") == 1
            assert number_rows(session, quoted_for_spark(name + " t")) == 3
        assert session.sql(f"SHOW CREATE MATERIALIZED VIEW {quoted(name)}")[0].create_sql.startswith(
            f"CREATE MATERIALIZED VIEW {quoted(name)} AS"
        )
    assert {job.state for job in session.jobs().values()} == {"RUNNING"}


def test_an_odd_name_follows_renames_schemas_and_drops(session: AttachedSession) -> None:
    session.run(
        f"CREATE SOURCE src (id INT) {OVER}",
        "CREATE SCHEMA raw",
        'CREATE MATERIALIZED VIEW raw."my view" AS SELECT id FROM src',
        f'CREATE SOURCE raw."my source" (id INT) {OVER}',
        "FLUSH",
    )
    assert number_rows(session, "raw.`my view`") == 3
    assert number_rows(session, "raw.`My View` AS v JOIN raw.`my source` AS s ON v.id = s.id") == 3
    assert session.sql("SELECT count(`my view`.id) AS n FROM raw.`my view`")[0].n == 3
    assert session.spark.table("raw.`my view`").count() == 3
    session.run("SET search_path = raw, public")
    assert number_rows(session, "`my view`") == 3
    session.run("SET search_path = public", 'ALTER MATERIALIZED VIEW raw."my view" SET SCHEMA public')
    assert number_rows(session, "`my view`") == 3
    assert number_rows(session, "default.`my view`") == 3
    assert number_rows(session, "public.`my view`") == 3
    assert number_rows(session, "public.src") == 3
    with pytest.raises(SqlError):
        number_rows(session, "raw.`my view`")
    for text in (
        "DROP VIEW `my view`",
        "CREATE OR REPLACE TEMPORARY VIEW `My View` AS SELECT 1 AS id",
        "INSERT INTO `my view` VALUES (1)",
    ):
        with pytest.raises(SqlError, match=r"RW236|RW201"):
            session.sql(text)
    session.run('ALTER MATERIALIZED VIEW "my view" RENAME TO plain')
    assert number_rows(session, "plain") == number_rows(session, "public.plain") == 3
    with pytest.raises(SqlError):
        number_rows(session, "`my view`")
    session.run('ALTER MATERIALIZED VIEW plain RENAME TO "my view"', 'DROP MATERIALIZED VIEW "my view"')
    with pytest.raises(SqlError):
        number_rows(session, "`my view`")
    session.run("CREATE TEMPORARY VIEW `my view` AS SELECT 7 AS id")
    assert session.rows_of("`my view`") == [(7,)]
    session.run("DROP VIEW `my view`")


def test_a_temporary_view_of_the_user_comes_first_and_is_kept(
    session: AttachedSession, caplog: pytest.LogCaptureFixture
) -> None:
    session.run("CREATE TEMPORARY VIEW `my view` AS SELECT 7 AS id", f"CREATE SOURCE src (id INT) {OVER}")
    with caplog.at_level(logging.WARNING):
        session.run('CREATE MATERIALIZED VIEW "my view" AS SELECT id FROM src', "FLUSH")
    assert "hides materialized view my view" in caplog.text
    assert session.rows_of("`my view`") == [(7,)]
    session.run("DROP VIEW `my view`")
    assert number_rows(session, "`my view`") == 3
    session.spark.range(1).createOrReplaceTempView("`my view`")
    assert number_rows(session, "`my view`") == 1
    session.run('DROP MATERIALIZED VIEW "my view"')
    assert number_rows(session, "`my view`") == 1
    session.spark.catalog.dropTempView("my view")


def test_another_session_of_the_same_spark_sees_them_too(session: AttachedSession) -> None:
    session.run(
        f"CREATE SOURCE src (id INT) {OVER}", 'CREATE MATERIALIZED VIEW "my view" AS SELECT id FROM src', "FLUSH"
    )
    other = AttachedSession(session.spark.newSession(), session.warehouse)
    try:
        assert number_rows(other, "`my view`") == 3
    finally:
        other.detach()
    assert not any(table.name == "my view" for table in other.spark.catalog.listTables())
    assert number_rows(session, "`my view`") == 3


@pytest.mark.parametrize("name", [" ", "a\nb", "a\x00b", "a\u200bb", "x$errors", "X$Rejected"])
def test_names_that_cannot_be_are_refused_wherever_they_are_given(session: AttachedSession, name: str) -> None:
    word = quoted(name)
    session.run(f"CREATE SOURCE src (id INT) {OVER}", "CREATE MATERIALIZED VIEW v AS SELECT id FROM src")
    for statement in (
        f"CREATE SOURCE {word} (id INT) {OVER}",
        f"CREATE TABLE {word} (id INT PRIMARY KEY) {OVER}",
        f"CREATE MATERIALIZED VIEW {word} AS SELECT id FROM src",
        f"CREATE SINK {word} FROM v WITH (connector = 'deltalake', location = '/tmp/no', type = 'append-only')",
        f"ALTER SOURCE src RENAME TO {word}",
        f"ALTER MATERIALIZED VIEW v RENAME TO {word}",
    ):
        with pytest.raises(SqlError) as caught:
            session.sql(statement)
        assert caught.value.code == "RW212", (statement, caught.value.render())
        assert caught.value.span is not None
        assert (caught.value.hint or "").startswith("use another name: ")
    assert [row.name for row in session.sql("SHOW MATERIALIZED VIEWS")] == ["v"]


def test_an_older_warehouse_with_two_names_that_spark_does_not_distinguish(
    session: AttachedSession, caplog: pytest.LogCaptureFixture
) -> None:
    session.run(
        f"CREATE SOURCE src (id INT) {OVER}",
        "CREATE MATERIALIZED VIEW orders AS SELECT id FROM src",
        "CREATE MATERIALIZED VIEW other AS SELECT max(id) AS id FROM src",
        "FLUSH",
    )
    metastore = session.attached._runtime.context.metastore
    snapshot = metastore.snapshot()
    other = snapshot.find("materialized_view", "other")
    assert other is not None
    renamed = PutObject(record=replace(other, name="Orders"))
    metastore.commit(Operation(kind="TEST", statement="", objects=("Orders",), changes=(renamed,)), based_on=snapshot)
    with caplog.at_level(logging.WARNING):
        session.run("SHOW JOBS")
    assert '"orders" hides "Orders" in Spark' in caplog.text
    assert 'ALTER MATERIALIZED VIEW "Orders" RENAME TO a_name' in caplog.text
    assert number_rows(session, "orders") == number_rows(session, "Orders") == 3
    session.run('ALTER MATERIALIZED VIEW "Orders" RENAME TO a_name')
    assert (number_rows(session, "a_name"), number_rows(session, "orders")) == (1, 3)
