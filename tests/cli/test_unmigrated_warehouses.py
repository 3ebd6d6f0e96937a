"""Commands that change nothing do not migrate a warehouse, so that the older version that serves it can restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.cli.script.loading import hiding_of
from rw_sql.cli.script.running import RunOptions, run_scripts
from rw_sql.errors import METASTORE_IS_NEWER, NOT_SUPPORTED, SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.catalog import Catalog, load_catalog
from tests.support.stored_warehouse import FOLDER, SUFFIX, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A warehouse of the format before resource groups."""
    warehouse = tmp_path / "older"
    unpack(FOLDER / f"0007{SUFFIX}", warehouse)
    return warehouse


def files(warehouse: Path) -> set[str]:
    return {str(file.relative_to(warehouse)) for file in warehouse.rglob("*") if file.is_file()}


def ran(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a new view over a view of the warehouse, whose rows ``diff`` counts."""
    made = tmp_path / "pipelines"
    made.mkdir()
    (made / "v.sql").write_text("CREATE MATERIALIZED VIEW more AS SELECT id FROM plain;\n", encoding="utf-8")
    (made / "s.sql").write_text(
        "CREATE SOURCE s (id INT, k INT) WITH (connector = 'datagen');\n"
        "CREATE MATERIALIZED VIEW plain AS SELECT id, k FROM s;\n",
        encoding="utf-8",
    )
    return made


def test_diff_and_an_unconfirmed_apply_leave_the_format(older: Path, folder: Path) -> None:
    before = files(older)
    shown = ran("diff", str(folder), "-w", str(older))
    assert shown.exit_code == 0, shown.output
    assert "create materialized view more" in shown.stdout
    assert files(older) == before
    refused = ran("apply", str(folder), "-w", str(older))
    assert isinstance(refused.exception, SqlError)
    assert files(older) == before


def test_takeover_and_explained_statements_leave_the_format(older: Path) -> None:
    before = files(older)
    for words in (
        ("takeover",),
        ("takeover", "--force"),
        ("source", "pause", "-s", "s", "--dry-run"),
        ("source", "inject-offsets", "-s", "s", "--set", "2-0=5", "--dry-run"),
    ):
        refused = ran(*words, "-w", str(older)).exception
        assert isinstance(refused, SqlError), words
        assert refused.kind is NOT_SUPPORTED
        assert "does not migrate it" in refused.message
        assert files(older) == before


def test_a_dry_run_of_scripts_leaves_the_format(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(older)

    def starting(*_: object, **__: object) -> None:
        raise AssertionError("Spark would attach to the warehouse, and migrate it")

    monkeypatch.setattr("rw_sql.cli.script.running.spark_for", starting)
    with pytest.raises(SqlError, match="does not migrate it"):
        run_scripts([], RunOptions(warehouse=str(older), is_dry=True), hiding_of({}))
    assert files(older) == before


def test_a_dry_run_makes_no_warehouse_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[str] = []

    def starting(warehouse: str, **_: object) -> None:
        where.append(warehouse)
        raise SqlError(NOT_SUPPORTED, "far enough")

    monkeypatch.setattr("rw_sql.cli.script.running.spark_for", starting)
    with pytest.raises(SqlError, match="far enough"):
        run_scripts([], RunOptions(warehouse=str(tmp_path), is_dry=True), hiding_of({}))
    assert len(where) == 1
    assert str(tmp_path) not in where


def test_a_catalog_of_a_newer_format_is_not_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = str(tmp_path / "w")
    Metastore.open(warehouse)
    older = Catalog(migrations=load_catalog().migrations[:-1])
    monkeypatch.setattr("rw_sql.metastore.store.load_catalog", lambda: older)
    with pytest.raises(SqlError) as caught:
        Metastore.peek(warehouse)
    assert caught.value.kind is METASTORE_IS_NEWER
    refused = ran("diff", str(folder), "-w", warehouse).exception
    assert isinstance(refused, SqlError)
    assert refused.kind is METASTORE_IS_NEWER
