"""A slot with two_phase, whose transactions the server sends before they are committed, is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc import setup
from rw_sql.connectors.postgres_cdc.server import Facts, check_slot
from rw_sql.connectors.postgres_cdc.source import PostgresCdcConnector
from rw_sql.connectors.slot_details import SlotDetails
from tests.support.postgres_changes import TIMEOUT, cdc_options

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

SLOT = SlotDetails(
    name="rw", acknowledged=1, restart=1, end=2, status="reserved", retained_bytes=1, lag_bytes=1, safe_bytes=None,
    active_pid=None, cluster="7/1", incarnation="5",
)  # fmt: skip


@pytest.mark.parametrize("has_two_phase", [False, True])
def test_the_check_of_a_slot_names_two_phase(*, has_two_phase: bool) -> None:
    facts = Facts(
        version=170000, is_standby=False, cluster="7/1", end=2, now_ms=0, database="shop", incarnation="5", slot=SLOT,
        plugin="pgoutput", slot_database="shop", has_two_phase=has_two_phase,
    )  # fmt: skip
    if not has_two_phase:
        assert check_slot(facts, {"slot.name": "rw"}) == SLOT
        return
    with pytest.raises(CaptureError, match="two_phase = true") as caught:
        check_slot(facts, {"slot.name": "rw"})
    assert "another slot.name" in (caught.value.hint or "")


@pytest.mark.postgres
def test_a_slot_that_sends_prepared_transactions_is_refused(postgres: PostgresInfo) -> None:
    options = cdc_options(postgres)
    try:
        postgres.run(f"SELECT pg_create_logical_replication_slot('{options['slot.name']}', 'pgoutput', false, true)")
    except psycopg.errors.UndefinedFunction:
        pytest.skip("this server has no two_phase")
    try:
        with pytest.raises(CaptureError, match="two_phase"):
            setup.prepare(options, [], TIMEOUT)
        lacks = PostgresCdcConnector().find_lacks(options, {}, timeout=TIMEOUT)
        assert any("two_phase" in lack.message for lack in lacks)
    finally:
        assert setup.release(options, slot=True, publication=True, timeout=TIMEOUT) == ()
