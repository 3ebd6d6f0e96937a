"""Whatever a script contains, the check ends with findings and not with an internal error."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.syntax import split_script

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").rglob("*.sql"))
STATEMENTS = [part.text for path in FIXTURES for part in split_script(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("seed", range(8))
def test_statements_of_all_fixtures_in_any_order_and_cut(seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(6):
        text = ";\n".join(chosen.sample(STATEMENTS, 12))
        at = chosen.randrange(len(text))
        text = text[:at] + text[at + chosen.randrange(4) :]
        for checked in ScriptChecker().check(text, "x"):
            assert 0 <= checked.start <= checked.end <= len(text)
            for error in checked.errors:
                assert error.hint
                assert error.span is not None
                assert error.line == text.count("\n", 0, error.span.start) + 1


@pytest.mark.parametrize(
    ("use", "made_in"),
    [
        ("USE default", "o"),
        ("use schema `default`", "o"),
        ("USE DATABASE spark_catalog.default", "o"),
        ("USE other", "raw.o"),
        ("USE default_of_ours", "raw.o"),
    ],
)
def test_use_of_the_default_database_ends_a_search_path(use: str, made_in: str) -> None:
    """The views of ``public`` are in Spark's default database, and other databases are Spark's own."""
    sources = [f"CREATE SOURCE {name} (id INT) WITH (connector = 'datagen')" for name in "so"]
    view = "CREATE MATERIALIZED VIEW v AS SELECT id FROM s"
    checker = ScriptChecker()
    checked = list(checker.check(f"CREATE SCHEMA raw; USE raw; {sources[0]}; {use}; {sources[1]}; {view}", "x"))
    assert [record.name for record in checker.snapshot.all("source")] == ["raw.s", made_in]
    told = [error.message for statement in checked for error in statement.errors]
    assert told == (['relation "s" does not exist'] if made_in == "o" else [])


@pytest.mark.parametrize(
    "call", ["split()", "to_date()", "date_format(v)", "nvl2(v)", "regexp_replace(v, 'b')", "if(v)"]
)
def test_a_call_with_too_few_arguments_is_found_beside_the_other_errors(call: str) -> None:
    """sqlglot's own reading of such calls fails, which ended the analysis of the query."""
    source = "CREATE SOURCE s (id INT, v VARCHAR) WITH (connector = 'datagen')"
    view = f"CREATE MATERIALIZED VIEW m AS SELECT idd, {call} AS x FROM s"
    _, checked = ScriptChecker().check(f"{source};\n{view}", "x")
    name = call.partition("(")[0]
    assert [error.message.partition(" takes")[0] for error in checked.errors] == [
        'column "idd" does not exist',
        f'function "{name}"',
    ]


@pytest.mark.parametrize("call", ["map(id)", "map(id, v, 1)"])
def test_a_call_that_sqlglot_fails_at_ends_no_check(call: str) -> None:
    source = "CREATE SOURCE s (id INT, v VARCHAR) WITH (connector = 'datagen')"
    _, checked = ScriptChecker().check(f"{source};\nCREATE MATERIALIZED VIEW m AS SELECT idd, {call} AS x FROM s", "x")
    assert [error.message for error in checked.errors] == ['column "idd" does not exist']


@pytest.mark.parametrize("kind", ["SOURCE", "TABLE"])
@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ("topik = 'x', topic = 't', properties.bootstrap.server = 'b:1'", "RW204"),
        ("topic = 't', properties.bootstrap.servr = 'b:1'", "RW204"),
        ("topic = 't', properties.bootstrap.server = 'b:1', scan.startup.mode = 'oldest'", "RW208"),
        ("topic = 't'", "RW207"),
        ("topic = 't', properties.bootstrap.server = 'b:1', properties.sasl.password = 'x'", "RW208"),
    ],
)
def test_properties_are_checked_before_the_registry_is_asked_for_the_columns(
    kind: str, properties: str, code: str
) -> None:
    columns = " (*, PRIMARY KEY (id))" if kind == "TABLE" else ""
    text = (
        f"CREATE {kind} o{columns} WITH (connector = 'kafka', {properties}) "
        "FORMAT PLAIN ENCODE AVRO (schema.registry = 'http://r:8081')"
    )
    (checked,) = ScriptChecker().check(text, "x")
    assert code in [error.code for error in checked.errors]
