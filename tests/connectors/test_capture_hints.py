"""The hints of the change data capture connectors contain statements that can be typed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.connectors.mysql_cdc import server as mysql
from rw_sql.connectors.postgres_cdc import server as postgres
from rw_sql.connectors.postgres_cdc import source, validation
from rw_sql.connectors.slot_details import SlotDetails
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements.source import ResetSourceSplits


@pytest.mark.parametrize("hint", [mysql.AGAIN, postgres.AGAIN])
def test_the_statement_that_reads_the_tables_again_can_be_typed(hint: str) -> None:
    text, verb, _ = hint.partition(" reads every table again")
    assert verb
    statement = parse_statement(text.replace("SOURCE_NAME", "shop"))
    assert isinstance(statement, ResetSourceSplits)
    assert statement.name.key == "shop"
    assert statement.is_forgetting_offsets
    assert statement.allow == ("GAPS",)


SLOT = SlotDetails(
    name="rw",
    acknowledged=None,
    restart=None,
    end=9,
    status="lost",
    retained_bytes=None,
    lag_bytes=None,
    safe_bytes=None,
    active_pid=None,
    cluster="7:1",
    incarnation="1",
)
LOST = postgres.Facts(
    version=170000, is_standby=False, cluster="7:1", end=9, now_ms=0, database="d", incarnation="1", slot=SLOT,
    plugin="pgoutput", slot_database="d",
)  # fmt: skip
OTHER_PROGRAMS = [
    replace(LOST, plugin=None, slot_database=None, slot=replace(SLOT, status=None)),
    replace(LOST, plugin="wal2json"),
    replace(LOST, slot_database="other"),
    replace(LOST, has_two_phase=True),
]
"""Slots that contain no log and that rw_sql did not create. A physical slot without a reader reserves no log."""


@pytest.mark.parametrize("is_new", [True, False])
def test_only_an_existing_source_is_to_read_its_tables_again(monkeypatch: pytest.MonkeyPatch, *, is_new: bool) -> None:
    monkeypatch.setattr(validation, "read_facts", lambda options, timeout: LOST)
    (lack,) = validation._slot({"slot.name": "rw"}, 1.0, is_new=is_new)
    assert ("RESET SOURCE SPLITS" in lack.hint) is not is_new
    assert ("pg_drop_replication_slot('rw')" in lack.hint) is is_new


@pytest.mark.parametrize("facts", OTHER_PROGRAMS)
def test_no_hint_says_to_drop_the_slot_of_another_program(
    monkeypatch: pytest.MonkeyPatch, facts: postgres.Facts
) -> None:
    monkeypatch.setattr(validation, "read_facts", lambda options, timeout: facts)
    (lack,) = validation._slot({"slot.name": "rw"}, 1.0, is_new=True)
    assert "pg_drop_replication_slot" not in lack.hint
    assert "give another slot.name" in lack.hint


@pytest.mark.parametrize("facts", OTHER_PROGRAMS)
def test_the_slot_of_another_program_is_not_an_empty_slot(
    monkeypatch: pytest.MonkeyPatch, facts: postgres.Facts
) -> None:
    options = {"slot.name": "rw", "database.name": "d"}
    connector = source.PostgresCdcConnector()
    monkeypatch.setattr(source, "read_facts", lambda options, timeout: LOST)
    assert connector.look(options).splits["d"].start == LOST.end
    monkeypatch.setattr(source, "read_facts", lambda options, timeout: facts)
    assert 'replication slot "rw"' in (connector.look(options).error or "")
