"""What a source's runs have made upstream is removed after the source was dropped, also where it was read before."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.base import SplitState, Upstream
from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc import setup
from rw_sql.connectors.registry import connector
from rw_sql.errors import UPSTREAM_UNREACHABLE
from rw_sql.metastore import Snapshot
from rw_sql.metastore.records import SourceRecord
from rw_sql.runtime.control.upstreams import Upstreams
from rw_sql.runtime.jobs import made_upstream as made_upstream_module
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.made_upstream import has_slot_to_drop, made_upstream, note_made, release_upstream
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement, render
from tests.support.postgres import running_server
from tests.support.postgres_changes import TIMEOUT, cdc_options
from tests.support.pulsar_server import new_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.postgres import PostgresInfo
    from tests.support.pulsar_server import PulsarServer


def source_of(topic: str, url: str, id_: int = 7) -> SourceRecord:
    statement = parse_statement(
        f"CREATE SOURCE s (id INT) WITH (connector = 'pulsar', topic = '{topic}', service.url = '{url}', "
        "subscription.name = 'held') FORMAT PLAIN ENCODE JSON"
    )
    return SourceRecord(id=id_, name="s", definition=render(statement), connector="pulsar", options=(), is_shared=True)


@pytest.mark.pulsar
def test_subscriptions_of_all_topics_are_removed(tmp_path: Path, pulsar_server: PulsarServer) -> None:
    warehouse = Warehouse(str(tmp_path))
    topics = [new_name(), new_name()]
    for topic in topics:
        note_made(warehouse, source_of(topic, pulsar_server.url), slot=True)
        options = {"topic": topic, "service.url": pulsar_server.url, "subscription.name": "held"}
        states = {topic: SplitState(split=topic, offset=0)}
        feed: Any = connector("pulsar").range_feed(options, states, max_records=None)  # type: ignore[attr-defined]
        feed.close()
        assert "held" in pulsar_server.internal(topic)["cursors"]
    assert len(made_upstream(warehouse, source_of(topics[1], pulsar_server.url))["former"]) == 1
    # Neither the catalog nor Spark is needed.
    context = Context(warehouse=warehouse, metastore=cast("Any", None), sessions=cast("Any", None), owner="me")
    assert release_upstream(context, Snapshot, 7)
    assert all("held" not in pulsar_server.internal(topic)["cursors"] for topic in topics)
    assert release_upstream(context, Snapshot, 7)  # Repeatable.


def test_a_request_to_a_broker_that_is_away_is_repeated(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    note_made(warehouse, source_of("t", "pulsar://127.0.0.1:1"), slot=True)
    context = Context(warehouse=warehouse, metastore=cast("Any", None), sessions=cast("Any", None), owner="me")
    assert not release_upstream(context, Snapshot, 7)


def captured(options: dict[str, str], id_: int = 7) -> SourceRecord:
    listed = ", ".join(f"{name} = '{value}'" for name, value in options.items())
    statement = parse_statement(f"CREATE SOURCE s WITH (connector = 'postgres-cdc', {listed})")
    return SourceRecord(
        id=id_, name="s", definition=render(statement), connector="postgres-cdc", options=(), is_shared=True
    )


SHOP = {
    "hostname": "db",
    "username": "u",
    "database.name": "shop",
    "slot.name": "rw_shop",
    "publication.name": "rw_published",
}


class Releases:
    """The objects that were dropped upstream, in place of a server. ``is_away``: the server does not respond."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.dropped: list[str] = []
        self.is_away = False
        monkeypatch.setattr(type(connector(name)), "release", self._release)
        monkeypatch.setattr(made_upstream_module, "_RETRIES", {})
        monkeypatch.setattr(made_upstream_module, "_FIRST_RETRY_SECONDS", 0.0)

    def _release(self, options: Mapping[str, str], *, slot: bool, publication: bool, timeout: float) -> tuple[str, ...]:
        if self.is_away:
            raise OSError("no answer")
        names = ("slot.name", slot), ("publication.name", publication)
        self.dropped += [options.get(name, options.get("subscription.name", "")) for name, is_in in names if is_in]
        return ()


def catalog_of(*sources: SourceRecord) -> Snapshot:
    by_id = {source.id: source for source in sources}
    return Snapshot(records=by_id, kinds={"source": by_id})


def context_of(tmp_path: Path) -> Context:
    warehouse = Warehouse(str(tmp_path))
    return Context(warehouse=warehouse, metastore=cast("Any", None), sessions=cast("Any", None), owner="me")


def test_a_source_that_is_created_again_inherits_the_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, releases = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc")
    note_made(context.warehouse, captured(SHOP), slot=True, publication=True)
    releases.is_away = True
    assert not release_upstream(context, Snapshot, 7)
    releases.is_away = False
    again = captured(SHOP | {"hostname": "DB", "port": "5432"}, id_=8)
    with_again = catalog_of(again)
    assert release_upstream(context, lambda: with_again, 7)
    assert releases.dropped == []
    # The runs of the new source did not create the slot, so its position may not be moved to the slot's.
    made = made_upstream(context.warehouse, again)
    assert (made.get("slot"), made.get("publication"), made["inherited"]) == (None, None, ["publication", "slot"])
    assert release_upstream(context, Snapshot, 8)
    assert releases.dropped == ["rw_shop", "rw_published"]


def test_the_catalog_is_read_again_right_before_the_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, releases = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc")
    note_made(context.warehouse, captured(SHOP), slot=True)
    catalogs = iter([Snapshot(), catalog_of(captured(SHOP, id_=8))])
    assert release_upstream(context, lambda: next(catalogs), 7)
    assert releases.dropped == []


def test_a_publication_that_another_source_uses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, releases = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc")
    note_made(context.warehouse, captured(SHOP), slot=True, publication=True)
    other = captured(SHOP | {"slot.name": "other"}, id_=8)
    elsewhere = captured(SHOP | {"hostname": "db2"}, id_=9)
    catalog = catalog_of(other, elsewhere)
    assert release_upstream(context, lambda: catalog, 7)
    assert releases.dropped == ["rw_shop"]
    assert made_upstream(context.warehouse, other)["inherited"] == ["publication"]
    assert not made_upstream(context.warehouse, elsewhere)


def test_objects_of_a_former_upstream_are_inherited_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, releases = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc")
    note_made(context.warehouse, captured(SHOP), slot=True, publication=True)
    note_made(context.warehouse, captured(SHOP | {"slot.name": "second"}), slot=True)
    with_other = catalog_of(captured(SHOP, id_=8))
    assert release_upstream(context, lambda: with_other, 7)
    assert releases.dropped == ["second"]
    # The new source is moved away from the slot that it inherited, and dropped.
    note_made(context.warehouse, captured(SHOP | {"slot.name": "third"}, id_=8))
    assert made_upstream(context.warehouse, captured(SHOP, id_=8))["inherited"] == ["publication"]
    assert release_upstream(context, Snapshot, 8)
    assert sorted(releases.dropped) == ["rw_published", "rw_published", "rw_shop", "second"]


@pytest.mark.parametrize("is_same_server", [True, False])
def test_a_former_slot_that_cannot_be_dropped_is_tried_again_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_same_server: bool
) -> None:
    context, releases = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc")
    note_made(context.warehouse, captured(SHOP), slot=True)
    present = SHOP | {"slot.name": "second"} | ({} if is_same_server else {"hostname": "db2"})
    note_made(context.warehouse, captured(present), slot=True)
    kind = type(connector("postgres-cdc"))
    is_in_use = [True]

    def refusing(_: Any, options: Mapping[str, str], **which: Any) -> Any:
        if options["slot.name"] == "rw_shop" and is_in_use[0]:
            raise CaptureError(UPSTREAM_UNREACHABLE, "the slot is in use", is_temporary=True)
        return releases._release(options, **which)

    monkeypatch.setattr(kind, "release", refusing)
    monkeypatch.setattr(kind, "look", lambda *_, **__: Upstream(cluster="1/1"))
    assert release_upstream(context, Snapshot, 7) is not is_same_server
    assert releases.dropped == ["second"]
    told = "its slot at the former address db is not dropped: on that server, run SELECT pg_drop_replication_slot"
    assert (told in caplog.text) is not is_same_server
    if is_same_server:
        assert not release_upstream(context, Snapshot, 7)
        # Another warehouse may have created a slot of this name since.
        assert releases.dropped == ["second"]
    is_in_use[0] = False
    assert release_upstream(context, Snapshot, 7)
    assert "rw_shop" in releases.dropped
    assert releases.dropped.count("second") == (1 if is_same_server else 2)


def test_a_subscription_that_another_source_uses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, releases = context_of(tmp_path), Releases(monkeypatch, "pulsar")
    url = "pulsar://broker:6650"
    for topic in ("t", "u"):
        note_made(context.warehouse, source_of(topic, url), slot=True)
    again = catalog_of(source_of("persistent://public/default/t", url, id_=8))
    assert release_upstream(context, lambda: again, 7)
    assert releases.dropped == ["held"], "the subscription of topic u"
    assert release_upstream(context, Snapshot, 8)
    assert releases.dropped == ["held", "held"]


@pytest.mark.postgres
def test_only_the_slots_that_a_source_made_are_dropped_wherever_it_was_moved(
    tmp_path: Path, postgres: PostgresInfo
) -> None:
    warehouse = Warehouse(str(tmp_path))
    context = Context(warehouse=warehouse, metastore=cast("Any", None), sessions=cast("Any", None), owner="me")
    own = cdc_options(postgres)
    setup.prepare(own, [], TIMEOUT)
    note_made(warehouse, captured(own), slot=True, publication=True)
    # UNSAFE SET of a slot that somebody else made, of the same publication.
    other = own | {"slot.name": f"{own['slot.name']}_2"}
    setup.prepare(other, [], TIMEOUT)
    note_made(warehouse, captured(other))
    moved = other | {"hostname": "localhost"}
    note_made(warehouse, captured(moved))
    note_made(warehouse, captured(moved))
    assert made_upstream(warehouse, captured(moved))["slot"] is False
    assert release_upstream(context, Snapshot, 7)
    slots = postgres.run(f"SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '{own['slot.name']}%'")
    assert slots == [(other["slot.name"],)]
    assert not postgres.run(f"SELECT 1 FROM pg_publication WHERE pubname = '{own['publication.name']}'")
    assert setup.release(other, slot=True, publication=False, timeout=TIMEOUT) == ()


@pytest.mark.postgres
def test_a_slot_is_dropped_when_its_server_answers_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_upstream_module, "_FIRST_RETRY_SECONDS", 1000.0)
    warehouse = Warehouse(str(tmp_path))
    context = Context(warehouse=warehouse, metastore=cast("Any", None), sessions=cast("Any", None), owner="me")
    with running_server(wal_level="logical") as server:
        options = cdc_options(server.info)
        setup.prepare(options, [], TIMEOUT)
        source = captured(options)
        note_made(warehouse, source, slot=True, publication=True)
        server.stop()
        assert not release_upstream(context, Snapshot, 7)
        server.start()
        assert not release_upstream(context, Snapshot, 7), "the next attempt is not due yet"
        made_upstream_module._RETRIES.clear()
        assert release_upstream(context, Snapshot, 7)
        assert server.run("SELECT count(*) FROM pg_replication_slots") == [(0,)]
        assert server.run("SELECT count(*) FROM pg_publication") == [(0,)]


@pytest.mark.postgres
def test_a_slot_that_is_dropped_soon_does_not_keep_another_source_from_being_created(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    context = Context(warehouse=warehouse, metastore=cast("Any", None), sessions=cast("Any", None), owner="me")
    with running_server(wal_level="logical", max_replication_slots="1") as server:
        old = cdc_options(server.info)
        setup.prepare(old, [], TIMEOUT)
        source = captured(old)
        note_made(warehouse, source, slot=True, publication=True)
        new = old | {"slot.name": f"{old['slot.name']}_2"}

        def lacks(snapshot: Snapshot) -> list[str]:
            upstreams = Upstreams(
                lambda options, _=(): dict(options),
                {},
                partial(has_slot_to_drop, context, snapshot),
            )
            return [lack.message for lack in upstreams.find_lacks("postgres-cdc", tuple(new.items()), {})]

        with_source = Snapshot(records={source.id: source})
        assert lacks(with_source) == ["all 1 replication slots are in use"]
        assert lacks(Snapshot()) == []
        assert not has_slot_to_drop(context, Snapshot(), new | {"port": "1"})
        assert release_upstream(context, Snapshot, source.id)
        warehouse.remove(f"{warehouse.uri}/checkpoints/ranges-{source.id}")  # as the sweep does
        server.run("SELECT pg_create_physical_replication_slot('other')")
        assert lacks(Snapshot()) == ["all 1 replication slots are in use"]
