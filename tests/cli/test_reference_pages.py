"""The generated pages of the command line, the Python API, the catalog, parameters and metrics match the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.main import get_command

import rw_sql
from rw_sql.cli import reference
from rw_sql.cli.main import app
from rw_sql.metastore.catalog import load_catalog
from rw_sql.model.parameters import SESSION_PARAMETERS, SYSTEM_PARAMETERS
from rw_sql.runtime.observe.metrics import HELP

if TYPE_CHECKING:
    from pathlib import Path


def test_pages_are_up_to_date() -> None:
    assert reference.stale_pages(reference.FOLDER) == [], "run python -m rw_sql.cli.reference"


def test_every_command_is_on_the_page_with_its_options() -> None:
    page = reference.cli_page()
    pending = [("rw-sql", get_command(app))]
    while pending:
        path, command = pending.pop()
        nested = getattr(command, "commands", {})
        pending += [(f"{path} {name}", found) for name, found in nested.items()]
        if nested:
            continue
        section = page.split(f"\n## {path}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert all(f"`{flag}" in section for flag in parameter.opts), f"{path} {parameter.opts}"


def test_every_exported_name_parameter_and_metric_is_on_its_page() -> None:
    assert {name for name in rw_sql.__all__ if f"\n### {name}\n" not in reference.python_page()} == set()
    page = reference.parameters_page()
    assert {name for name in [*SYSTEM_PARAMETERS, *SESSION_PARAMETERS] if f"| `{name}` |" not in page} == set()
    assert {name for name in HELP if f"| `{name}` |" not in reference.metrics_page()} == set()


def test_every_column_of_the_catalog_is_on_its_page() -> None:
    """Those too that a later migration adds, and those of views that a later file replaces."""
    catalog = load_catalog()
    page = reference.catalog_page()
    for step in (step for migration in catalog.migrations for step in migration.statements):
        section = page.partition(f"\n## {step.name}\n")[2].partition("\n## ")[0]
        assert [field.name for field in step.schema.fields if f"| `{field.name}` |" not in section] == []
    for name in catalog.views:
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        columns = reference._columns(catalog.views[name]).split(", ")
        assert [column for column in columns if column not in line] == []


@pytest.mark.long
def test_a_stale_page_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    (tmp_path / "cli.md").write_text("old", encoding="utf-8")
    assert reference.main(["--check"]) == 1
    assert "cli.md is out of date" in capsys.readouterr().out
