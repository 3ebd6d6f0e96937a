"""Changes of the example project: they lead to the state of a new warehouse, and then no difference is left."""

from __future__ import annotations

import pytest

from tests.support.offline_warehouse import OfflineWarehouse
from tests.support.project_changes import CHANGES, FURTHER, VARIABLES, ProjectChange, classes_of, project_files


@pytest.fixture(scope="module")
def deployed() -> OfflineWarehouse:
    warehouse = OfflineWarehouse(VARIABLES)
    warehouse.apply(project_files())
    return warehouse


def test_there_are_forty_of_every_class() -> None:
    assert len(CHANGES) == len({change.name for change in CHANGES}) == 40
    assert {name for change in CHANGES for name in change.classes} == {
        "create",
        "alter",
        "rename",
        "unsafe",
        "rebuild",
        "recreate",
        "drop",
    }


@pytest.mark.parametrize("change", [*CHANGES, *FURTHER], ids=lambda change: change.name)
def test_a_change_ends_where_a_new_warehouse_begins(deployed: OfflineWarehouse, change: ProjectChange) -> None:
    files = change.files()
    fresh = OfflineWarehouse(VARIABLES)
    fresh.apply(files)
    warehouse = OfflineWarehouse(VARIABLES, deployed.snapshot)
    assert classes_of([c.action for c in warehouse.changes(files)]) == change.classes
    warehouse.apply(files)
    assert warehouse.changes(files) == ()
    assert warehouse.meaning() == fresh.meaning()
    # Interrupted after any statement, it continues; it waits for a rebuild that was requested.
    for until in range(
        1, sum(len(c.statements) for c in OfflineWarehouse(VARIABLES, deployed.snapshot).changes(files))
    ):
        half = OfflineWarehouse(VARIABLES, deployed.snapshot)
        half.apply(files, statements=until)
        half.apply(files)
        assert half.changes(files) == ()
        assert half.meaning() == fresh.meaning()
    # And back to the previous state.
    warehouse.apply(project_files())
    assert warehouse.changes(project_files()) == ()
    assert warehouse.meaning() == deployed.meaning()
