"""``rw-sql diff`` and ``apply`` while the warehouse's store fails: an error of rw_sql, and what was applied before."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from deltalake.exceptions import DeltaError
from typer.testing import CliRunner

from rw_sql.cli.deploy.execution import catalog_of
from rw_sql.cli.main import app
from rw_sql.errors import STORE_UNREACHABLE, SqlError
from rw_sql.metastore import Metastore
from rw_sql.runtime.support.warehouse import Warehouse
from tests.cli.deploy.test_deploy_commands import SOURCE, VIEW, made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE_OF_PROD = SOURCE.replace("${env}", "prod").replace("${BROKER}", "127.0.0.1:9092")


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    """The arguments for a warehouse with a source, and a folder that changes the source and adds a view."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "all.sql").write_text(SOURCE_OF_PROD.replace("old", "new") + VIEW, encoding="utf-8")
    made(tmp_path / "w", SOURCE_OF_PROD)
    return str(folder), "-w", str(tmp_path / "w")


def failing(monkeypatch: pytest.MonkeyPatch, after: int, error: Exception) -> None:
    """Opening the metastore fails after some calls."""
    opened = Metastore.open
    calls: list[str] = []

    def open_(warehouse: str, **options: Any) -> Metastore:
        calls.append(warehouse)
        if len(calls) > after:
            raise error
        return opened(warehouse, **options)

    monkeypatch.setattr(Metastore, "open", open_)


@pytest.mark.parametrize("error", [OSError("Could not connect to the endpoint"), DeltaError("a broken log")])
def test_apply_reports_the_changes_before_the_store_failed(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    @contextmanager
    def starting(*_: object, **__: object) -> Iterator[None]:
        yield

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", starting)
    monkeypatch.setattr("rw_sql.session.scripts.run_statements", lambda *_, **__: None)
    monkeypatch.setattr("rw_sql.session.scripts.run_dry", lambda *_: ())
    # The catalog is read for the plan, when Spark has started, and before and after each change.
    failing(monkeypatch, 5, error)
    result = CliRunner().invoke(app, ["apply", *words, "--yes", "-o", "json"])
    report = json.loads(result.stdout)
    assert [change["is_made"] for change in report["changes"]] == [True, False]
    assert report["error"]["code"] == STORE_UNREACHABLE.code
    assert "1 of 2 changes were applied; to continue, run the same command again" in result.stderr


@pytest.mark.parametrize("command", ["diff", "apply"])
def test_a_store_that_fails_at_first_is_an_error_with_a_code(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    failing(monkeypatch, 0, DeltaError("a broken log"))
    error = CliRunner().invoke(app, [command, *words]).exception
    assert isinstance(error, SqlError)
    assert error.kind is STORE_UNREACHABLE


def test_a_folder_that_cannot_be_listed_is_an_error_with_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[str]:
        raise OSError("Could not connect to the endpoint")

    monkeypatch.setattr(Warehouse, "list_names", refuse)
    with pytest.raises(SqlError, match="Could not connect") as caught:
        catalog_of(str(tmp_path))
    assert caught.value.kind is STORE_UNREACHABLE


def test_rows_that_cannot_be_counted_are_an_error_with_a_code(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise DeltaError("a broken log")

    monkeypatch.setattr("rw_sql.runtime.positions.rows_to_read.rows_to_read", refuse)
    error = CliRunner().invoke(app, ["diff", *words]).exception
    assert isinstance(error, SqlError)
    assert error.kind is STORE_UNREACHABLE
