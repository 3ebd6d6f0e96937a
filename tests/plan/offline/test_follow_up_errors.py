"""A statement with an error causes no further errors, and facts outside the catalog are reported as unchecked."""

from __future__ import annotations

import pytest

from rw_sql.metastore.records import AssignSplits, PutSplitStates
from rw_sql.plan.offline import inspector
from rw_sql.plan.offline.query_answers import answer_query
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.plan.ports.queries import WHOLE, AnalyzedQuery, QueryAnalysis
from rw_sql.plan.result.steps import after
from rw_sql.syntax.query.maintained_form import ROW

KAFKA = "WITH (connector = 'kafka', topic = 'a', properties.bootstrap.server = 'k:9092') FORMAT PLAIN ENCODE JSON"
SOURCE = f"CREATE SOURCE a (id INT, v VARCHAR) {KAFKA};\n"


def lines(text: str, checker: ScriptChecker | None = None) -> list[str]:
    found = (checker or ScriptChecker()).check(text, "x")
    return [f"{error.line}: {error.code}" for checked in found for error in checked.errors]


@pytest.mark.parametrize(
    "made",
    [
        "CREATE SOURCE a (id INT) WITH (connector = 'nosuch')",
        "CREATE SOURCE a (id INT WITH (connector = 'datagen')",
        "CREATE SOURCE a (id INT) WITH (connector = 'kafka') FORMAT PLAIN ENCODE AVRO",
        f"CREATE SOURCE a (id INT, v INTERVAL, id BIGINT) {KAFKA}",
    ],
)
def test_what_rests_on_an_object_with_errors_has_none(made: str) -> None:
    rest = """;
        CREATE MATERIALIZED VIEW m AS SELECT nosuch, x.y FROM a JOIN a AS x ON a.q = x.q;
        CREATE MATERIALIZED VIEW n (one, two) AS SELECT * FROM m;
        CREATE SINK s FROM n WITH (connector = 'deltalake', location = '/x', type = 'upsert', primary_key = 'one');
        ALTER SOURCE a UNSAFE SET (topic = 'b');
        ALTER SOURCE a CONNECTOR WITH (log.retention = '1 day');
        PAUSE SOURCE a;
        INJECT SOURCE OFFSETS a VALUES ('7' = 5);
        DROP SINK s;
        DROP MATERIALIZED VIEW m CASCADE;
        DROP SOURCE a;"""
    assert {line.split(":")[0] for line in lines(made + rest)} == {"1"}


def test_a_failed_drop_rename_or_new_column_has_no_followers() -> None:
    table = "CREATE TABLE t (id BIGINT PRIMARY KEY) " + KAFKA.replace("PLAIN", "UPSERT") + ";\n"
    script = (
        SOURCE
        + "CREATE MATERIALIZED VIEW m AS SELECT id FROM a;\n"
        + "DROP SOURCE a;\n"
        + SOURCE
        + table
        + "ALTER TABLE t ADD COLUMN name NOSUCHTYPE;\n"
        + "CREATE MATERIALIZED VIEW n AS SELECT name FROM t;\n"
    )
    assert lines(script) == ["3: RW306", "6: RW206"]


def test_an_error_inside_of_a_block_does_not_end_it() -> None:
    script = SOURCE + "BEGIN UNSAFE;\nPAUSE SOURCE b;\nPAUSE SOURCE a;\nRESUME SOURCE c;\nCOMMIT;\nDROP SOURCE a;"
    assert lines(script) == ["3: RW203", "5: RW203"]


def test_splits_of_the_catalog_are_known_and_others_are_not_there() -> None:
    checker = ScriptChecker()
    assert lines(SOURCE + "PAUSE SOURCE a;", checker) == []
    source = checker.snapshot.find("source", "a")
    assert source is not None
    fragment = f"ingest-{source.id}"
    states = {"a:0": '{"offset":5}', "a:1": '{"offset":5}'}
    checker.snapshot = after(
        checker.snapshot,
        (
            AssignSplits(fragment=fragment, splits=("a:0", "a:1")),
            PutSplitStates(fragment=fragment, states=states, log_version=0),
        ),
    )
    # The progress since then is unknown, so a step back is not refused.
    assert lines("INJECT SOURCE OFFSETS a TO SHIFT -100;", checker) == []
    assert lines("INJECT SOURCE OFFSETS a VALUES ('1' = 5, '2' = 5);", checker) == ["1: RW209"]
    assert lines("INJECT SOURCE OFFSETS a VALUES ('0' = -5) ALLOW CLAMP;", checker) == []


def test_what_is_not_known_is_reported() -> None:
    script = (
        SOURCE
        + "CREATE MATERIALIZED VIEW m AS SELECT id FROM a;\n"
        + "CREATE SINK s FROM m WITH (connector = 'deltalake', location = '/x', type = 'append-only');\n"
        + "CREATE SECRET pw WITH (backend = 'env', name = 'PW');\n"
        + "PAUSE SOURCE a;\nINJECT SOURCE OFFSETS a FROM FILE 'x.json';\nUNDO OPERATION 5;\nCANCEL JOBS 1;\n"
        + "CREATE MATERIALIZED VIEW d AS SELECT id FROM lake.orders;\nDROP SINK s;"
    )
    told = [checked.unchecked for checked in ScriptChecker().check(script, "x")]
    assert told == [
        (inspector.UPSTREAM,),
        (inspector.QUERY,),
        (inspector.TARGET,),
        (inspector.SECRET,),
        (),
        (inspector.UPSTREAM, inspector.POSITIONS, inspector.FILE),
        (inspector.OPERATIONS,),
        (inspector.JOBS,),
        (inspector.TABLE,),
        (),
    ]


def test_spark_is_asked_where_all_columns_are_known() -> None:
    asked: list[AnalyzedQuery] = []

    def refuse(request: AnalyzedQuery) -> QueryAnalysis:
        asked.append(request)
        return QueryAnalysis(refusal="[UNRESOLVED_COLUMN] nosuch", hint="look again")

    script = SOURCE + "CREATE MATERIALIZED VIEW m AS SELECT upper(v) AS v FROM a;"
    assert lines(script, ScriptChecker(ask_spark=refuse)) == ["2: RW215"]
    assert asked[0].relations[0].columns == (("id", "INT"), ("v", "STRING"))


@pytest.mark.parametrize(
    ("text", "accepts"),
    [
        ("ALTER SOURCE a UNSAFE SET (topic = 'b')", ("GAPS", "DUPLICATES")),
        ("RESET SOURCE SPLITS a", ("GAPS", "DUPLICATES")),
        ("UNDO OPERATION 3", ("GAPS", "DUPLICATES")),
        ("BEGIN UNSAFE", ()),
    ],
)
def test_unsafe_statements_are_listed_with_what_they_need(text: str, accepts: tuple[str, ...]) -> None:
    for switch in (False, True):
        before = "ALTER SYSTEM SET enable_unsafe_ops = true;" if switch else ""
        *_, checked = [c for c in ScriptChecker().check(f"{SOURCE}{before}{text}", "x") if c.unsafe is not None]
        assert checked.unsafe is not None
        assert checked.unsafe.accepts == accepts
        assert (checked.unsafe.switch is None) is switch


def test_a_name_that_only_spark_knows_can_be_told() -> None:
    script = "CREATE MATERIALIZED VIEW m AS SELECT id FROM lake_orders;"
    assert lines(script) == ["1: RW203"]
    assert lines(script, ScriptChecker(spark_tables=["lake_orders"])) == []


ALTERED = (
    "CREATE SOURCE s (id INT, k INT, v INT) WITH (connector = 'kafka', topic = 't', "
    "properties.bootstrap.server = 'a:1') FORMAT PLAIN ENCODE JSON;\n"
    "CREATE MATERIALIZED VIEW m AS SELECT k, sum(v) AS v FROM s GROUP BY k;\n"
    "CREATE MATERIALIZED VIEW r AS SELECT k + 1 AS a, v AS b, k AS c FROM m;\n"
    "CREATE MATERIALIZED VIEW rr AS SELECT a, b FROM r;\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # It has as many columns as the view that reads it, but they are not that view's columns.
        ("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, sum(v) AS v, count(*) AS n FROM s GROUP BY k", []),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, sum(v) AS v, count(*) AS n FROM s GROUP BY k", []),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, max(v) AS w FROM s GROUP BY k", ["RW306"]),
        ("ALTER MATERIALIZED VIEW m AS SELECT k, sum(w) AS v FROM s GROUP BY k", ["RW2"]),
        ("ALTER MATERIALIZED VIEW nothing AS SELECT k FROM s", ["RW203"]),
    ],
)
def test_another_query_of_a_view_that_others_read(text: str, expected: list[str]) -> None:
    found = lines(f"{ALTERED}{text};\n")
    assert len(found) == len(expected), found
    for line, part in zip(found, expected, strict=True):
        assert part in line


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT id, to_json(struct(*)) AS j FROM (SELECT id, count(*) AS n FROM a GROUP BY id) AS x", []),
        ("WITH x AS (WITH y AS (SELECT id FROM a) SELECT id FROM y) SELECT id, count(*) AS c FROM x GROUP BY id", []),
        ("WITH x AS (SELECT id FROM a) SELECT id, count(*) AS c FROM x TABLESAMPLE (9 PERCENT) GROUP BY id", []),
        ("SELECT id, count(*) AS c FROM a WHERE id IN (SELECT k FROM VALUES (1) AS t (k)) GROUP BY id", []),
        ("WITH x AS (SELECT id FROM a) SELECT DISTINCT id FROM x TABLESAMPLE (9 PERCENT)", []),
        ("WITH x AS (SELECT id FROM a) SELECT id FROM x TABLESAMPLE (9 PERCENT)", ["3: RW207"]),
    ],
)
def test_a_view_of_groups_has_keys_whatever_else_its_query_has(query: str, found: list[str]) -> None:
    sink = "CREATE SINK s FROM m WITH (connector = 'deltalake', location = '/x', type = 'upsert');"
    assert lines(f"{SOURCE}CREATE MATERIALIZED VIEW m AS {query};\n{sink}") == found


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT id, count(*) AS n FROM a GROUP BY id", ("id",)),
        ("SELECT x.id, count(*) AS c FROM (SELECT explode(array(id, 1)) AS id FROM a) AS x GROUP BY id", ("id",)),
        ("SELECT id, explode(array(min(id), max(id))) AS bound FROM a GROUP BY id", (ROW,)),
        ("SELECT id, inline_outer(s) FROM (SELECT id, collect_set(struct(id)) AS s FROM a GROUP BY id)", (ROW,)),
        ("SELECT id, session_window(at, '5 minutes') AS w, count(*) AS n FROM a GROUP BY id, w", (ROW,)),
        ("SELECT DISTINCT id, session_window(at, '5 minutes') AS w FROM a", (ROW,)),
    ],
)
def test_a_group_that_may_have_several_rows_is_no_key(query: str, keys: tuple[str, ...]) -> None:
    """The strategy that CREATE MATERIALIZED VIEW chooses has a digest of the row as the key."""
    assert answer_query(AnalyzedQuery(query=query, relations=()), None).keys == keys
    whole = answer_query(AnalyzedQuery(query=query, relations=(), form=WHOLE), None)
    assert (whole.operators == {"Aggregate"}) is (keys == ("id",) or "GROUP BY id, w" in query)
