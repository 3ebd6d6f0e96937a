"""``rw-sql apply`` continues a rebuild that an earlier ``apply`` began, and begins it again only if it is stalled."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.deploy import execution
from rw_sql.cli.deploy.execution import carry_out
from rw_sql.errors import SqlError
from rw_sql.plan.deploy.plan_file import saved_plan
from tests.support.offline_warehouse import OfflineWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = (
    "CREATE SOURCE s (id INT, a INT, b INT) WITH (connector = 'kafka', topic = 't', "
    "properties.bootstrap.server = '127.0.0.1:9092') FORMAT PLAIN ENCODE JSON;\n"
)
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id FROM s;\n"
FOLDER = {
    "a.sql": SOURCE + VIEW.replace("id FROM", "id, a FROM") + "CREATE MATERIALIZED VIEW w AS SELECT a FROM v;\n",
}
WAIT, BEGIN, READER = "WAIT", "CREATE OR REPLACE MATERIALIZED VIEW v", "CREATE MATERIALIZED VIEW w"


class Runner:
    """Runs statements on a catalog. The first ``stalled`` WAITs end before the rebuild is complete. During the first
    WAIT, another session runs ``meanwhile``."""

    def __init__(self, warehouse: OfflineWarehouse, stalled: int, meanwhile: str = "") -> None:
        self.location = SimpleNamespace(uri="w")
        self.warehouse = warehouse
        self.ran: list[str] = []
        self._stalled = stalled
        self._meanwhile = meanwhile

    @contextmanager
    def session(self) -> Iterator[None]:
        yield None

    def run(self, _: object, text: str) -> None:
        self.ran.append(text.split(" MATERIALIZED")[0] if text.startswith("WAIT") else text.split(" AS ")[0])
        self.warehouse.run(text)
        if not text.startswith("WAIT"):
            return
        if self._stalled:
            self._stalled -= 1
        else:
            self.warehouse.catch_up()
        if self._meanwhile:
            self.warehouse.run(self._meanwhile)
            self._meanwhile = ""


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch) -> OfflineWarehouse:
    """A catalog in which a deployment was interrupted while it waited for the rebuild of ``v``."""
    found = OfflineWarehouse({})
    found.apply({"a.sql": SOURCE + VIEW})
    found.apply(FOLDER, statements=1)
    monkeypatch.setattr(execution, "catalog_of", lambda _: (None, found.snapshot))
    monkeypatch.setattr(execution, "_require_possible", lambda *_: None)
    return found


def apply(runner: Runner) -> None:
    changes = runner.warehouse.changes(FOLDER)
    plan = saved_plan(runner.warehouse.snapshot, "w", changes)
    carry_out(runner, plan, changes, [], (), "run it again", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stalled", "ran"),
    [(0, [WAIT, READER]), (1, [WAIT, BEGIN, WAIT, READER])],
    ids=["it ends", "its job is stalled"],
)
def test_a_rebuild_begins_again_only_if_it_does_not_end(
    warehouse: OfflineWarehouse, stalled: int, ran: list[str]
) -> None:
    """A process that takes over the jobs does not know that a job is stalled before it has waited for it."""
    runner = Runner(warehouse, stalled)
    apply(runner)
    assert runner.ran == ran
    assert warehouse.changes(FOLDER) == ()


def test_a_rebuild_that_does_not_end_either_is_reported(warehouse: OfflineWarehouse) -> None:
    runner = Runner(warehouse, 2)
    with pytest.raises(SqlError, match='"v" is still being rebuilt, and queries read its previous rows') as caught:
        apply(runner)
    assert caught.value.hint == "SHOW JOBS shows why the rebuild does not end; then run it again"
    assert runner.ran == [WAIT, BEGIN, WAIT]
    # The same command tries it again.
    apply(Runner(warehouse, 1))
    assert warehouse.changes(FOLDER) == ()


def test_a_newer_query_of_another_session_is_not_overwritten(warehouse: OfflineWarehouse) -> None:
    runner = Runner(warehouse, 1, "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id, b FROM s")
    with pytest.raises(SqlError, match='"v" was changed by another session since the changes were planned'):
        apply(runner)
    assert runner.ran == [WAIT]
