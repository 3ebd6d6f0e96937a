"""The changes of a folder in which a view changes together with the views that read it."""

from __future__ import annotations

import pytest

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
