"""The token of the status page, as ``rw-sql serve`` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.service.serve import listen
from rw_sql.errors import SqlError
from rw_sql.runtime.status.http_server import TOKEN_VARIABLE
from tests.runtime.status.test_http_server import TOKEN, get

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \n"])
@pytest.mark.parametrize("place", ["environment", "file"])
def test_blanks_and_line_ends_around_a_token_are_omitted(
    place: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + end, encoding="utf-8")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN + end)
    server = listen("127.0.0.1", 0, str(file) if place == "file" else None)
    try:
        assert get(server, "/nothing")[0] == 401
        assert get(server, "/nothing", Authorization=f"Bearer {TOKEN}")[0] == 404
    finally:
        server.close()


@pytest.mark.parametrize("place", ["environment", "file"])
def test_a_token_of_blanks_alone_is_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(" \n", encoding="utf-8")
    monkeypatch.setenv(TOKEN_VARIABLE, " \n")
    with pytest.raises(SqlError, match="contains no token") as caught:
        listen("127.0.0.1", 0, str(file) if place == "file" else None)
    assert "openssl rand -hex 16" in (caught.value.hint or "")


def test_without_a_token_the_loopback_is_served_to_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "")
    server = listen("127.0.0.1", 0, None)
    try:
        assert get(server, "/nothing")[0] == 404
    finally:
        server.close()
