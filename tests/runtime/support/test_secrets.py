"""The sources of secrets' values, and errors without any value."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import hvac
import pytest
import requests

from rw_sql.errors import SqlError
from rw_sql.metastore import Snapshot
from rw_sql.metastore.records import SecretRecord
from rw_sql.runtime.control.inspector import _Secrets
from rw_sql.runtime.support.secrets import KEY_FILE_VARIABLE, KEY_VARIABLE, read_secret, seal
from tests.conftest import FIXTURES, rendered
from tests.support.redirecting_server import redirecting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ERRORS = FIXTURES / "errors"
VALUE = "s3cr3t ÄÖ\\\"'"
KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(32)).decode()
TOKEN = "a-token-of-the-vault"


def secret(backend: str, options: str = "", sealed: str | None = None) -> SecretRecord:
    text = f"CREATE SECRET s WITH (backend = '{backend}'{options})"
    return SecretRecord(id=1, name="s", definition=text, backend=backend, sealed=sealed)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.delenv(KEY_FILE_VARIABLE, raising=False)


def unreadable(record: SecretRecord) -> SqlError:
    with pytest.raises(SqlError) as caught:
        read_secret(record)
    assert VALUE not in str(caught.value)
    return caught.value


def test_a_sealed_value_opens_again_and_does_not_show() -> None:
    sealed = seal("s", VALUE)
    assert read_secret(secret("meta", sealed=sealed)) == VALUE
    assert VALUE not in sealed
    assert seal("s", VALUE) != sealed
    assert VALUE not in repr(secret("meta", sealed=sealed))


def test_a_sealed_value_fits_no_other_secret_and_no_other_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unreadable(secret("meta", sealed=seal("another", VALUE))).code == "RW412"
    sealed = seal("s", VALUE)
    monkeypatch.setenv(KEY_VARIABLE, OTHER_KEY)
    assert unreadable(secret("meta", sealed=sealed)).code == "RW412"


def test_a_value_is_sealed_again_for_another_name() -> None:
    secret = SecretRecord(
        id=1,
        name="raw.pw",
        definition="CREATE SECRET raw.pw WITH (backend = 'meta')",
        backend="meta",
        sealed=seal("raw.pw", "s3cret"),
    )
    moved = replace(secret, name="pw", sealed=_Secrets(Snapshot()).reseal(secret, "pw"))
    assert read_secret(moved) == "s3cret"
    with pytest.raises(SqlError, match="cannot be read"):
        read_secret(replace(secret, name="pw"))


def test_the_key_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sealed = seal("s", VALUE)
    monkeypatch.delenv(KEY_VARIABLE)
    (tmp_path / "key").write_text(f"\ufeff{KEY}\n", encoding="utf-8")
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "key"))
    assert read_secret(secret("meta", sealed=sealed)) == VALUE


def test_the_error_names_the_key_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(SqlError) as caught:
        seal("s", VALUE)
    path = str(tmp_path / "nowhere")
    assert (
        caught.value.message == f"cannot read the key file {path!r} of {KEY_FILE_VARIABLE}: no such file or directory"
    )


@pytest.mark.parametrize("given", ["", "not base64!", base64.b64encode(b"short").decode()])
def test_without_a_usable_key_nothing_is_sealed(
    given: str, monkeypatch: pytest.MonkeyPatch, recorded: Callable[[Path, str], None]
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, given)
    with pytest.raises(SqlError) as caught:
        seal("s", VALUE)
    assert caught.value.code == "RW411"
    if not given:
        recorded(ERRORS / "secret_key_missing.txt", f"{caught.value.render()}\nSQLSTATE: {caught.value.sqlstate}\n")


def test_a_value_in_the_environment(monkeypatch: pytest.MonkeyPatch, recorded: Callable[[Path, str], None]) -> None:
    record = secret("env", ", name = 'RW_SQL_TEST_SECRET'")
    error = unreadable(record)
    recorded(ERRORS / "secret_unreadable.txt", rendered(error))
    for end in ("", "\n", "\r\n"):
        monkeypatch.setenv("RW_SQL_TEST_SECRET", f" {VALUE} {end}")
        assert read_secret(record) == f" {VALUE} "


def test_a_value_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    record = secret("file", f", path = '{path}'")
    assert unreadable(record).code == "RW412"
    for mark in ("", "\ufeff"):
        path.write_text(f"{mark}{VALUE}\n", encoding="utf-8")
        assert read_secret(record) == VALUE


class Vault(BaseHTTPRequestHandler):
    """A server that speaks the documented API of Vault's KV version 2 and AppRole, as far as a reader needs it."""

    def do_GET(self) -> None:
        if self.headers.get("X-Vault-Token") != TOKEN:
            self._answer(403, {"errors": ["permission denied"]})
        elif self.path == "/v1/secret/data/kafka":
            held = {"password": VALUE, "of a file": f"{VALUE}\n"}
            self._answer(200, {"data": {"data": held, "metadata": {"version": 3}}})
        else:
            self._answer(404, {"errors": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/auth/approle/login" and body == {"role_id": "role", "secret_id": "id"}:
            self._answer(200, {"auth": {"client_token": TOKEN}})
        else:
            self._answer(400, {"errors": ["invalid role or secret ID"]})

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is the test's."""


@pytest.fixture
def vault() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Vault)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def in_vault(address: str, path: str = "kafka", field: str = "password", more: str = "") -> SecretRecord:
    return secret("hashicorp_vault", f", addr = '{address}', path = '{path}', field = '{field}'{more}")


def test_a_value_in_a_vault(vault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    assert read_secret(in_vault(vault)) == VALUE
    assert read_secret(in_vault(vault, field="of a file")) == VALUE
    assert 'no field "user"' in unreadable(in_vault(vault, field="user")).message
    assert "InvalidPath" in unreadable(in_vault(vault, path="nowhere")).message
    monkeypatch.setenv("VAULT_TOKEN", "another")
    assert "Forbidden" in unreadable(in_vault(vault)).message


def test_a_line_end_after_a_credential_of_the_vault_is_omitted(vault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", f"{TOKEN}\n")
    assert read_secret(in_vault(vault)) == VALUE
    monkeypatch.setenv("VAULT_TOKEN", "")
    monkeypatch.setenv("VAULT_ROLE_ID", "role\n")
    monkeypatch.setenv("VAULT_SECRET_ID", "id\r\n")
    assert read_secret(in_vault(vault, more=", auth_method = 'approle'")) == VALUE


def test_an_error_does_not_show_a_token_that_is_no_header(vault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", f"{TOKEN}\nx")
    error = unreadable(in_vault(vault))
    assert "VAULT_TOKEN contains characters" in error.message
    assert TOKEN not in str(error)
    assert error.__suppress_context__


def test_a_vault_by_role(vault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAULT_TOKEN", raising=False)
    monkeypatch.setenv("VAULT_ROLE_ID", "role")
    monkeypatch.setenv("VAULT_SECRET_ID", "id")
    record = in_vault(vault, more=", auth_method = 'approle'")
    assert read_secret(record) == VALUE
    monkeypatch.setenv("VAULT_SECRET_ID", "wrong")
    assert unreadable(record).code == "RW412"


def test_a_vault_s_certificate_is_checked_with_the_named_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hvac.v1, "VAULT_CACERT", "authorities.pem")  # hvac reads the variable when it is imported.
    verified = []

    def send(self: requests.Session, method: str, url: str, **options: object) -> requests.Response:
        verified.append(options["verify"])
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "request", send)
    assert "does not answer" in unreadable(in_vault("https://127.0.0.1:1")).message
    assert verified == ["authorities.pem"]


@pytest.mark.parametrize("login", ["ann:hunter2", "hunter2"])
def test_the_login_in_the_address_of_a_vault_is_not_shown(login: str) -> None:
    """A warehouse of an earlier version may contain such an address."""
    told = unreadable(in_vault(f"http://{login}@127.0.0.1:1")).message
    assert told.endswith("the vault at http://[secret]@127.0.0.1:1 does not answer")
    with redirecting() as servers:
        address = servers.url.replace("://", f"://{login}@")
        told = unreadable(in_vault(address)).message
    assert "the server redirects to" in told
    assert "hunter2" not in told


def test_a_vault_that_does_not_answer() -> None:
    assert "does not answer" in unreadable(in_vault("http://127.0.0.1:1")).message


@pytest.mark.parametrize("more", ["", ", auth_method = 'approle'"])
def test_a_vault_s_token_stays_at_its_address(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VAULT_TOKEN", "VAULT_ROLE_ID", "VAULT_SECRET_ID"):
        monkeypatch.setenv(variable, TOKEN)
    with redirecting() as servers:
        servers.status = 307
        told = unreadable(in_vault(servers.url, more=more)).message
        assert f"the vault at {servers.url}: the server redirects to {servers.target}: use that address" in told
        assert servers.received == []
