"""The alert rules and the dashboard in ``ops``: they name metrics and labels that exist, and promtool accepts them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rw_sql.runtime.observe.metrics import HELP, Metrics, exposition
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator

OPS = Path(__file__).parents[2] / "ops"
NAME = re.compile(r"\brw_sql_\w+")
LABELS = {
    "job",
    "object",
    "state",
    "source",
    "kind",
    "host",
    "owner",
    "version",
    "python",
    "pyspark",
    "deltalake",
    "resource_group",
    "instance",
    "pod",
}
"""The labels of the metrics, and those that Prometheus adds."""

OF_GROUPS = {
    "rw_sql_owner_present",
    "rw_sql_owner_info",
    "rw_sql_owner_heartbeat_timestamp_seconds",
    "rw_sql_applied_epoch",
}
"""The metrics with one value per resource group."""

OF_JOBS = {"rw_sql_job_restarts_total", "rw_sql_job_stalls_total", "rw_sql_sink_rejected_rows_total"}
"""The counters with the labels ``job`` and ``object``. A rename changes ``object``, and the counter continues."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)


def rules() -> list[dict[str, Any]]:
    """All alert rules."""
    return [rule for group in yaml.safe_load((OPS / "alerts.yml").read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    found: dict[str, Any] = json.loads((OPS / "grafana.json").read_text())
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression with its place."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    board = dashboard()
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in board["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_an_expression_names_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    found = NAME.findall(expression)
    assert found
    assert set(found) <= set(HELP), where
    named = re.findall(r"[{,]\s*(\w+)\s*(?:=|!=)", expression)
    for group in re.findall(r"(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression):
        named += [label.strip() for label in group.split(",")]
    assert set(named) <= LABELS, where
    for letters in ("()", "{}", "[]"):
        assert expression.count(letters[0]) == expression.count(letters[1]), where
    for name in found:
        is_counter = name.endswith("_total")
        is_rate = re.search(rf"(rate|increase|changes)\({name}\b", expression) is not None
        assert is_rate == is_counter, f"{where}: a counter is looked at by its growth, a gauge by its value"


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_an_expression_that_shows_growth_includes_the_first_value_of_a_counter(where: str, expression: str) -> None:
    """``increase`` and ``changes`` of a series whose first value is 1 are 0."""
    for name, selector, window in re.findall(r"(?:increase|changes)\((\w+)(\{[^}]*\})?\[([^]]+)\]", expression):
        same = "on (instance, pod, job) " if name in OF_JOBS else ""
        new = f"({name}{selector} unless {same}{name}{selector} offset {window})"
        assert new in expression, where
        assert f"on (instance, pod) rw_sql_catalog_readable offset {window} == 1" in expression, where


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_an_expression_about_owners_has_a_value_for_each_resource_group(where: str, expression: str) -> None:
    for name in OF_GROUPS & set(NAME.findall(expression)):
        (word, labels) = re.findall(rf"(by|without) \(([^)]*)\) \({name}\b", expression)[0]
        assert ("resource_group" in labels) is (word == "by"), where


def test_each_metric_is_on_the_dashboard_and_each_alert_says_what_to_do() -> None:
    drawn = {
        name for panel in dashboard()["panels"] for target in panel["targets"] for name in NAME.findall(target["expr"])
    }
    assert set(HELP) - drawn == set()
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "action"}
        labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert labels <= LABELS


def test_the_dashboard_has_the_shape_that_grafana_loads() -> None:
    board = dashboard()
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(board)
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {(place["x"] + across, place["y"] + down) for across in range(place["w"]) for down in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] in ("stat", "timeseries", "table")
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        text = json.dumps(panel)
        assert set(re.findall(r"\$\{(\w+)\}", text)) <= variables
        assert set(re.findall(r"\$([a-z]\w*)", text)) <= variables


@needs_promtool
def test_promtool_accepts_the_rules_and_their_cases() -> None:
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=OPS, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_parses_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    parsed = [
        {"record": f"number:{number}", "expr": text.replace("$__rate_interval", "1m0s").replace("$job", ".*")}
        for number, (_, text) in enumerate(expressions())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": parsed}]}), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_accepts_the_metrics(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "orders"), written.view(3, "totals", 2), written.sink(4, "out", 3))
    written.commit(kind="UNSAFE SET", is_unsafe=True, objects=("orders",))
    written.lease()
    written.status("ingest-2", "RUNNING", restarts=2)
    context = written.context()
    context.owning.set()
    context.figures.note_batch("ingest-2", 1_700_000_000_000, 0.5)
    table = written.fence("ingest-2", 1)
    written.batch(table, "ingest-2", 1, 0, 3, errors=1)
    text = exposition(Metrics(context))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert not done.stderr.strip(), done.stderr.decode()
