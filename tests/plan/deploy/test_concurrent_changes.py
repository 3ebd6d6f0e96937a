"""A deployment does not overwrite what another session changes while the deployment waits for a rebuild."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.deploy import execution
from rw_sql.cli.deploy.execution import carry_out
from rw_sql.errors import SqlError
from rw_sql.plan.deploy.plan_file import saved_plan
from tests.plan.deploy.test_changes import script
from tests.plan.tables import sink
from tests.support.offline_warehouse import OfflineWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.plan.deploy.change import DeployChange

KAFKA = "connector = 'kafka', topic = 't', properties.bootstrap.server = '127.0.0.1:9092'"
SOURCE = f"CREATE SOURCE s (id INT, a INT, b INT) WITH ({KAFKA}) FORMAT PLAIN ENCODE JSON"
TABLE = f"CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH ({KAFKA}) FORMAT UPSERT ENCODE JSON"
ONE = "CREATE MATERIALIZED VIEW one AS SELECT id FROM s"
TWO = "CREATE MATERIALIZED VIEW two AS SELECT id FROM s"
OLD = "CREATE MATERIALIZED VIEW old AS SELECT id FROM s"
OF_TABLE = "CREATE MATERIALIZED VIEW of_table AS SELECT id, a FROM t"
WITHOUT_A = OF_TABLE.replace("id, a", "id")
FEED = sink("PLAIN", "s").replace("SINK k", "SINK feed")
BEFORE = (SOURCE, TABLE, ONE, TWO, OLD, OF_TABLE, FEED)


def replaced(text: str, columns: str) -> str:
    return text.replace("SELECT id", f"SELECT {columns}")


class Deployment:
    """Carries out the changes of a folder. ``meanwhile`` runs when the deployment waits for the rebuild of ``one``."""

    def __init__(
        self, warehouse: OfflineWarehouse, *texts: str, meanwhile: Callable[[OfflineWarehouse], None] | None = None
    ) -> None:
        self.warehouse = warehouse
        self.location = SimpleNamespace(uri="w")
        self.changes = warehouse.changes({"a.sql": script(*texts)})
        self.made: list[DeployChange] = []
        self._meanwhile = meanwhile

    @contextmanager
    def session(self) -> Iterator[None]:
        yield None

    def run(self, _: object, text: str) -> None:
        self.warehouse.run(text)
        if text.startswith("WAIT"):
            self.warehouse.catch_up()
        if text == "WAIT MATERIALIZED VIEW one" and self._meanwhile is not None:
            self._meanwhile(self.warehouse)

    def carry_out(self) -> list[str]:
        """The names of the changed objects."""
        plan = saved_plan(self.warehouse.snapshot, "w", self.changes)
        carry_out(self, plan, self.changes, self.made, (), "run it again", None)  # type: ignore[arg-type]
        return [change.name for change in self.made]


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch) -> OfflineWarehouse:
    found = OfflineWarehouse({})
    found.apply({"a.sql": script(*BEFORE)})
    monkeypatch.setattr(execution, "catalog_of", lambda _: (None, found.snapshot))
    monkeypatch.setattr(execution, "_require_possible", lambda *_: None)
    return found


FIRST = (SOURCE, TABLE, replaced(ONE, "id, a"), replaced(TWO, "id, a"), OLD, OF_TABLE, FEED)


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_newer_query_that_was_applied_meanwhile_is_kept(warehouse: OfflineWarehouse, *, is_complete: bool) -> None:
    """Otherwise, both deployments would succeed, and the warehouse would have the older definition."""
    newer = {"a.sql": script(SOURCE, TABLE, replaced(ONE, "id, a"), replaced(TWO, "id, b"), OLD, OF_TABLE, FEED)}
    deployment = Deployment(
        warehouse, *FIRST, meanwhile=lambda found: found.apply(newer, statements=None if is_complete else 1)
    )
    with pytest.raises(SqlError, match='materialized view "two" was changed by another session since') as caught:
        deployment.carry_out()
    assert caught.value.code == "RW309"
    assert caught.value.hint == (
        "rw-sql diff shows the remaining changes, which may overwrite the other session's change; to make them, "
        "run it again"
    )
    assert [change.name for change in deployment.made] == ["one"]
    warehouse.apply(newer)
    assert warehouse.changes(newer) == ()


@pytest.mark.parametrize(
    ("texts", "statement", "told"),
    [
        (FIRST, "DROP MATERIALIZED VIEW two", 'materialized view "two" was dropped by another session'),
        (FIRST, "ALTER MATERIALIZED VIEW two RENAME TO three", '"two" was changed by another session'),
        (FIRST, "ALTER MATERIALIZED VIEW two SWAP WITH old", '"two" was changed by another session'),
        (FIRST, "ALTER SOURCE s RENAME TO events", '"two" was changed by another session'),
        (
            tuple(text for text in FIRST if text != OLD),
            replaced(OLD, "id, b").replace("CREATE", "CREATE OR REPLACE"),
            'materialized view "old" was changed by another session',
        ),
        (
            (SOURCE, TABLE.replace(", a INT", ""), replaced(ONE, "id, a"), TWO, OLD, WITHOUT_A, FEED),
            "ALTER TABLE t ADD COLUMN c INT",
            'table "t" was changed by another session',
        ),
    ],
    ids=["dropped", "renamed", "exchanged", "an input is renamed", "a view to drop", "a table"],
)
def test_other_changes_meanwhile_are_kept_too(
    warehouse: OfflineWarehouse, texts: tuple[str, ...], statement: str, told: str
) -> None:
    deployment = Deployment(warehouse, *texts, meanwhile=lambda found: found.run(statement))
    with pytest.raises(SqlError, match=told):
        deployment.carry_out()


@pytest.mark.parametrize(
    "statement",
    [
        "PAUSE SOURCE s",
        "CREATE MATERIALIZED VIEW unrelated AS SELECT id FROM one",
        "REBUILD MATERIALIZED VIEW two",
        "ALTER MATERIALIZED VIEW old SET BACKFILL_RATE_LIMIT = 5",
        "ALTER MATERIALIZED VIEW one SET BACKFILL_RATE_LIMIT = 5",
    ],
)
def test_what_changes_no_definition_of_the_remaining_changes_does_not_end_a_deployment(
    warehouse: OfflineWarehouse, statement: str
) -> None:
    deployment = Deployment(warehouse, *FIRST, meanwhile=lambda found: found.run(statement))
    assert deployment.carry_out() == ["one", "two"]


def test_a_deployment_is_not_refused_because_of_its_own_statements(warehouse: OfflineWarehouse) -> None:
    """The rename changes the definitions of all readers, and each rebuild changes the definition of its view."""
    texts = (
        "-- rw: renamed from s\n" + SOURCE.replace("SOURCE s", "SOURCE events"),
        TABLE.replace(", a INT", ", b INT"),
        replaced(ONE, "id, a").replace("FROM s", "FROM events"),
        "-- rw: renamed from two\n" + replaced(TWO, "id, b").replace("two", "second").replace("FROM s", "FROM events"),
        WITHOUT_A,
        FEED.replace("FROM s", "FROM events").replace("'new'", "'other'"),
    )
    deployment = Deployment(warehouse, *texts)
    assert set(deployment.carry_out()) == {"events", "second", "t", "one", "of_table", "old", "feed"}
    assert warehouse.changes({"a.sql": script(*texts)}) == ()
