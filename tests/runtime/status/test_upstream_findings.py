"""What the doctor finds on the server of a captured database while the source's status does not show it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc import server, setup, source
from rw_sql.connectors.postgres_cdc.connection import lsn_number
from rw_sql.connectors.postgres_cdc.source import PostgresCdcConnector
from rw_sql.errors import PACKAGE_MISSING
from rw_sql.metastore.records import AssignSplits, PauseRecord, PutObject, PutSplitStates
from rw_sql.runtime.delta.delta_log import JobCommit
from rw_sql.runtime.jobs.made_upstream import note_made
from rw_sql.runtime.status.doctor import examine
from rw_sql.runtime.status.findings import UPSTREAM, Finding
from tests.runtime.jobs.test_made_upstream import captured
from tests.support.postgres_changes import TIMEOUT, cdc_options
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres

ID = 2


class CapturedDatabase:
    """A warehouse with a paused source that has read a database up to the position of its slot."""

    def __init__(self, folder: Path, postgres: PostgresInfo) -> None:
        self.postgres, self.options = postgres, cdc_options(postgres)
        self.written = WrittenWarehouse(folder)
        self.at = setup.prepare(self.options, [], TIMEOUT).end
        # The reader has acknowledged what it has read.
        self.postgres.run("SELECT pg_logical_emit_message(false, 'x', 'x')")
        self.advance()
        self.source = replace(captured(self.options, ID), keeps_reader=True)
        pause = PauseRecord(id=3, name="PAUSE SOURCE s", source_id=ID)
        states = {"postgres": f'{{"offset": {self.at - 1}}}'}
        fragment = f"ingest-{ID}"
        self.written.commit(
            PutObject(record=self.source),
            PutObject(record=pause),
            AssignSplits(fragment=fragment, splits=("postgres",)),
            PutSplitStates(fragment=fragment, states=states),
        )
        log, ranges = self.written.fence(fragment, 1), {"postgres": (self.at - 1, self.at)}
        self.written._append(log, 1, 0, JobCommit(job=fragment, run=1, epoch=1, batch=0, ranges=ranges))
        note_made(self.written.context().warehouse, self.source, slot=True, publication=True)

    def advance(self) -> None:
        """The reader reads up to the slot's new position."""
        name = self.options["slot.name"]
        self.postgres.run(f"SELECT pg_replication_slot_advance('{name}', pg_current_wal_insert_lsn())")
        ((at,),) = self.postgres.run(
            f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{name}'"
        )
        self.at = lsn_number(at)

    def findings(self) -> list[Finding]:
        return [found for found in examine(self.written.context()) if found.about == UPSTREAM]


@pytest.fixture
def database(tmp_path: Path, postgres: PostgresInfo) -> CapturedDatabase:
    return CapturedDatabase(tmp_path / "w", postgres)


def test_a_paused_source_whose_slot_is_missing(database: CapturedDatabase) -> None:
    assert database.findings() == []
    slot = database.options["slot.name"]
    database.postgres.run(f"SELECT pg_drop_replication_slot('{slot}')")
    (found,) = database.findings()
    assert found.subject == 'source "s"'
    assert found.problem == f'it is PAUSED, and its reader cannot continue: replication slot "{slot}" does not exist'
    again = "RESET SOURCE SPLITS s ALLOW GAPS WITH (FORGET_OFFSETS = true) reads every table again"
    assert (found.remedy, found.is_repairable) == (again, False)


def test_a_slot_that_a_move_or_its_undo_has_left(database: CapturedDatabase) -> None:
    second = database.options | {"slot.name": f"{database.options['slot.name']}_2"}
    setup.prepare(second, [], TIMEOUT)
    warehouse = database.written.context().warehouse
    # A run has read the second slot, and the move was undone.
    note_made(warehouse, captured(second, ID), slot=True)
    note_made(warehouse, database.source)
    (found,) = database.findings()
    assert found.subject == f'slot {second["slot.name"]} of source "s"'
    assert re.search(r"keeps \d+ bytes of the server's log$", found.problem)
    removal = f"SELECT pg_drop_replication_slot('{second['slot.name']}')"
    needed = "if neither an UNDO nor another program or warehouse needs the slot"
    assert found.remedy == f"{needed}, run on its server: {removal}"
    database.postgres.run(removal)
    assert database.findings() == []


def test_a_slot_is_not_left_if_it_has_another_address_or_another_source_reads_it(database: CapturedDatabase) -> None:
    warehouse = database.written.context().warehouse
    elsewhere = replace(captured(database.options | {"hostname": "localhost"}, ID), keeps_reader=True)
    database.written.commit(PutObject(record=elsewhere))
    note_made(warehouse, elsewhere)
    assert database.findings() == []
    second = database.options | {"slot.name": f"{database.options['slot.name']}_2"}
    moved = replace(captured(second, ID), keeps_reader=True)
    setup.prepare(second, [], TIMEOUT)
    database.written.commit(PutObject(record=moved))
    left = [found.subject for found in database.findings() if found.subject.startswith("slot")]
    assert left == [f'slot {database.options["slot.name"]} of source "s"'], "although no run has begun since the move"
    other = replace(captured(database.options, 9), name="other")
    database.written.commit(PutObject(record=other))
    assert [found.subject for found in database.findings() if found.subject.startswith("slot")] == []
    assert PostgresCdcConnector().slot_details(second) is not None


def test_a_server_that_does_not_respond_is_no_finding(database: CapturedDatabase) -> None:
    away = replace(captured(database.options | {"port": "1"}, ID), keeps_reader=True)
    database.written.commit(PutObject(record=away))
    assert [found for found in database.findings() if found.subject == 'source "s"'] == []


def test_a_server_that_this_process_cannot_ask_is_no_finding(
    database: CapturedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise CaptureError(PACKAGE_MISSING, "no package")

    monkeypatch.setattr(server, "read_facts", refuses)
    monkeypatch.setattr(source, "read_facts", refuses)
    assert database.findings() == []


def test_a_left_slot_that_a_client_reads_is_no_finding(
    database: CapturedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = database.options | {"slot.name": f"{database.options['slot.name']}_2"}
    setup.prepare(second, [], TIMEOUT)
    note_made(database.written.context().warehouse, captured(second, ID), slot=True)
    note_made(database.written.context().warehouse, database.source)
    assert len(database.findings()) == 1
    found = PostgresCdcConnector.slot_details

    def in_use(*given: Any, **named: Any) -> Any:
        slot = found(*given, **named)
        return None if slot is None else replace(slot, active_pid=7)

    monkeypatch.setattr(PostgresCdcConnector, "slot_details", in_use)
    assert database.findings() == []
