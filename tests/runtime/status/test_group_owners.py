"""The owners of several resource groups in the metrics, the status, the page, the terminal and the notebook."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from rw_sql.cli.service.status import print_status
from rw_sql.magics.watch import StatusView
from rw_sql.metastore.records import DropObject, MaterializedViewRecord, PauseRecord, PutObject, SourceRecord
from rw_sql.runtime.observe.metrics import Metrics
from rw_sql.runtime.status.doctor import examine
from rw_sql.runtime.status.page import PageQuery, page_html
from rw_sql.runtime.status.reading import Measures, read_status
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.metastore.records import Change
    from rw_sql.runtime.jobs.context import Context


def start_of_nightly(written: WrittenWarehouse) -> str:
    return f"To start an owner: rw-sql serve --warehouse {written.uri} --resource-group nightly"


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    """A source in the default group, whose owner runs, and a view in the group nightly, whose owner has ended."""
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "orders"), in_nightly(written.view(3, "history", 2)))
    written.lease()
    ended(written, "nightly")
    written.status("ingest-2", "RUNNING")
    written.status("mv-3", "RUNNING")
    return written


def in_nightly(change: Change) -> Change:
    """The same object in the group nightly."""
    assert isinstance(change, PutObject)
    assert isinstance(change.record, SourceRecord | MaterializedViewRecord)
    return PutObject(record=replace(change.record, resource_group="nightly"))


def ended(written: WrittenWarehouse, group: str, applied: int = 0) -> None:
    """Makes a killed process the last owner of a group."""
    lease = written.lease(group=group, applied=applied)
    dead = replace(lease, python_start="0", jvm_start="0", heartbeat_ms=lease.heartbeat_ms - 60_000)
    assert written.metastore.jobs.take_lease(dead, replacing=lease)


def of_groups(context: Context, name: str) -> dict[str, float]:
    """A metric's values by resource group."""
    return {
        dict(sample.labels)["resource_group"]: sample.value
        for sample in Metrics(context).samples()
        if sample.name == name
    }


def printed(context: Context) -> str:
    """The text of ``rw-sql status``."""
    console = Console(file=io.StringIO(), width=200)
    print_status(console, read_status(context, Measures()))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_metrics_have_a_value_for_each_group(written: WrittenWarehouse) -> None:
    context = written.context()
    assert of_groups(context, "rw_sql_owner_present") == {"default": 1, "nightly": 0}
    assert of_groups(context, "rw_sql_applied_epoch") == {"default": 1, "nightly": 0}
    assert of_groups(context, "rw_sql_owner_info") == {"default": 1}
    beats = of_groups(context, "rw_sql_owner_heartbeat_timestamp_seconds")
    assert beats["default"] - beats["nightly"] > 50
    epochs = [sample for sample in Metrics(context).samples() if sample.name == "rw_sql_catalog_epoch"]
    assert [(sample.labels, sample.value) for sample in epochs] == [((), 1)]


def test_a_group_with_objects_that_never_had_an_owner_has_no_owner(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "orders"), in_nightly(written.view(3, "history", 2)))
    written.lease()
    assert of_groups(written.context(), "rw_sql_owner_present") == {"default": 1, "nightly": 0}
    assert of_groups(written.context(), "rw_sql_applied_epoch") == {"default": 1}
    owners = read_status(written.context(), Measures()).owners
    assert [(owner.resource_group, owner.state) for owner in owners] == [("default", "RUNNING"), ("nightly", "NONE")]


def test_an_empty_group_whose_owner_has_ended_needs_no_owner(written: WrittenWarehouse) -> None:
    written.commit(DropObject(id=3))
    assert of_groups(written.context(), "rw_sql_owner_present") == {"default": 1}
    status = read_status(written.context(), Measures())
    assert [owner.resource_group for owner in status.owners] == ["default"]
    assert "owner: process " in printed(written.context())


def test_a_group_whose_objects_have_no_jobs_needs_no_owner(tmp_path: Path) -> None:
    """The job of a view reads a source that is not shared, and nothing reads a source without views."""
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "orders", is_shared=False), in_nightly(written.view(3, "history", 2)))
    written.commit(*written.source(4, "unread"))
    written.lease(group="nightly")
    context = written.context()
    assert of_groups(context, "rw_sql_owner_present") == {"nightly": 1}
    assert "owner of resource group nightly: process " in printed(context)
    assert not [finding for finding in examine(context) if finding.subject == "resource group default"]
    written.commit(written.view(5, "totals", 4))
    assert of_groups(context, "rw_sql_owner_present") == {"default": 0, "nightly": 1}
    (finding,) = [finding for finding in examine(context) if finding.subject == "resource group default"]
    assert finding.problem == "it has jobs (2), and no process runs them"


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_group_whose_jobs_are_paused_needs_an_owner(tmp_path: Path, is_paused: bool) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "orders"), in_nightly(written.view(3, "history", 2)))
    if is_paused:
        written.commit(PutObject(record=PauseRecord(id=9, name="orders", source_id=2, reason="a rest")))
    written.lease(group="nightly")
    assert of_groups(written.context(), "rw_sql_owner_present") == {"default": 0, "nightly": 1}


def test_a_warehouse_without_objects_has_the_owner_of_the_processs_group(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    context = written.context()
    assert of_groups(context, "rw_sql_owner_present") == {"default": 0}
    start = f"rw-sql serve --warehouse {written.uri}"
    assert f"owner: none, so no job runs. To start an owner: {start}\n" in printed(context)
    nightly = replace(context, group="nightly")
    assert of_groups(nightly, "rw_sql_owner_present") == {"nightly": 0}


def test_the_status_has_the_own_groups_owner_and_the_owners_of_all_groups(written: WrittenWarehouse) -> None:
    status = read_status(written.context(), Measures())
    assert (status.owner.resource_group, status.owner.state) == ("default", "RUNNING")
    found = status.to_json()
    assert [(each["resource_group"], each["state"]) for each in found["owners"]] == [
        ("default", "RUNNING"),
        ("nightly", "NONE"),
    ]
    assert found["owner"] == found["owners"][0]
    assert found["owners"][1]["heartbeat_at"].endswith("Z")
    of_nightly = read_status(replace(written.context(), group="nightly"), Measures())
    assert (of_nightly.owner.resource_group, of_nightly.owner.state) == ("nightly", "NONE")


def test_if_the_default_group_has_no_owner_the_owner_of_another_group_does_not_stand_for_it(
    written: WrittenWarehouse,
) -> None:
    ended(written, "default")
    written.lease(group="nightly")
    status = read_status(written.context(), Measures())
    assert (status.owner.resource_group, status.owner.state) == ("default", "NONE")


def test_if_the_default_group_is_not_in_use_the_owner_is_one_that_runs(written: WrittenWarehouse) -> None:
    written.commit(in_nightly(written.source(2, "orders")[0]))
    ended(written, "default")
    written.lease(group="nightly")
    status = read_status(written.context(), Measures())
    assert (status.owner.resource_group, status.owner.state) == ("nightly", "RUNNING")
    assert "owner of resource group nightly: process " in printed(written.context())


def test_terminal_page_and_notebook_name_the_group_without_an_owner(written: WrittenWarehouse) -> None:
    status = read_status(written.context(), Measures())
    body = page_html(status, PageQuery())
    for shown in (printed(written.context()), body, repr(StatusView(status))):
        assert "owner of resource group default: process " in shown
        assert "owner of resource group nightly: none, so none of its jobs runs; the last owner was seen 1 min" in shown
        assert start_of_nightly(written) in shown
    assert '<p class="owner running">owner of resource group default' in body
    assert '<p class="owner none">owner of resource group nightly' in body
