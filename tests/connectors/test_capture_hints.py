"""The hints of the change data capture connectors contain statements that can be typed."""

from __future__ import annotations

import pytest

from rw_sql.connectors.changes import SlotDetails
from rw_sql.connectors.mysql_cdc import server as mysql
from rw_sql.connectors.postgres_cdc import server as postgres
from rw_sql.connectors.postgres_cdc import validation
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


@pytest.mark.parametrize("is_new", [True, False])
def test_only_an_existing_source_is_to_read_its_tables_again(monkeypatch: pytest.MonkeyPatch, *, is_new: bool) -> None:
    slot = SlotDetails(
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
    facts = postgres.Facts(
        version=170000, is_standby=False, cluster="7:1", end=9, now_ms=0, database="d", incarnation="1", slot=slot,
        plugin="pgoutput", slot_database="d",
    )  # fmt: skip
    monkeypatch.setattr(validation, "read_facts", lambda options, timeout: facts)
    (lack,) = validation._slot({"slot.name": "rw"}, 1.0, is_new=is_new)
    assert ("RESET SOURCE SPLITS" in lack.hint) is not is_new
    assert ("pg_drop_replication_slot('rw')" in lack.hint) is is_new
