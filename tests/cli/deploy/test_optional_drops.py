"""``rw-sql apply`` keeps the columns that the owner has added to a captured table (``auto.schema.change``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import Operation, PutObject
from tests.support.offline_warehouse import OfflineWarehouse

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = (
    "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = 'h', username = 'u', database.name = 'd', "
    "slot.name = 'rw', publication.name = 'rw', auto.schema.change = 'true');\n"
)
ADD = "ALTER TABLE t ADD COLUMN c INT"
DROP = "ALTER TABLE t DROP COLUMN c"


def table(columns: str) -> str:
    return f"CREATE TABLE t ({columns}) FROM pg TABLE 'public.t';\n"


BEFORE = SOURCE + table("id INT PRIMARY KEY, a INT")


def with_added_column(before: str = BEFORE) -> OfflineWarehouse:
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": before})
    warehouse.run(ADD)
    return warehouse


def apply(tmp_path: Path, warehouse: OfflineWarehouse, text: str, *words: str) -> str:
    """The output of ``rw-sql apply`` for a folder; raises SqlError."""
    kinds = ("source", "table", "materialized_view")
    records = sorted((each for kind in kinds for each in warehouse.snapshot.all(kind)), key=lambda each: each.id)
    metastore = Metastore.open(str(tmp_path / "w"))
    changes = tuple(PutObject(record=record) for record in records)
    operation = Operation(kind="CREATE", statement="", objects=(), changes=changes, actor="test")
    metastore.commit(operation, based_on=metastore.snapshot())
    metastore.flush(with_upkeep=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.sql").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["apply", str(tmp_path / "folder"), "-w", str(tmp_path / "w"), *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


def test_an_added_column_that_the_folder_lacks_is_kept_without_allow_drop(tmp_path: Path) -> None:
    warehouse = with_added_column()
    assert [change.texts for change in warehouse.changes({"a.sql": BEFORE})] == [(DROP,)]
    shown = apply(tmp_path, warehouse, BEFORE)
    assert "auto.schema.change may have added the column; to keep it, add it to the folder" in shown
    assert "unchanged: needs --allow-drop" in shown
    assert DROP not in shown


@pytest.mark.parametrize("columns", ["id INT PRIMARY KEY, a INT, c INT", "*"])
def test_an_added_column_that_the_folder_has_is_no_difference(columns: str) -> None:
    assert with_added_column().changes({"a.sql": SOURCE + table(columns)}) == ()


def test_the_other_changes_of_the_table_do_not_need_the_drop() -> None:
    warehouse = with_added_column()
    wanted = SOURCE + table("id INT PRIMARY KEY, d INT")
    assert [change.texts for change in warehouse.changes({"a.sql": wanted})] == [
        ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN d INT"),
        (DROP,),
    ]
    warehouse.apply({"a.sql": wanted})
    assert warehouse.changes({"a.sql": wanted}) == ()


@pytest.mark.parametrize(
    ("before", "wanted", "alterations"),
    [
        (BEFORE, SOURCE + table("id INT PRIMARY KEY"), ()),
        (BEFORE.replace("'true'", "'false'"), BEFORE.replace("'true'", "'false'"), (ADD,)),
        (BEFORE, SOURCE + table("id INT PRIMARY KEY, a INT, c2 BIGINT FROM c"), (ADD,)),
    ],
    ids=["a column of the folder", "no automatic additions", "another column reads the field"],
)
def test_other_columns_are_not_kept_silently(
    tmp_path: Path, before: str, wanted: str, alterations: tuple[str, ...]
) -> None:
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": before})
    warehouse.run(*alterations)
    with pytest.raises(SqlError, match="cannot change to its new definition without a DROP"):
        apply(tmp_path, warehouse, wanted)


def test_an_added_column_that_a_view_uses_is_no_difference() -> None:
    warehouse = with_added_column()
    view = "CREATE MATERIALIZED VIEW v AS SELECT {} FROM t;\n"
    warehouse.run(view.format("*").rstrip(";\n"))
    assert warehouse.changes({"a.sql": BEFORE + view.format("*")}) == ()
    changed = BEFORE + view.format("id, a + 1 AS c")
    assert [change.texts[0].partition(" AS ")[0] for change in warehouse.changes({"a.sql": changed})] == [
        "CREATE OR REPLACE MATERIALIZED VIEW v"
    ]


VIEW = "CREATE MATERIALIZED VIEW v AS SELECT * FROM t;\n"
WITH_D = SOURCE + table("id INT PRIMARY KEY, a INT, d INT")
REBUILD = ("CREATE OR REPLACE MATERIALIZED VIEW v", "WAIT MATERIALIZED VIEW v")


def shortened(warehouse: OfflineWarehouse, folder: str) -> list[tuple[str, ...]]:
    """The statements of each difference, without the queries of views."""
    changes = warehouse.changes({"a.sql": folder})
    return [tuple(text.partition(" AS SELECT")[0] for text in change.texts) for change in changes]


def test_a_view_that_uses_an_added_column_gets_a_further_column_of_the_folder() -> None:
    warehouse = with_added_column()
    warehouse.run(VIEW.rstrip(";\n"))
    wanted = WITH_D + VIEW
    alter = ("ALTER TABLE t ADD COLUMN d INT",)
    assert shortened(warehouse, wanted) == [alter, REBUILD]
    warehouse.run(*alter)
    assert shortened(warehouse, wanted) == [REBUILD]
    needed = wanted + "CREATE MATERIALIZED VIEW x AS SELECT d FROM v;\n"
    assert shortened(warehouse, needed)[0] == REBUILD
    warehouse.apply({"a.sql": wanted})
    warehouse.apply({"a.sql": needed})
    assert warehouse.changes({"a.sql": needed}) == ()


def test_an_added_column_that_one_view_uses_does_not_rebuild_other_views() -> None:
    warehouse = OfflineWarehouse({})
    warehouse.apply({"a.sql": BEFORE + VIEW})
    user = "CREATE MATERIALIZED VIEW w AS SELECT c FROM t;\n"
    warehouse.run(ADD, user.rstrip(";\n"))
    assert warehouse.changes({"a.sql": BEFORE + VIEW + user}) == ()
    assert shortened(warehouse, WITH_D + VIEW + user) == [("ALTER TABLE t ADD COLUMN d INT",), REBUILD]
