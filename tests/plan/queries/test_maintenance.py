"""The maintenance of views: the strategy for a query, the output of EXPLAIN, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.records import CHANGES, COMBINED, DIFF, KEYS, SIGNED, UPSERT, MaterializedViewRecord
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from rw_sql.plan.ports.queries import STREAM, TABLESAMPLE, WHOLE, QueryAnalysis
from tests.plan.canned import CannedWorld, create_source, refused

if TYPE_CHECKING:
    from rw_sql.plan.ports.queries import AnalyzedQuery

COLUMNS = {"k": "string", "n": "long", "x": "double"}


def schema(*names: str) -> str:
    fields = [{"name": name, "type": COLUMNS.get(name, "long"), "nullable": True, "metadata": {}} for name in names]
    return json.dumps({"type": "struct", "fields": fields})


def columns_of(query: str) -> list[str]:
    """The names of a query's columns: the name after AS, or the whole item."""
    listed, depth, at = [""], 0, len("SELECT ")
    while at < len(query) and not (depth == 0 and query[at:].startswith(" FROM ")):
        depth += {"(": 1, ")": -1}.get(query[at], 0)
        if query[at] == "," and depth == 0:
            listed.append("")
        else:
            listed[-1] += query[at]
        at += 1
    return [item.rpartition(" AS ")[2].strip().strip("`").rpartition(".")[2] for item in listed]


def analyzed(request: AnalyzedQuery) -> QueryAnalysis:
    """As Spark would, for the queries of this module."""
    is_group = "GROUP BY k" in request.query and "HAVING" not in request.query
    written = request.query.replace("rand()", "rand")
    is_lifted = "CAST(" in request.query or "_rw_groups" in request.query
    if (
        request.form == STREAM
        and not is_group
        and not is_lifted
        and any(word in written for word in ("(", "LIMIT", "LEFT JOIN"))
    ):
        return QueryAnalysis(refusal="not streamed", hint="no")
    if request.form == WHOLE and "nothing" in request.query:
        return QueryAnalysis(refusal="there is no such column")
    names = columns_of(request.query.replace("SELECT DISTINCT", "SELECT"))
    keys = ("k",) if is_group and request.form == STREAM else ()
    varies = next((word for word in ("rand()", TABLESAMPLE) if word in request.query), None)
    found = schema(*names)
    if request.query.startswith("SELECT x AS a0") or "SUM(x) AS _rw_part_1" in request.query:
        found = found.replace("long", "double")
    if "COLLATE" in request.query and "_rw_part_0" in names:
        collations = '"metadata": {"__COLLATIONS": {"_rw_part_0": "spark.UTF8_LCASE"}}'
        found = found.replace('"metadata": {}', collations)
    return QueryAnalysis(
        schema=found,
        keys=keys,
        operators=frozenset({"Project", "Filter", "Range"}),
        varies=varies,
        varies_in="Filter" if varies and "WHERE" in request.query else None,
    )


@pytest.fixture
def world() -> CannedWorld:
    """A source ``s``, a view ``r`` of its rows and a view ``v`` that replaces its rows."""
    made = CannedWorld(analyze=analyzed)
    made.put_topic("t", (0, 10))
    made.run(
        create_source("s", "t"),
        "CREATE MATERIALIZED VIEW r AS SELECT k, n, x FROM s",
        "CREATE MATERIALIZED VIEW v AS SELECT k, sum(n) AS n, sum(x) AS x FROM s GROUP BY k",
    )
    return made


def made(world: CannedWorld, query: str) -> MaterializedViewRecord:
    world.run(f"CREATE MATERIALIZED VIEW m AS {query}")
    record = world.snapshot.find("materialized_view", "m")
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("query", "strategy", "keys", "said"),
    [
        ("SELECT k, n FROM s", "", (), "incremental: rows are only appended"),
        ("SELECT k, count(n) AS n FROM s GROUP BY k", COMBINED, ("k",), "incremental: new rows are combined"),
        ("SELECT count(n) AS n FROM s", COMBINED, ("_rw_key_0",), "incremental: new rows are combined"),
        ("SELECT max_by(n, x) AS n FROM s", UPSERT, ("_rw_key_0",), "incremental: one row is kept"),
        ("SELECT k, max_by(n, x) AS n FROM s GROUP BY k", "", ("k",), "incremental: the groups are kept"),
        ("SELECT k, round(sum(n)) AS n FROM s GROUP BY k", COMBINED, ("k",), "incremental: new rows are combined"),
        (
            "SELECT k, length(max(k COLLATE UTF8_LCASE)) AS n FROM s GROUP BY k",
            "",
            ("k",),
            "incremental: the groups are",
        ),
        ("SELECT max(n) AS n FROM s GROUP BY k HAVING max(n) > 1", UPSERT, ("_rw_key_0",), "incremental: the groups"),
        ("SELECT k FROM v WHERE n > 1", CHANGES, ("k",), "incremental: the changed rows of v"),
        ("SELECT n FROM v", CHANGES, ("_rw_key_0",), "incremental: the changed rows of v"),
        ("SELECT n, count(*) AS c FROM v GROUP BY n", COMBINED, ("n",), "incremental: counts and sums"),
        ("SELECT sum(n) AS c FROM v", COMBINED, ("_rw_key_0",), "incremental: counts and sums"),
        (
            "SELECT n, count(*) AS c FROM v GROUP BY n HAVING count(*) > 1",
            SIGNED,
            ("n",),
            "incremental: counts and sums",
        ),
        ("SELECT n, sum(x) AS c FROM v GROUP BY n", KEYS, ("n",), "recomputed: the groups of changed rows"),
        ("SELECT n, max(k) AS c FROM v GROUP BY n", KEYS, ("n",), "recomputed: the groups of changed rows"),
        ("SELECT DISTINCT n FROM v", COMBINED, ("n",), "incremental: the changes of v update the number of equal rows"),
        ("SELECT DISTINCT x FROM v", KEYS, ("x",), "recomputed: the results of changed rows"),
        (
            "SELECT r.k AS k, v.n AS n FROM r LEFT JOIN v ON r.k = v.k",
            KEYS,
            ("_rw_row",),
            "recomputed: the rows with the join keys",
        ),
        (
            "SELECT k, n FROM v ORDER BY n LIMIT 3",
            DIFF,
            ("_rw_row",),
            "recomputed: it has a LIMIT or an OFFSET",
        ),
        (
            "SELECT k, n FROM r ORDER BY n LIMIT 3",
            DIFF,
            ("_rw_row",),
            "recomputed: it has a LIMIT or an OFFSET",
        ),
        ("SELECT rank() OVER (ORDER BY n) AS c FROM v", DIFF, ("_rw_row",), "recomputed: it numbers or compares rows"),
    ],
)
def test_each_query_has_its_strategy(
    world: CannedWorld, query: str, strategy: str, keys: tuple[str, ...], said: str
) -> None:
    first = world.explained(f"CREATE MATERIALIZED VIEW m AS {query}").splitlines()[0]
    assert first.startswith(said)
    view = made(world, query)
    assert (view.maintenance.strategy, view.keys) == (strategy, keys)
    hidden = {key for key in keys if key.startswith("_rw_")}
    names = {field["name"] for field in json.loads(view.maintenance.hidden or schema())["fields"]}
    assert hidden <= names
    spec = desired_jobs(world.snapshot)[f"mv-{view.id}"]
    assert isinstance(spec, ViewSpec)
    assert {*hidden, *columns_of(query.replace("DISTINCT ", ""))} <= {
        field["name"] for field in json.loads(spec.schema)["fields"]
    }


def test_a_view_that_replaces_its_rows_keeps_its_changes_for_its_readers(world: CannedWorld) -> None:
    plan = world.plan("CREATE MATERIALIZED VIEW m AS SELECT k FROM v")
    assert [step.describe() for step in plan.steps][-2:] == ["RestartJob mv-3", "StartJob mv-4"]
    world.run("CREATE MATERIALIZED VIEW m AS SELECT k FROM v")
    record = world.snapshot.find("materialized_view", "v")
    assert record is not None
    assert record.has_change_feed


def test_what_is_computed_again_needs_rows_that_stay(world: CannedWorld) -> None:
    error = refused(world, "CREATE MATERIALIZED VIEW m AS SELECT k FROM s ORDER BY n LIMIT 3")
    assert error.code == "RW215"
    assert "cannot be kept up to date over a source: it has a LIMIT or an OFFSET" in error.message
    assert (error.hint or "").startswith("CREATE MATERIALIZED VIEW s_rows AS SELECT * FROM s")


def test_what_is_computed_again_must_come_out_the_same(world: CannedWorld) -> None:
    error = refused(world, "CREATE MATERIALIZED VIEW m AS SELECT k FROM v ORDER BY rand() LIMIT 3")
    assert "rand()" in error.message


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM s WHERE n > rand()",
        "SELECT k, sum(rand() + n) AS n FROM s GROUP BY k",
        "SELECT k, rand() AS r FROM v",
        "SELECT k FROM v WHERE n > rand()",
        "SELECT k, count(*) AS n FROM v WHERE n > rand() GROUP BY k",
    ],
)
def test_what_changes_by_itself_is_no_view_that_follows_its_inputs(world: CannedWorld, query: str) -> None:
    error = refused(world, f"CREATE MATERIALIZED VIEW m AS {query}")
    assert error.code == "RW215"
    assert "rand(), whose value changes over time" in error.message


@pytest.mark.parametrize("relation", ["s", "r", "v"])
def test_a_view_does_not_draw_a_sample(world: CannedWorld, relation: str) -> None:
    error = refused(world, f"CREATE MATERIALIZED VIEW m AS SELECT k FROM {relation} TABLESAMPLE (10 PERCENT)")
    assert error.code == "RW215"
    assert error.message == "the query has TABLESAMPLE, which draws other rows each time the query runs"
    assert error.span is not None
    assert "WHERE pmod(hash(column), 10) = 0" in (error.hint or "")


def test_a_row_that_stays_keeps_what_a_function_gave(world: CannedWorld) -> None:
    plan = world.plan("CREATE MATERIALIZED VIEW m AS SELECT k, rand() AS r FROM s")
    (notice,) = [row.detail for row in plan.changes if row.change == "NOTICE"]
    assert notice.startswith("the query uses rand(): each row keeps the value from when the row was read")


def test_windows_over_a_view_that_replaces_its_rows_never_close(world: CannedWorld) -> None:
    error = refused(world, "CREATE MATERIALIZED VIEW m AS SELECT k, n FROM v GROUP BY k EMIT ON WINDOW CLOSE")
    assert "never closes" in error.message


def test_a_text_that_means_something_else_is_not_taken_apart(world: CannedWorld) -> None:
    world.analyze = lambda request: QueryAnalysis(schema=schema("n"), is_same=False)
    view = made(world, "SELECT n FROM v")
    assert view.maintenance.strategy == DIFF


def test_columns_are_named_in_a_list(world: CannedWorld) -> None:
    world.run("CREATE MATERIALIZED VIEW m (a, b) AS SELECT k, n FROM r")
    view = world.snapshot.find("materialized_view", "m")
    assert view is not None
    assert view.query == "SELECT `k` AS `a`, `n` AS `b` FROM (SELECT k, n FROM r) AS `_rw_query`"
    assert view.definition.startswith("CREATE MATERIALIZED VIEW m (a, b) AS")
    error = refused(world, "CREATE MATERIALIZED VIEW w (a) AS SELECT k, n FROM r")
    assert "names 1 columns, but its query has 2" in error.message


def test_a_renamed_view_takes_its_readers_along(world: CannedWorld) -> None:
    world.run(
        "CREATE MATERIALIZED VIEW m AS SELECT v.k FROM v WHERE v.n > 1",
        "CREATE SINK out FROM v WITH (connector = 'deltalake', location = '/tmp/o', type = 'upsert')",
    )
    plan = world.run("ALTER MATERIALIZED VIEW v RENAME TO renamed")
    assert [(row.object, row.change, row.detail) for row in plan.changes] == [
        ("renamed", "RENAMED", "was v"),
        ("m", "ALTERED", "reads renamed"),
        ("out", "ALTERED", "reads renamed"),
    ]
    view, sink = world.snapshot.find("materialized_view", "m"), world.snapshot.find("sink", "out")
    assert view is not None
    assert sink is not None
    assert view.query == "SELECT v.k FROM renamed AS v WHERE v.n > 1"
    assert "FROM renamed AS v" in view.definition
    assert "FROM renamed AS v" in view.maintenance.query
    assert "FROM renamed" in sink.definition
    assert world.snapshot.find("materialized_view", "v") is None
    assert world.answers("ALTER MATERIALIZED VIEW renamed RENAME TO renamed")[0][0] == "NOTHING"
    assert refused(world, "ALTER MATERIALIZED VIEW renamed RENAME TO r").code == "RW201"
    assert refused(world, "ALTER MATERIALIZED VIEW v RENAME TO w").code == "RW203"


def test_no_sink_follows_rows_that_its_columns_do_not_tell_apart(world: CannedWorld) -> None:
    world.run("CREATE MATERIALIZED VIEW m AS SELECT n FROM v")
    error = refused(
        world, "CREATE SINK out FROM m WITH (connector = 'deltalake', location = '/tmp/o', type = 'upsert')"
    )
    assert error.code == "RW610" or "identify a row" in error.message


_JOIN = "SELECT s.k AS k, v.n AS n FROM s LEFT JOIN v ON s.k = v.k"


def test_a_recomputed_view_reads_the_log_and_has_no_history(world: CannedWorld) -> None:
    """It reads the log again when its other inputs change, so a staging table beside the log would be of no use."""
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    world.read_on("s", t_0=8)
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('t:0' = 2) ALLOW DUPLICATES", "RESUME SOURCE s")
    world.run_number = 2
    world.read_on("s", t_0=9)
    plan = world.plan(f"CREATE MATERIALIZED VIEW m AS {_JOIN}")
    (notice,) = [row.detail for row in plan.changes if row.change == "NOTICE"]
    assert notice.startswith("the view is recomputed from the rows in the log of s, which are not exactly the records")
    assert notice.endswith("CREATE MATERIALIZED VIEW s_rows AS SELECT * FROM s, and query s_rows")
    record = made(world, _JOIN)
    assert (record.maintenance.strategy, record.histories) == (KEYS, ())
    world.run("REBUILD MATERIALIZED VIEW m REASON 'again'")
    (rebuild,) = world.snapshot.all("rebuild")
    assert rebuild.histories == ()
    # A view whose rows are only added gets each record once.
    world.run("CREATE MATERIALIZED VIEW once AS SELECT k, n FROM s")
    once = world.snapshot.find("materialized_view", "once")
    assert once is not None
    assert once.histories


def test_a_recomputed_view_over_a_log_that_has_each_record_once_needs_no_notice(world: CannedWorld) -> None:
    world.read_on("s", t_0=8)
    assert [row.change for row in world.plan(f"CREATE MATERIALIZED VIEW m AS {_JOIN}").changes] == ["CREATED"]


def test_a_view_with_a_beginning_that_becomes_recomputed_is_told_so(world: CannedWorld) -> None:
    world.run("CREATE MATERIALIZED VIEW m WITH (scan.startup.mode = 'latest') AS SELECT k, n FROM s")
    plan = world.plan(f"ALTER MATERIALIZED VIEW m AS {_JOIN}")
    notices = [row.detail for row in plan.changes if row.change == "NOTICE"]
    assert any(said.startswith('property "scan.startup.mode" has no effect') for said in notices)


def test_a_recomputed_view_has_no_beginning_of_its_own(world: CannedWorld) -> None:
    error = refused(world, f"CREATE MATERIALIZED VIEW m WITH (scan.startup.mode = 'latest') AS {_JOIN}")
    assert error.message == (
        'property "scan.startup.mode" has no effect: materialized view "m" is recomputed from all rows in the log of '
        'source "s"'
    )
    assert error.hint is not None
    assert "CREATE MATERIALIZED VIEW s_rows WITH (…) AS SELECT * FROM s" in error.hint


@pytest.mark.parametrize("name", ["Average", "BoolAnd", "PythonUDAF"])
def test_an_aggregate_that_cannot_subtract_is_computed_again(name: str) -> None:
    """The signed form of a query may have an aggregate that is not rewritten, because its name is unknown."""

    def with_aggregate(request: AnalyzedQuery) -> QueryAnalysis:
        return replace(analyzed(request), aggregates=frozenset({"Sum", name}))

    world = CannedWorld(analyze=analyzed)
    world.put_topic("t", (0, 10))
    world.run(
        create_source("s", "t"), "CREATE MATERIALIZED VIEW v AS SELECT k, sum(n) AS n, sum(y) AS y FROM s GROUP BY k"
    )
    world.analyze = with_aggregate
    record = made(world, "SELECT n, count(*) AS c, mean(y) AS m FROM v GROUP BY n")
    assert record.maintenance.strategy == KEYS
