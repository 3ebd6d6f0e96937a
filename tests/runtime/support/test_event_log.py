"""A log line per step: key=value, quoted if necessary, and no work without a listener."""

from __future__ import annotations

import logging

import pytest

from rw_sql.runtime.support.event_log import log_event


def test_a_line_is_made_of_pairs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rw_sql.events"):
        log_event("committed", epoch=17, kind="UNSAFE SET", reason='a "bad"\nday', unsafe=True, detail=None)
    assert caplog.messages == ['event=committed epoch=17 kind="UNSAFE SET" reason="a \\"bad\\"\\nday" unsafe=true']


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rw_sql.events"):
        log_event("step", action="AlterObject")
    assert caplog.messages == []
