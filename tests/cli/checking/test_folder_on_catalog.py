"""``rw-sql check`` of a folder whose objects the catalog has already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rw_sql.cli.checking.folder_on_catalog import without_objects
from rw_sql.cli.main import app
from rw_sql.metastore import Metastore, Snapshot, catalog_to_json
from rw_sql.metastore.records import DeltaTableRecord, MaterializedViewRecord, Operation, PutObject
from rw_sql.plan.deploy.folder import read_folder
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.plan.result.steps import after

SOURCE = "CREATE SOURCE orders (id INT, customer VARCHAR) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON;\n"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders;\n"
OTHER = "CREATE SOURCE other (id INT) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON;\n"
READER = "CREATE MATERIALIZED VIEW reader AS SELECT id FROM v;\n"
TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR) WITH (connector = 'kafka', topic = 't', "
    "properties.bootstrap.server = 'b:1') FORMAT UPSERT ENCODE JSON;\n"
)


def catalog_of(*texts: str) -> Snapshot:
    """The catalog that statements produce."""
    checker = ScriptChecker()
    for checked in checker.check("".join(texts), "x"):
        assert checked.errors == ()
    return checker.snapshot


def check(tmp_path: Path, catalog: Snapshot, *paths: Path) -> list[tuple[str, int, int, str, str]]:
    """File, line, column, code and message of each error."""
    exported = tmp_path / "catalog.json"
    exported.write_text(catalog_to_json(catalog), encoding="utf-8")
    words = ["check", "--catalog", str(exported), "--output", "json", *map(str, paths)]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return [
        (Path(each["file"]).name, found["line"], found["column"], found["code"], found["message"])
        for each in map(json.loads, result.stdout.splitlines())
        for found in each["findings"]
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("deployed", "text"),
    [
        pytest.param(SOURCE + VIEW, VIEW + SOURCE, id="nothing changes"),
        pytest.param(SOURCE + VIEW, SOURCE + VIEW.replace("id", "id, customer"), id="a view changes"),
        pytest.param(SOURCE + VIEW + READER, SOURCE + VIEW, id="an object that reads another one is left out"),
        pytest.param(SOURCE, SOURCE + VIEW + READER, id="views come"),
        pytest.param(SOURCE + VIEW, SOURCE + VIEW.replace("CREATE", "CREATE OR REPLACE"), id="it is replaced"),
        pytest.param(SOURCE, SOURCE.replace("SOURCE", "SOURCE IF NOT EXISTS"), id="it is created if it does not exist"),
        pytest.param(
            SOURCE + VIEW, SOURCE + "-- rw: renamed from v\n" + VIEW.replace("VIEW v", "VIEW w"), id="a view is renamed"
        ),
        pytest.param(SOURCE + VIEW, SOURCE + TABLE.replace("TABLE t", "TABLE v"), id="a name gets another kind"),
        pytest.param(TABLE, TABLE.replace("v VARCHAR", "v VARCHAR, n INT"), id="a table changes"),
        pytest.param(
            "CREATE SCHEMA raw;\n" + SOURCE.replace("orders", "raw.orders"),
            "CREATE SCHEMA raw;\n"
            + SOURCE.replace("orders", "raw.orders")
            + VIEW.replace("FROM orders", "FROM raw.orders"),
            id="a schema has objects",
        ),
        pytest.param(
            "CREATE SECRET p WITH (backend = 'env', name = 'P');\n",
            "CREATE SECRET p WITH (backend = 'env', name = 'P');\n",
            id="a secret",
        ),
    ],
)
def test_objects_of_the_catalog_may_exist(tmp_path: Path, folder: Path, deployed: str, text: str) -> None:
    (folder / "a.sql").write_text(text, encoding="utf-8")
    assert check(tmp_path, catalog_of(deployed), folder) == []


def test_a_warehouse_is_a_catalog_too(tmp_path: Path, folder: Path) -> None:
    (folder / "a.sql").write_text(SOURCE + VIEW.replace("id", "id, customer"), encoding="utf-8")
    metastore = Metastore.open(str(tmp_path / "w"))
    changes = tuple(PutObject(record=record) for record in catalog_of(SOURCE, VIEW).records.values())
    operation = Operation(kind="MADE", statement="-- made", objects=(), changes=changes)
    metastore.commit(operation, based_on=metastore.snapshot())
    metastore.flush(with_upkeep=True)
    result = CliRunner().invoke(app, ["check", "-w", str(tmp_path / "w"), str(folder)])
    assert (result.exit_code, result.stdout) == (0, "")
    # The same file by itself is a script, which would create the objects.
    result = CliRunner().invoke(app, ["check", "-w", str(tmp_path / "w"), str(folder / "a.sql")])
    assert result.stdout.count("already exists") == 2


def test_errors_are_where_the_definitions_are(tmp_path: Path, folder: Path) -> None:
    (folder / "a.sql").write_text(SOURCE + VIEW.replace("id", "nothing"), encoding="utf-8")
    (folder / "b.sql").write_text("\n" + READER, encoding="utf-8")
    found = check(tmp_path, catalog_of(SOURCE, VIEW, READER), folder)
    assert found == [("a.sql", 2, 38, "RW205", 'column "nothing" does not exist')]


def test_what_diff_refuses_is_an_error(tmp_path: Path, folder: Path) -> None:
    (folder / "a.sql").write_text(SOURCE, encoding="utf-8")
    (folder / "b.sql").write_text("\n" + VIEW.replace("orders", "other"), encoding="utf-8")
    (found,) = check(tmp_path, catalog_of(SOURCE, VIEW, OTHER), folder)
    assert found[:4] == ("b.sql", 2, 26, "RW306")
    assert 'reads source "other", which is not in the folder' in found[4]
    secret = "CREATE SECRET p WITH (backend = 'env', name = 'P');\n"
    (folder / "b.sql").write_text(secret.replace("'P'", "'Q'"), encoding="utf-8")
    (found,) = check(tmp_path, catalog_of(SOURCE, secret), folder)
    assert found[:4] == ("b.sql", 1, 15, "RW312")
    assert 'secret "p"' in found[4]


def test_a_change_that_apply_would_not_make_is_an_error(tmp_path: Path, folder: Path) -> None:
    """Only the statement that changes the connection is refused, not a definition."""

    def texts(size: int, of_connection: str, of_source: str) -> tuple[str, str]:
        return (
            "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = 'b:1', "
            f"properties.fetch.max.bytes = '{size}'{of_connection});\n",
            f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 't'{of_source}) "
            "FORMAT PLAIN ENCODE JSON;\n",
        )

    name = ", properties.client.id = 'x'"
    (folder / "a.sql").write_text("".join(texts(2000, name, "")), encoding="utf-8")
    assert check(tmp_path, Snapshot(), folder) == []
    found = check(tmp_path, catalog_of(*texts(1000, "", name)), folder)
    assert [each[:4] for each in found] == [("a.sql", 1, 19, "RW212")]
    assert "properties.client.id" in found[0][4]
    result = CliRunner().invoke(app, ["check", "--catalog", str(tmp_path / "catalog.json"), str(folder)])
    assert "rw-sql apply would run: ALTER CONNECTION c SET (" in result.stdout


def test_a_change_for_which_apply_creates_a_table_again_is_no_error(tmp_path: Path, folder: Path) -> None:
    text = SOURCE + TABLE.replace("v VARCHAR", "v VARCHAR, n INT DEFAULT 5")
    (folder / "a.sql").write_text(text, encoding="utf-8")
    assert check(tmp_path, catalog_of(SOURCE, TABLE), folder) == []


def test_a_script_after_the_folder_finds_what_the_folder_makes(tmp_path: Path, folder: Path) -> None:
    (folder / "a.sql").write_text(SOURCE + VIEW.replace("id", "id, customer"), encoding="utf-8")
    script = tmp_path / "after.sql"
    script.write_text("PAUSE SOURCE orders;\nSELECT customer FROM v;\nSELECT nothing FROM v;\n", encoding="utf-8")
    found = check(tmp_path, catalog_of(SOURCE, VIEW), folder, script)
    assert found == [("after.sql", 3, 8, "RW205", 'column "nothing" does not exist')]


def test_delta_tables_of_the_catalog_stay_known() -> None:
    """A table of the user is in the catalog only as long as a view reads it."""
    catalog = catalog_of(SOURCE, VIEW)
    view = catalog.find("materialized_view", "v")
    assert isinstance(view, MaterializedViewRecord)
    table = DeltaTableRecord(id=90, name="lake", written="lake", path="/lake", schema=view.schema)
    reader = MaterializedViewRecord(
        id=91, name="r", definition="", query="SELECT id FROM lake", inputs=(90,), schema=view.schema
    )
    catalog = after(catalog, (PutObject(record=table), PutObject(record=reader)))
    left = without_objects(catalog, read_folder([("a.sql", "CREATE MATERIALIZED VIEW r AS SELECT id FROM lake;")], {}))
    assert left.find("materialized_view", "r") is None
    assert left.all("delta_table") == (table,)
    assert left.find("materialized_view", "v") == view
