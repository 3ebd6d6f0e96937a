"""The names that new objects may have, and those that differ from another one only in upper and lower case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.metastore.records import PutObject
from rw_sql.plan.result.steps import after
from rw_sql.syntax.lexing.identifiers import quoted
from tests.plan.canned import CannedWorld, create_source, moved_world, refused

CREATED = (
    "CREATE MATERIALIZED VIEW {} AS SELECT id FROM s",
    "CREATE SINK {} FROM v WITH (connector = 'deltalake', location = '/tmp/no', type = 'append-only')",
    "ALTER MATERIALIZED VIEW v RENAME TO {}",
    "ALTER SOURCE s RENAME TO {}",
)


def with_source(world: CannedWorld, statement: str, name: str) -> str:
    """The statement with this name; ``CREATE SOURCE`` stands for a whole statement."""
    return create_source(quoted(name), "new") if statement == "CREATE SOURCE" else statement.format(quoted(name))


@pytest.mark.parametrize("statement", ["CREATE SOURCE", *CREATED])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("  ", 'the name "  " consists of blanks'),
        ("a\nb", 'the name "a\\u000ab" has the character U+000A, which cannot be printed'),
        ("a\u200bb", 'the name "a\\u200bb" has the character U+200B, which cannot be printed'),
        ("x$errors", 'the name "x$errors" cannot end in $errors: the failed records of an object have such a name'),
        ("X$Rejected", 'the name "X$Rejected" cannot end in $rejected: the failed records of an object have'),
    ],
)
def test_a_name_that_nobody_can_type_or_read_is_refused(statement: str, name: str, why: str) -> None:
    world = moved_world()
    error = refused(world, with_source(world, statement, name))
    assert (error.code, error.message.startswith(why)) == ("RW212", True), error.message
    assert error.span is not None
    assert (error.hint or "").startswith("use another name: ")


@pytest.mark.parametrize("statement", ["CREATE SOURCE", *CREATED])
def test_a_name_that_spark_does_not_distinguish_from_another_is_refused(statement: str) -> None:
    world = moved_world()
    world.run('CREATE MATERIALIZED VIEW "Größe" AS SELECT id FROM s')
    error = refused(world, with_source(world, statement, "größe"))
    assert error.code == "RW201"
    assert error.message == (
        'the name "größe" differs from that of materialized view "Größe" only in upper and lower case, which Spark '
        "does not distinguish"
    )
    assert error.hint == 'use another name: "größe_2"'
    assert error.span is not None
    # Other languages fold more, and Spark does not.
    world.run(
        "CREATE MATERIALIZED VIEW strasse AS SELECT id FROM s", 'CREATE MATERIALIZED VIEW "straße" AS SELECT id FROM s'
    )


def test_an_object_may_change_the_case_of_its_own_name() -> None:
    world = moved_world()
    world.run(
        'ALTER MATERIALIZED VIEW v RENAME TO "V"',
        'ALTER MATERIALIZED VIEW "V" RENAME TO v',
        "CREATE SCHEMA raw",
        'CREATE MATERIALIZED VIEW raw."V" AS SELECT id FROM s',
    )
    error = refused(world, 'ALTER MATERIALIZED VIEW raw."V" SET SCHEMA public')
    assert (error.code, error.hint) == ("RW201", 'use another name: "V_2"')


def test_objects_of_an_older_warehouse_with_such_names_are_renamed_and_moved() -> None:
    world = moved_world()
    world.run("CREATE MATERIALIZED VIEW w AS SELECT id FROM s", "CREATE SCHEMA raw")
    view = world.snapshot.find("materialized_view", "w")
    assert view is not None
    for old in ("V", "a\nb", "x$errors"):
        world.snapshot = after(world.snapshot, (PutObject(record=replace(view, name=old)),))
        world.run(
            f"ALTER MATERIALIZED VIEW {quoted(old)} RENAME TO w",
        )
        assert world.snapshot.find("materialized_view", "w") is not None
