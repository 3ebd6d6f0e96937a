"""The project in ``examples/pipelines`` from its users' view: its tests pass, and each environment reaches its
definitions."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.testing.runner import Bench, TestOptions, collect
from tests.integration.attached import produce_json
from tests.support.live_project import LiveProject, project_topics
from tests.support.project_changes import CHANGES, PROJECT, project_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.cli.testing.outcome import TestOutcome

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

LIVE = (
    "another view",
    "a source is read more slowly",
    "a view that others read is renamed",
    "another topic",
    "a view has another column",
    "a view with a sink has another query",
    "a sink and the view that it reads are not needed",
    "a rename, another topic and a drop",
)
"""A change of each class, and three at once; the proof ``apply-changes`` makes all forty."""


def run_tests(spark: SparkSession, broker: BrokerInfo, folder: Path, *paths: str) -> dict[str, TestOutcome]:
    """The outcomes of tests, by name, of which two run side by side."""
    collected = collect(paths, {}, "dev")
    assert collected.wrong == ()
    folder.mkdir()
    started = time.monotonic()
    outcomes = Bench(spark, folder, TestOptions(workers=2, env="dev"), broker.bootstrap).run_all(
        collected.tests, lambda _: None
    )
    print(f"{len(outcomes)} tests in {time.monotonic() - started:.1f} s")
    return {outcome.name or Path(outcome.file).stem: outcome for outcome in outcomes}


@pytest.mark.alone
@pytest.mark.long
def test_its_tests_pass(spark: SparkSession, broker: BrokerInfo, tmp_path: Path) -> None:
    outcomes = run_tests(spark, broker, tmp_path / "work", str(PROJECT))
    assert {name: (found.message, found.detail) for name, found in outcomes.items() if found.status != "passed"} == {}


def test_a_broken_view_is_recognized_by_its_rows(spark: SparkSession, broker: BrokerInfo, tmp_path: Path) -> None:
    broken = tmp_path / "pipelines"
    shutil.copytree(PROJECT, broken)
    views = (broken / "views.sql").read_text(encoding="utf-8")
    (broken / "views.sql").write_text(views.replace("sum(cents) AS cents, count(*)", "max(cents) AS cents, count(*)"))
    name = "payments of an order add up"
    test = f"tests/payments.sqltest::{name}"
    assert run_tests(spark, broker, tmp_path / "work", f"{PROJECT / test}")[name].status == "passed"
    outcome = run_tests(spark, broker, tmp_path / "again", f"{broken / test}")[name]
    assert (outcome.status, outcome.line) == ("failed", 2)
    assert "paid: 1 changed row; 1 as expected" in outcome.message
    assert re.search(r"^ *~ 1 +\| 900 → 500 +\| 2", outcome.detail, re.MULTILINE)


@pytest.mark.alone
@pytest.mark.long
def test_a_live_warehouse_follows_the_project_and_its_changes(
    spark: SparkSession, broker: BrokerInfo, tmp_path: Path
) -> None:
    with project_topics(broker.bootstrap, "dev"):
        produce_json(broker.bootstrap, "dev.items", [{"id": "tea", "title": "Tea", "cents": 450}])
        produce_json(broker.bootstrap, "dev.orders", [{"id": 1, "customer": "ann", "item": "tea", "pieces": 2}])
        project = LiveProject(spark, tmp_path / "warehouse", broker.bootstrap)
        try:
            assert "12 to create" in project.apply(project_files())
            assert project.diff(project_files()) == ""
            project.session.run("FLUSH")
            assert project.session.rows_of("sales_by_item") == [("tea", 1, 2, 900)]
            for name in LIVE:
                (files,) = (change.files() for change in CHANGES if change.name == name)
                project.apply(files)
                assert project.diff(files) == "", name
            changed = project.meaning()
        finally:
            project.close()
        fresh = LiveProject(spark, tmp_path / "fresh", broker.bootstrap)
        try:
            fresh.apply(files)
            assert fresh.meaning() == changed
        finally:
            fresh.close()
