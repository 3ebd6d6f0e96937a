"""``rw-sql serve``: its lines, and where its page listens."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.cli.service import serve
from rw_sql.cli.service.log_lines import said, start_log
from rw_sql.cli.service.serve import count_until, listen, serve_until_told
from rw_sql.errors import SqlError
from rw_sql.runtime.status import http_server
from rw_sql.runtime.status.http_server import TOKEN_VARIABLE
from rw_sql.runtime.support.event_log import log_event
from rw_sql.session import attach

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _same_logging() -> Iterator[None]:
    logger = logging.getLogger("rw_sql")
    before = (logger.level, list(logger.handlers), logger.propagate)
    yield
    logger.level, logger.handlers, logger.propagate = before[0], before[1], before[2]
    logger.manager._clear_cache()  # type: ignore[attr-defined]  # levels are remembered by each logger


def lines(form: str) -> list[str]:
    """The log lines for an event with a line break in a name, for a warning, and for a message of the command."""
    stream = io.StringIO()
    start_log(form, stream)
    log_event("job", job="mv-9", state="STALLED", reason='it "fails"\nforged line', run=None)
    logging.getLogger("rw_sql.runtime.control.owner").warning("late by\n%d s", 3)
    said.info("serving")
    return stream.getvalue().splitlines()


def test_text_lines_have_their_time_and_stay_one_line() -> None:
    event, warning, serving = lines("text")
    for line in (event, warning, serving):
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING) ", line), line
    assert event.endswith('INFO event=job job=mv-9 state=STALLED reason="it \\"fails\\"\\nforged line"')
    assert warning.endswith("WARNING late by\\n3 s")
    assert serving.endswith(" INFO serving")


def test_json_lines_have_the_fields_of_an_event() -> None:
    event, warning, serving = map(json.loads, lines("json"))
    assert (event["event"], event["job"], event["reason"]) == ("job", "mv-9", 'it "fails"\nforged line')
    assert "run" not in event
    assert (warning["level"], warning["logger"]) == ("WARNING", "rw_sql.runtime.control.owner")
    assert serving["message"] == "serving"


def test_another_form_is_refused() -> None:
    with pytest.raises(SqlError, match="--log must be text or json"):
        start_log("xml")


def test_a_standby_on_the_same_machine_takes_a_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(http_server, "DEFAULT_PORT", taken)
        server = listen("127.0.0.1", None, None)
        assert server.port != taken
        server.close()
        with pytest.raises(SqlError, match="cannot be served"):
            listen("127.0.0.1", taken, None)


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(SqlError, match="without a token"):
        listen("0.0.0.0", 0, None)
    token = tmp_path / "token"
    with pytest.raises(SqlError, match="cannot read file"):
        listen("0.0.0.0", 0, str(token))
    token.write_text("\n", encoding="utf-8")
    with pytest.raises(SqlError, match="contains no token"):
        listen("0.0.0.0", 0, str(token))
    token.write_text("0123456789abcdef\n", encoding="utf-8")
    listen("0.0.0.0", 0, str(token)).close()
    monkeypatch.setenv(TOKEN_VARIABLE, "0123456789abcdef")
    listen("0.0.0.0", 0, None).close()


def test_rows_are_counted_until_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_LOOK_SECONDS", 0.0)
    ended = threading.Event()
    counted = []

    def count() -> None:
        counted.append(1)
        if len(counted) == 3:
            ended.set()

    count_until(ended, cast("Any", SimpleNamespace(count=count)))
    assert len(counted) == 3


def test_a_signal_ends_the_process_while_a_slow_store_delays_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()

    def count() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        told.wait(60)

    served = SimpleNamespace(count=count)
    attached = SimpleNamespace(served=lambda: served, is_owner=True, is_alive=False, why_ended=None)
    monkeypatch.setattr(serve, "check_java", lambda: None)
    monkeypatch.setattr(attach, "connect", lambda *_, **__: None)
    monkeypatch.setattr(attach, "attach", lambda *_: attached)
    monkeypatch.setattr(attach, "detach", lambda _: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    started = time.monotonic()
    try:
        serve_until_told(warehouse=None, has_http=False)
    finally:
        told.set()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert time.monotonic() - started < 50
