"""What a source has made upstream is removed where it was made, also if the source's connection led there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.base import Upstream
from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.registry import connector
from rw_sql.errors import UPSTREAM_UNREACHABLE
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.job_specs import IngestSpec, desired_jobs
from rw_sql.model.options import SecretReference
from rw_sql.runtime.jobs import made_upstream as made_upstream_module
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.made_upstream import has_slot_to_drop, made_upstream, note_made, release_upstream
from rw_sql.runtime.support.warehouse import Warehouse
from tests.plan.statements.table.test_cdc_tables import ORDERS, TABLE
from tests.plan.tables import source, tables_world

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rw_sql.metastore import Snapshot
    from tests.plan.canned import CannedWorld

CAPTURED = "CREATE SOURCE s WITH (connector = 'postgres-cdc', {}slot.name = 'rw', publication.name = 'rw')"
IN_CONNECTION, IN_SOURCE = CAPTURED.format("connection = c, "), CAPTURED.format("{}, ").replace("{}", "{place}")
PLACE = "hostname = '{}', username = 'u', database.name = 'shop'"


class Story:
    """A source, its runs, and the servers at which its slots were dropped."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "postgres-cdc") -> None:
        self.world: CannedWorld = tables_world()
        self.world.upstream_tables = {"public.orders": ORDERS}
        self.world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
        self.warehouse = Warehouse.at(str(folder))
        self.context = Context(
            warehouse=self.warehouse, metastore=cast("Any", None), sessions=cast("Any", None), owner="me"
        )
        monkeypatch.setattr(Context, "resolve", self._resolve)
        monkeypatch.setattr(type(connector(name)), "release", self._release)
        monkeypatch.setattr(type(connector(name)), "look", self._look)
        monkeypatch.setattr(type(connector(name)), "owns_publication", self._owns_publication, raising=False)
        monkeypatch.setattr(made_upstream_module, "_RETRIES", {})
        self.clusters: dict[str | None, str] = {}
        self.silent: set[str | None] = set()
        self.dropped: list[tuple[str | None, str]] = []

    def _resolve(self, options: Any, _: Snapshot) -> dict[str, str]:
        return {key: "secret" if isinstance(value, SecretReference) else value for key, value in options}

    def _look(self, options: Mapping[str, str], *, timeout: float) -> Upstream:
        host = options.get("hostname")
        return Upstream(error="it is down") if host in self.silent else Upstream(cluster=self.clusters.get(host))

    def _owns_publication(self, options: Mapping[str, str], *, timeout: float) -> bool:
        self._require_response(options)
        return True

    def _require_response(self, options: Mapping[str, str]) -> None:
        if options.get("hostname") in self.silent:
            raise CaptureError(UPSTREAM_UNREACHABLE, "it is down", is_temporary=True)

    def _release(self, options: Mapping[str, str], *, slot: bool, publication: bool, timeout: float) -> tuple[str, ...]:
        self._require_response(options)
        place = options.get("hostname", options.get("service.url"))
        self.dropped += [(place, what) for what, is_in in (("slot", slot), ("publication", publication)) if is_in]
        return ()

    def run_reader(self, name: str = "s", **made: bool) -> None:
        """One run of the source's reader, which creates what is missing."""
        record = source(self.world, name)
        spec = desired_jobs(self.world.snapshot)[ingest_fragment(record.id)]
        assert isinstance(spec, IngestSpec)
        note_made(self.warehouse, record, spec.options, **(made or {"slot": True, "publication": True}))

    def released(self, source_id: int) -> bool:
        """What the next try to drop the objects of a dropped source returns."""
        made_upstream_module._RETRIES.clear()
        return release_upstream(self.context, lambda: self.world.snapshot, source_id)

    def drop(self) -> list[tuple[str | None, str]]:
        """Drops the source; returns what was dropped upstream."""
        record = source(self.world, "s")
        self.world.run("DROP SOURCE s CASCADE")
        assert release_upstream(self.context, lambda: self.world.snapshot, record.id)
        return self.dropped


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(tmp_path, monkeypatch)


BOTH = [("b", "slot"), ("b", "publication"), ("a", "slot"), ("a", "publication")]


@pytest.mark.parametrize("move", ["ALTER CONNECTION c SET (hostname = 'b')", "ALTER SOURCE s SET CONNECTION d"])
def test_a_slot_is_dropped_on_the_server_to_which_the_connection_led(story: Story, move: str) -> None:
    for name, host in (("c", "a"), ("d", "b")):
        story.world.run(f"CREATE CONNECTION {name} WITH (type = 'postgres', {PLACE.format(host)})")
    story.world.run(IN_CONNECTION, TABLE.replace(" pg ", " s "))
    story.run_reader()
    story.world.run(move)
    story.run_reader()
    assert story.drop() == BOTH


def test_a_slot_is_dropped_on_the_server_that_the_source_named(story: Story) -> None:
    story.world.run(IN_SOURCE.format(place=PLACE.format("a")), TABLE.replace(" pg ", " s "))
    story.run_reader()
    story.world.run("ALTER SOURCE s UNSAFE SET (hostname = 'b')")
    story.run_reader()
    assert story.drop() == BOTH


def test_a_source_that_has_not_read_its_new_server_has_a_slot_only_on_the_old_one(story: Story) -> None:
    story.world.run(f"CREATE CONNECTION c WITH (type = 'postgres', {PLACE.format('a')})")
    story.world.run(IN_CONNECTION, TABLE.replace(" pg ", " s "))
    story.run_reader()
    record = source(story.world, "s")
    story.world.run("PAUSE SOURCE s", "ALTER CONNECTION c SET (hostname = 'b')", "DROP SOURCE s CASCADE")
    found = {host: has_slot_to_drop(story.context, story.world.snapshot, {"hostname": host}) for host in ("a", "b")}
    assert found == {"a": True, "b": False}
    assert release_upstream(story.context, lambda: story.world.snapshot, record.id)
    assert story.dropped == [("a", "slot"), ("a", "publication")]


def sharing(story: Story) -> None:
    """Two sources of one connection, with slots of their own and one publication, which the first has created."""
    story.world.run(f"CREATE CONNECTION c WITH (type = 'postgres', {PLACE.format('a')})")
    table = TABLE.replace(" pg ", " {} ").replace(" orders ", " {} ")
    story.world.run(IN_CONNECTION, table.format("orders", "s"))
    story.world.run(IN_CONNECTION.replace(" s ", " s2 ").replace("'rw',", "'rw2',", 1), table.format("o2", "s2"))
    story.run_reader()
    story.run_reader("s2", slot=True)


def test_a_publication_in_use_stays_where_the_server_got_another_address(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    sharing(story)
    story.world.run("ALTER CONNECTION c SET (hostname = 'a.example')")
    story.run_reader(publication=True)
    story.run_reader("s2", slot=True)
    assert story.drop() == [("a.example", "slot"), ("a", "slot")]
    assert "publication rw at a:5432 is kept because source s2 uses one of this name" in caplog.text


def test_a_publication_in_use_stays_if_the_address_changed_after_the_drop(story: Story) -> None:
    sharing(story)
    record = source(story.world, "s")
    story.world.run("DROP SOURCE s CASCADE", "ALTER CONNECTION c SET (hostname = 'a.example')")
    story.run_reader("s2", slot=True)
    assert release_upstream(story.context, lambda: story.world.snapshot, record.id)
    assert story.dropped == [("a", "slot")]


def test_a_source_that_was_created_again_keeps_its_slot_under_both_addresses(story: Story) -> None:
    story.world.run(f"CREATE CONNECTION c WITH (type = 'postgres', {PLACE.format('a')})")
    story.world.run(IN_CONNECTION, TABLE.replace(" pg ", " s "))
    story.run_reader()
    story.world.run("ALTER CONNECTION c SET (hostname = 'a.example')")
    story.run_reader(publication=True)
    record = source(story.world, "s")
    story.world.run("DROP SOURCE s CASCADE", IN_CONNECTION)
    assert release_upstream(story.context, lambda: story.world.snapshot, record.id)
    assert story.dropped == []
    assert made_upstream(story.warehouse, source(story.world, "s"))["inherited"] == ["publication", "slot"]


# The canned server of every source in the catalog is cluster "7:1".
@pytest.mark.parametrize(("cluster", "dropped"), [("8:1", BOTH[2:]), ("7:1", []), ("7:1/2", []), (None, [])])
def test_a_slot_is_dropped_on_the_former_server_although_the_new_one_has_one_of_this_name(
    story: Story, cluster: str | None, dropped: list[tuple[str, str]]
) -> None:
    story.world.run(f"CREATE CONNECTION c WITH (type = 'postgres', {PLACE.format('a')})")
    story.world.run(IN_CONNECTION, TABLE.replace(" pg ", " s "))
    story.run_reader()
    story.world.run("ALTER CONNECTION c SET (hostname = 'b')")
    story.run_reader()
    story.clusters = {"a": cluster} if cluster else {}
    record = source(story.world, "s")
    story.world.run("DROP SOURCE s CASCADE", IN_CONNECTION)
    assert release_upstream(story.context, lambda: story.world.snapshot, record.id)
    assert story.dropped == dropped


@pytest.mark.parametrize(("cluster", "publication"), [("8:1", [("a", "publication")]), ("7:1", []), (None, [])])
def test_a_publication_that_another_source_uses_under_another_address_stays(
    story: Story, cluster: str | None, publication: list[tuple[str, str]]
) -> None:
    table = TABLE.replace(" pg ", " {} ").replace(" orders ", " {} ")
    story.world.run(IN_SOURCE.format(place=PLACE.format("a")), table.format("orders", "s"))
    other = IN_SOURCE.format(place=PLACE.format("a.example")).replace(" s ", " s2 ").replace("'rw',", "'rw2',", 1)
    story.world.run(other, table.format("o2", "s2"))
    story.run_reader()
    story.run_reader("s2", slot=True)
    story.clusters = {"a": cluster} if cluster else {}
    assert story.drop() == [("a", "slot"), *publication]


def test_a_slot_on_a_former_server_that_is_down_is_dropped_when_it_is_back(story: Story) -> None:
    story.world.run(f"CREATE CONNECTION c WITH (type = 'postgres', {PLACE.format('a')})")
    story.world.run(IN_CONNECTION, TABLE.replace(" pg ", " s "))
    story.run_reader(slot=True)
    record = source(story.world, "s")
    story.silent.add("a")
    story.world.run("DROP SOURCE s CASCADE")
    assert not story.released(record.id)
    story.world.run("ALTER CONNECTION c SET (hostname = 'b')", IN_CONNECTION)
    assert not story.released(record.id)
    story.silent.clear()
    story.clusters = {"a": "8:1"}
    assert story.released(record.id)
    assert story.dropped == [("a", "slot")]


# The source that is created again finds the slot and the publication, or creates them.
@pytest.mark.parametrize(
    ("cluster", "creates", "dropped"),
    [
        ("7:1", False, []),
        ("7:1/2", False, []),
        ("7:1", True, [("a", "slot")]),
        ("8:1", False, [("a", "slot"), ("a", "publication")]),
        (None, False, [("a", "slot")]),
    ],
    ids=["same server", "after a failover", "copy of the server", "other server", "no identity"],
)
def test_a_slot_stays_if_the_source_was_created_again_with_another_address_of_the_same_server(
    story: Story, cluster: str | None, creates: bool, dropped: list[tuple[str, str]]
) -> None:
    story.world.run(IN_SOURCE.format(place=PLACE.format("a")), TABLE.replace(" pg ", " s "))
    story.run_reader()
    record = source(story.world, "s")
    story.silent.add("a")
    story.world.run("DROP SOURCE s CASCADE")
    assert not story.released(record.id)
    story.world.run(IN_SOURCE.format(place=PLACE.format("a.example")), TABLE.replace(" pg ", " s "))
    if creates:
        story.run_reader()
    assert not story.released(record.id)
    story.silent.clear()
    story.clusters = {"a": cluster} if cluster else {}
    assert story.released(record.id)
    assert story.dropped == dropped
    inherited = made_upstream(story.warehouse, source(story.world, "s")).get("inherited", [])
    assert inherited == ([] if dropped else ["publication", "slot"])
    if inherited:
        assert story.drop() == [("a.example", "slot"), ("a.example", "publication")]


@pytest.mark.parametrize("port", ["", "port = '5432', ", "port = '5433', "])
def test_a_slot_to_drop_is_found_whether_or_not_the_port_is_written(story: Story, port: str) -> None:
    story.world.run(IN_SOURCE.format(place=port + PLACE.format("a")), TABLE.replace(" pg ", " s "))
    story.run_reader()
    story.world.run("DROP SOURCE s CASCADE")
    asked = [{"hostname": "A"}, *({"hostname": "a", "port": each} for each in ("5432", "5433"))]
    found = [has_slot_to_drop(story.context, story.world.snapshot, each) for each in asked]
    assert found == ([False, False, True] if "5433" in port else [True, True, False])


def test_a_change_of_the_login_leaves_no_former_server(story: Story) -> None:
    story.world.run("CREATE SECRET p WITH (backend = 'meta') AS 'x'")
    story.world.run(f"CREATE CONNECTION c WITH (type = 'postgres', {PLACE.format('a')}, password = SECRET p)")
    story.world.run(IN_CONNECTION, TABLE.replace(" pg ", " s "))
    story.run_reader()
    story.world.run("ALTER CONNECTION c SET (username = 'other')")
    story.run_reader()
    made = made_upstream(story.warehouse, source(story.world, "s"))
    assert "former" not in made
    assert made["place"] == {
        "hostname": "a",
        "database.name": "shop",
        "slot.name": "rw",
        "publication.name": "rw",
    }


def test_a_host_that_is_a_secret_is_not_stored(story: Story) -> None:
    story.world.run("CREATE SECRET h WITH (backend = 'meta') AS 'x'")
    place = PLACE.format("a").replace("'a'", "SECRET h")
    story.world.run(f"CREATE CONNECTION c WITH (type = 'postgres', {place})")
    story.world.run(IN_CONNECTION, TABLE.replace(" pg ", " s "))
    story.run_reader()
    assert "hostname" not in made_upstream(story.warehouse, source(story.world, "s"))["place"]
    assert story.drop() == [("secret", "slot"), ("secret", "publication")]


def test_a_record_of_version_0_1_0_leads_to_the_connection(story: Story) -> None:
    story.world.run(f"CREATE CONNECTION c WITH (type = 'postgres', {PLACE.format('a')})")
    story.world.run(IN_CONNECTION, TABLE.replace(" pg ", " s "))
    record = source(story.world, "s")
    body = {"definition": record.definition, "slot": True}
    story.warehouse.write_text(
        f"{story.warehouse.uri}/checkpoints/ranges-{record.id}/upstream.json", json.dumps(body), is_durable=True
    )
    assert story.drop() == [("a", "slot")]


def test_a_subscription_is_dropped_at_the_brokers_to_which_the_connection_led(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path, monkeypatch, "pulsar")
    story.world.run("CREATE CONNECTION c WITH (type = 'pulsar', service.url = 'pulsar://a:6650')")
    story.world.run(
        "CREATE SOURCE s (id INT) WITH (connector = 'pulsar', connection = c, topic = 't', subscription.name = 'held') "
        "FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    story.run_reader(slot=True)
    story.world.run("ALTER CONNECTION c SET (service.url = 'pulsar://b:6650')")
    story.run_reader(slot=True)
    assert story.drop() == [("pulsar://b:6650", "slot"), ("pulsar://a:6650", "slot")]


def test_a_subscription_in_use_stays_where_the_brokers_got_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story(tmp_path, monkeypatch, "pulsar")
    story.world.run("CREATE CONNECTION c WITH (type = 'pulsar', service.url = 'pulsar://a:6650')")
    create = (
        "CREATE SOURCE s (id INT) WITH (connector = 'pulsar', connection = c, topic = 't', subscription.name = 'held') "
        "FORMAT PLAIN ENCODE JSON"
    )
    story.world.run(create, "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    story.run_reader(slot=True)
    record = source(story.world, "s")
    story.world.run("DROP SOURCE s CASCADE", "ALTER CONNECTION c SET (service.url = 'pulsar://b:6650')", create)
    assert release_upstream(story.context, lambda: story.world.snapshot, record.id)
    assert story.dropped == []
    assert "subscription held at pulsar://a:6650 is kept because source s uses one of this name" in caplog.text
