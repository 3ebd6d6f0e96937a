"""Tables with a connector in a canned world. The module makes their statements, and the results of Spark's analysis of
their queries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from rw_sql.plan.ports.queries import QueryAnalysis
from rw_sql.syntax import parse_statement, render
from tests.plan.canned import HERE, CannedWorld

if TYPE_CHECKING:
    from rw_sql.metastore.records import SourceRecord, TableRecord
    from rw_sql.plan.ports.queries import AnalyzedQuery

_JSON_TYPES = {"INT": "integer", "BIGINT": "long"}


def create_table(
    columns: str, after: str = "", *, name: str = "t", topic: str = "old", at: str = HERE, include: str = ""
) -> str:
    """A CREATE TABLE over Kafka; ``after`` follows the columns."""
    return (
        f"CREATE TABLE {name} ({columns}) {after} {include} WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{at}') FORMAT PLAIN ENCODE JSON"
    )


KEYED = create_table("id INT PRIMARY KEY, name VARCHAR")


def tables_world(*texts: str) -> CannedWorld:
    """A world with the topics ``old`` (two partitions) and ``new``, and with the results of Spark's analysis for
    queries of plain columns."""
    world = CannedWorld(analyze=analyzed)
    world.put_topic("old", (10, 50), (0, 50))
    world.put_topic("new", (0, 5), (3, 9), (0, 0))
    if texts:
        world.run(*texts)
    return world


def analyzed(request: AnalyzedQuery) -> QueryAnalysis:
    """The schema of a query over its relations: columns, casts and the arguments of COALESCE."""
    types = {name: kind for relation in request.relations for name, kind in relation.columns}
    fields = []
    query = parse_one(request.query, read="spark")
    missing = sorted({column.name for column in query.find_all(exp.Column)} - types.keys())
    if missing:
        return QueryAnalysis(refusal=f"column {missing[0]} cannot be resolved")
    for item in query.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(inner, exp.Cast):
            kind = inner.to.sql(dialect="spark")
        elif isinstance(inner, exp.Star):
            fields += [_field(name, of) for name, of in types.items()]
            continue
        else:
            kind = types.get(next(inner.find_all(exp.Column)).name if inner.find(exp.Column) else "", "BIGINT")
        fields.append(_field(item.alias_or_name, kind))
    return QueryAnalysis(schema=json.dumps({"type": "struct", "fields": fields}), operators=frozenset({"Project"}))


def _field(name: str, kind: str) -> dict[str, object]:
    return {"name": name, "type": _JSON_TYPES.get(kind, kind.lower()), "nullable": True, "metadata": {}}


def table(world: CannedWorld, name: str = "t") -> TableRecord:
    """A table of the catalog."""
    record = world.snapshot.find("table", name)
    assert record is not None
    return record


def source(world: CannedWorld, name: str = "t") -> SourceRecord:
    """A table's source."""
    record = world.snapshot.find("source", name)
    assert record is not None
    return record


def shown(world: CannedWorld, kind: str) -> str:
    """The output of SHOW CREATE for ``t``."""
    plan = world.plan(f"SHOW CREATE {kind} t")
    assert plan.table is not None
    return str(plan.table.rows[0][1])


def both_are_true(world: CannedWorld) -> None:
    """Asserts that the statements from SHOW CREATE TABLE and SHOW CREATE SOURCE create the same two objects in an empty
    catalog."""
    of_table, of_source = parse_statement(shown(world, "TABLE")), parse_statement(shown(world, "SOURCE"))
    assert render(of_table) == table(world).definition
    assert render(of_source) == source(world).definition
    connections = [connection.definition for connection in world.snapshot.all("connection")]
    recreated = tables_world(*connections)
    recreated.topics, recreated.silent = dict(world.topics), set(world.silent)
    recreated.run(shown(world, "TABLE"))
    assert (source(recreated).definition, source(recreated).options) == (
        source(world).definition,
        source(world).options,
    )
    assert table(recreated).definition == table(world).definition
    alone = tables_world(*connections)
    alone.topics, alone.silent = dict(world.topics), set(world.silent)
    alone.run(shown(world, "SOURCE"))
    assert source(alone).definition == source(world).definition


def sink(how: str, of: str = "t") -> str:
    """A CREATE SINK into Kafka."""
    return (
        f"CREATE SINK k FROM {of} WITH (connector = 'kafka', topic = 'new', properties.bootstrap.server = '{HERE}') "
        f"FORMAT {how} ENCODE JSON"
    )
