"""The changes of a folder in which a view changes together with the views that read it."""

from __future__ import annotations

import pytest

from rw_sql.model.relations import schema_columns
from tests.support.offline_warehouse import OfflineWarehouse

SOURCE = (
    "CREATE SOURCE s (id INT, amount INT) WITH (connector = 'kafka', topic = 't', "
    "properties.bootstrap.server = '127.0.0.1:9092') FORMAT PLAIN ENCODE JSON;\n"
)
BASE = "CREATE MATERIALIZED VIEW base AS SELECT id, amount FROM s;\n"
READER = "CREATE MATERIALIZED VIEW reader AS SELECT id, amount FROM base;\n"
OTHER = "CREATE MATERIALIZED VIEW other AS SELECT id FROM base;\n"
TOP = "CREATE MATERIALIZED VIEW top AS SELECT amount FROM reader;\n"


def changed(*texts: str) -> tuple[OfflineWarehouse, dict[str, str], list[tuple[str, str, str]]]:
    """A warehouse with all views, a folder that differs from it, and the changes: action, name and reason."""
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": SOURCE + BASE + READER + OTHER + TOP})
    folder = {"a.sql": SOURCE + "".join(texts)}
    return warehouse, folder, [(c.action, c.name, c.reason) for c in warehouse.changes(folder)]


@pytest.mark.parametrize(
    ("base", "reader", "why"),
    [
        pytest.param(
            BASE.replace("amount FROM", "amount AS cents FROM"),
            READER.replace("amount FROM", "cents AS amount FROM"),
            "base gets another query: ",
            id="a column of the base gets another name",
        ),
        pytest.param(
            BASE.replace("amount FROM", "amount::BIGINT AS amount FROM"),
            READER,
            'base gets another query: the type of its column "amount" would change from INT to BIGINT',
            id="a column of the base gets another type",
        ),
    ],
)
def test_a_view_that_cannot_follow_a_rebuild_is_created_again(base: str, reader: str, why: str) -> None:
    warehouse, folder, changes = changed(base, reader, OTHER, TOP)
    assert [(action, name) for action, name, _ in changes] == [
        ("recreate", "top"),
        ("recreate", "reader"),
        ("rebuild", "base"),
        ("recreate", "reader"),
        ("recreate", "top"),
    ]
    reasons = {name: reason for _, name, reason in changes}
    assert reasons["reader"].startswith(why)
    assert reasons["top"] == "an object that it depends on is created again"
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()


def test_views_that_can_follow_a_rebuild_are_not_created_again() -> None:
    warehouse, folder, changes = changed(
        BASE.replace("amount FROM", "amount, id + 1 AS next FROM"),
        READER,
        OTHER.replace("id FROM", "id, next FROM"),
        TOP,
    )
    assert [(action, name) for action, name, _ in changes] == [("rebuild", "base"), ("rebuild", "other")]
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()


TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR) WITH (connector = 'kafka', topic = 't', "
    "properties.bootstrap.server = '127.0.0.1:9092') FORMAT UPSERT ENCODE JSON;\n"
)
WIDER = TABLE.replace("v VARCHAR", "v VARCHAR, n INT")
STAR = "CREATE MATERIALIZED VIEW star AS SELECT * FROM t;\n"
ABOVE = "CREATE MATERIALIZED VIEW above AS SELECT * FROM star;\n"
NEEDS = "CREATE MATERIALIZED VIEW needs AS SELECT n FROM star;\n"
SINK = (
    "CREATE SINK k FROM {0} WITH (connector = 'kafka', topic = 'o', properties.bootstrap.server = '127.0.0.1:9092', "
    "type = 'upsert', primary_key = 'id') FORMAT UPSERT ENCODE JSON;\n"
)


def columns(warehouse: OfflineWarehouse, view: str) -> list[str]:
    record = warehouse.snapshot.find("materialized_view", view)
    assert record is not None
    return [name for name, _ in schema_columns(record.schema)]


def changes_of(warehouse: OfflineWarehouse, *texts: str) -> list[tuple[str, str, str]]:
    return [(c.action, c.name, c.reason) for c in warehouse.changes({"a.sql": "".join(texts)})]


def of(*texts: str) -> OfflineWarehouse:
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": "".join(texts)})
    return warehouse


@pytest.mark.parametrize("until", [1, 2, 3, None])
def test_a_view_gets_the_columns_that_its_star_selects(until: int | None) -> None:
    """Also if the deployment was interrupted after the table had its column."""
    warehouse = of(TABLE, STAR, ABOVE)
    folder = {"a.sql": WIDER + STAR + ABOVE + NEEDS}
    assert changes_of(warehouse, *folder.values()) == [
        ("alter", "t", ""),
        ("rebuild", "star", "its * now selects n too"),
        ("create", "needs", ""),
    ]
    warehouse.apply(folder, statements=until)
    if until == 1:
        assert columns(warehouse, "star") == ["id", "v"]
        assert changes_of(warehouse, *folder.values())[0] == ("rebuild", "star", "its * now selects n too")
    if until == 2:
        reason = "a rebuild with this definition is already running, or is begun again if it is stalled"
        assert changes_of(warehouse, *folder.values())[0] == ("rebuild", "star", reason)
    warehouse.apply(folder)
    assert warehouse.changes(folder) == ()
    assert columns(warehouse, "star") == columns(warehouse, "above") == ["id", "v", "n"]
    assert columns(warehouse, "needs") == ["n"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS amount FROM t",
        "SELECT id FROM t",
        "SELECT x.id FROM (SELECT * FROM t) AS x",
        "SELECT * EXCEPT (n) FROM (SELECT *, 1 AS n FROM t)",
    ],
)
def test_a_view_that_selects_no_new_column_is_left_as_it_is(query: str) -> None:
    view = f"CREATE MATERIALIZED VIEW star AS {query};\n"
    assert changes_of(of(TABLE, view), WIDER, view) == [("alter", "t", "")]


def test_a_view_that_names_its_columns_is_left_as_it_is() -> None:
    view = STAR.replace("star AS", "star (a, b) AS")
    assert changes_of(of(TABLE, view), WIDER, view) == [("alter", "t", "")]


def test_a_view_whose_table_loses_a_column_too_is_created_again() -> None:
    other = TABLE.replace("v VARCHAR", "n INT")
    warehouse = of(TABLE, STAR)
    reason = 'it may use column "v" of t, which is dropped'
    assert changes_of(warehouse, other, STAR) == [
        ("recreate", "star", reason),
        ("alter", "t", ""),
        ("recreate", "star", reason),
    ]
    warehouse.apply({"a.sql": other + STAR})
    assert (changes_of(warehouse, other, STAR), columns(warehouse, "star")) == ([], ["id", "n"])


def test_an_option_and_the_columns_change_together() -> None:
    view = STAR.replace(" AS", " WITH (backfill_rate_limit = 5) AS")
    warehouse = of(TABLE, STAR)
    warehouse.apply({"a.sql": WIDER + view})
    assert (changes_of(warehouse, WIDER, view), columns(warehouse, "star")) == ([], ["id", "v", "n"])


def test_a_view_whose_rows_sinks_have_sent_keeps_its_columns_unless_one_is_needed() -> None:
    sink = SINK.format("star")
    warehouse = of(TABLE, STAR, sink)
    note = "materialized view star does not get n, because sinks have sent its rows: k"
    assert changes_of(warehouse, WIDER, STAR, sink) == [("alter", "t", note)]
    why = "its * now selects n too, and sinks have sent its rows: k"
    wanted = [
        ("recreate", "k", ""),
        ("recreate", "star", why),
        ("alter", "t", ""),
        ("recreate", "star", why),
        ("create", "needs", ""),
        ("recreate", "k", "an object that it depends on is created again"),
    ]
    assert changes_of(warehouse, WIDER, STAR, sink, NEEDS) == wanted
    warehouse.apply({"a.sql": WIDER + STAR + sink})
    assert changes_of(warehouse, WIDER, STAR, sink) == []
    assert [change for change in changes_of(warehouse, WIDER, STAR, sink, NEEDS) if change[1] == "star"] == [
        ("recreate", "star", why),
        ("recreate", "star", why),
    ]
    warehouse.apply({"a.sql": WIDER + STAR + sink + NEEDS})
    assert changes_of(warehouse, WIDER, STAR, sink, NEEDS) == []


def test_a_view_that_cannot_be_rebuilt_keeps_its_columns() -> None:
    source = SOURCE.replace("topic", "shared = 'false', topic")
    view = "CREATE MATERIALIZED VIEW star AS SELECT t.* FROM s JOIN t ON s.id = t.id;\n"
    note = "materialized view star does not get n, because a source that it reads is not shared"
    assert changes_of(of(TABLE, source, view), WIDER, source, view) == [("alter", "t", note)]


def test_a_sink_that_does_not_get_a_column_is_noted() -> None:
    sink = SINK.format("t")
    note = "sink k does not get n, because the columns of a sink cannot change in place"
    assert changes_of(of(TABLE, sink), WIDER, sink) == [("alter", "t", note)]
