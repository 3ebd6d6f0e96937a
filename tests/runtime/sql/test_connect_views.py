"""The temporary views of a session of Spark Connect, on a server that has views and tables of the same names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from rw_sql.errors import SqlError
from rw_sql.metastore.records import DropObject, MaterializedViewRecord, PutObject, SchemaRecord
from rw_sql.runtime.spark.databases import MARK
from rw_sql.runtime.sql.connect_views import ConnectViews
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

_MADE = re.compile(r"CREATE OR REPLACE TEMPORARY VIEW `([^`]+)` AS (.*)")
_DROPPED = re.compile(r"DROP VIEW IF EXISTS (\S+)")


@dataclass
class Server:
    """The objects of a server's database ``default`` with their properties, and one session's temporary views."""

    objects: dict[str, dict[str, str]] = field(default_factory=dict)
    temporary: dict[str, str] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.catalog = SimpleNamespace(
            currentDatabase=lambda: "default",
            tableExists=lambda name: self._bare(name) in {*self.objects, *self.temporary},
            databaseExists=lambda name: name in ("default", "spark_catalog.rw_catalog"),
            dropTempView=lambda name: self.temporary.pop(name, None) is not None,
        )

    @staticmethod
    def _bare(name: str) -> str:
        return name.removeprefix("spark_catalog.`default`.").strip("`")

    def sql(self, text: str) -> Any:
        if (made := _MADE.fullmatch(text)) is not None:
            self.temporary[made[1]] = made[2]
            return None
        if (dropped := _DROPPED.fullmatch(text)) is not None:
            self.objects.pop(self._bare(dropped[1]), None)
            return None
        if text == "SHOW VIEWS IN spark_catalog.`default`":
            shown = [(name, False) for name in self.objects] + [(name, True) for name in self.temporary]
            rows = [{"viewName": name, "isTemporary": is_temporary} for name, is_temporary in shown]
            return SimpleNamespace(collect=lambda: rows)
        name = self._bare(text.removeprefix("SHOW TBLPROPERTIES "))
        if name in self.unreadable:
            raise AnalysisException("its folder is away")
        return SimpleNamespace(collect=lambda: list(self.objects.get(name, {}).items()))


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    """A warehouse with the view ``totals``."""
    made = WrittenWarehouse(tmp_path / "warehouse")
    made.commit(*made.source(1, "orders"), made.view(2, "totals", 1))
    made.fence("mv-2", 1)
    return made


def views_of(written: WrittenWarehouse, server: Server) -> ConnectViews:
    made = ConnectViews(written.context(), server)  # type: ignore[arg-type]
    made.refresh()
    return made


def totals(written: WrittenWarehouse) -> MaterializedViewRecord:
    record = written.metastore.snapshot().find("materialized_view", "totals")
    assert isinstance(record, MaterializedViewRecord)
    return record


def refusal(views: ConnectViews, text: str) -> str:
    with pytest.raises(SqlError) as caught:
        views.refuse_changes(text)
    return caught.value.code


def test_a_view_that_the_server_itself_shows_is_covered_by_the_session(
    written: WrittenWarehouse, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is the owner, and was started while the view existed."""
    server = Server({"totals": {MARK: written.uri}})
    views = views_of(written, server)
    assert "/data/2/1`" in server.temporary["totals"]
    assert not views.is_hidden("totals")
    assert "a table or view of your own" not in caplog.text
    written.commit(PutObject(record=replace(totals(written), generation=2)))
    written.fence("mv-2", 1, generation=2)
    views.refresh()
    assert "/data/2/2`" in server.temporary["totals"]
    assert refusal(views, "DROP VIEW totals") == "RW236"


def test_a_table_of_the_user_still_hides_a_view(written: WrittenWarehouse, caplog: pytest.LogCaptureFixture) -> None:
    server = Server({"totals": {"delta.minReaderVersion": "1"}})
    views = views_of(written, server)
    assert server.temporary == {}
    assert views.is_hidden("totals")
    assert "a table or view of your own hides totals" in caplog.text
    views.refuse_changes("DROP TABLE totals")
    del server.objects["totals"]
    views.before("SELECT * FROM totals")
    assert "totals" in server.temporary


def test_a_table_of_the_user_whose_properties_cannot_be_read_hides_a_view(written: WrittenWarehouse) -> None:
    server = Server({"totals": {}}, unreadable={"totals"})
    assert views_of(written, server).is_hidden("totals")


def test_a_view_of_another_warehouse_on_the_server_hides_nothing(written: WrittenWarehouse) -> None:
    server = Server({"totals": {MARK: "/another/warehouse"}})
    views = views_of(written, server)
    assert "totals" in server.temporary
    views.refuse_changes("DROP VIEW default.totals")
    snapshot = written.metastore.snapshot()
    text = "SELECT * FROM default.totals"
    assert views.for_spark(snapshot, text, ("public",)) == text


def test_after_a_drop_the_name_does_not_refer_to_the_view_of_the_server(written: WrittenWarehouse) -> None:
    server = Server({"totals": {MARK: written.uri}, "mine": {}})
    views = views_of(written, server)
    written.commit(DropObject(id=2))
    views.refresh()
    assert (server.temporary, list(server.objects)) == ({}, ["mine"])


def test_a_view_that_was_dropped_before_the_session_began_is_not_found(written: WrittenWarehouse) -> None:
    server = Server({"gone": {MARK: written.uri}, "mine": {}, "other": {MARK: "/another/warehouse"}})
    views = views_of(written, server)
    assert list(server.objects) == ["mine", "other"]
    server.objects["gone"] = {}
    views.refresh()
    assert "gone" in server.objects


def test_a_server_without_a_warehouse_is_not_searched_for_dropped_views(written: WrittenWarehouse) -> None:
    server = Server({"gone": {MARK: written.uri}})
    server.catalog.databaseExists = lambda name: name == "default"
    views_of(written, server)
    assert "gone" in server.objects


def test_a_forgotten_session_is_no_table_of_the_user(written: WrittenWarehouse) -> None:
    server = Server()
    views = views_of(written, server)
    views.remove()

    def forget(name: str) -> bool:
        raise SparkConnectGrpcException("[INVALID_HANDLE.SESSION_CLOSED] The handle 4711 is invalid.")

    server.catalog.tableExists = forget
    with pytest.raises(SparkConnectGrpcException):
        views.refresh()
    assert not views.is_hidden("totals")


@pytest.mark.parametrize("is_of_warehouse", [False, True])
def test_the_full_name_of_a_table_in_a_database_of_the_user_keeps_its_meaning(
    written: WrittenWarehouse, is_of_warehouse: bool
) -> None:
    written.commit(PutObject(record=SchemaRecord(id=9, name="raw")), written.view(10, "raw.totals", 1))
    written.fence("mv-10", 1)
    name = Server._bare("spark_catalog.`raw`.`totals`")
    views = views_of(written, Server({name: {MARK: written.uri} if is_of_warehouse else {}}))
    text = "SELECT * FROM spark_catalog.raw.totals t"
    found = views.for_spark(written.metastore.snapshot(), text, ("public",))
    if is_of_warehouse:
        assert found == "SELECT * FROM `raw.totals` t"
        assert refusal(views, "DROP VIEW spark_catalog.raw.totals") == "RW236"
    else:
        assert found == text
        views.refuse_changes("DROP TABLE spark_catalog.raw.totals")
    assert refusal(views, "DROP VIEW raw.totals") == "RW236"


@pytest.mark.parametrize("name", ["raw.totals", "spark_catalog.raw.totals"])
def test_a_server_without_databases_of_schemas_reads_the_full_name_too(written: WrittenWarehouse, name: str) -> None:
    written.commit(PutObject(record=SchemaRecord(id=9, name="raw")), written.view(10, "raw.totals", 1))
    written.fence("mv-10", 1)
    views = views_of(written, Server())
    found = views.for_spark(written.metastore.snapshot(), f"SELECT * FROM {name} t", ("public",))
    assert found == "SELECT * FROM `raw.totals` t"


@pytest.mark.parametrize("name", ["rw_catalog.rw_jobs", "spark_catalog.rw_catalog.rw_jobs", "RW_CATALOG.RW_JOBS"])
def test_a_view_of_the_catalog_is_that_of_the_session_s_warehouse(written: WrittenWarehouse, name: str) -> None:
    views = views_of(written, Server())
    found = views.for_spark(written.metastore.snapshot(), f"SELECT * FROM {name} j", ("public",))
    assert found == "SELECT * FROM `rw_catalog.rw_jobs` j"


def test_detaching_leaves_the_views_of_the_server(written: WrittenWarehouse) -> None:
    server = Server({"totals": {MARK: written.uri}})
    views_of(written, server).remove()
    assert (server.temporary, list(server.objects)) == ({}, ["totals"])


@pytest.mark.parametrize("name", ["default.totals", "spark_catalog.default.totals", "DEFAULT.Totals"])
def test_the_full_name_of_the_view_of_the_server_means_the_view_of_the_session(
    written: WrittenWarehouse, name: str
) -> None:
    server = Server({"totals": {MARK: written.uri}, "Totals": {MARK: written.uri}})
    views = views_of(written, server)
    found = views.for_spark(written.metastore.snapshot(), f"SELECT t.id FROM {name} t", ("public",))
    assert found == "SELECT t.id FROM `totals` t"
    assert refusal(views, f"DROP VIEW {name}") == "RW236"
