"""A broker with authentication: by SCRAM or PLAIN over TLS, or by a certificate."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.cli.servers.local_server import free_port
from rw_sql.connectors.kafka.admin import admin_module
from tests.support.certificates import Signed, issue, make_authority

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = 'p"a\\ss'


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """The addresses of the broker, and its certificate authority. ``plain`` is the listener without authentication,
    through which tests produce records."""

    plain: str
    by_password: str
    by_certificate: str
    authority: Signed
    authority_file: Path


def set_scram_password(bootstrap: str, user: str, password: str) -> None:
    """Creates a SCRAM-SHA-512 user, or changes the password of an existing user."""
    client = admin_module()
    admin = client.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    scram = client.ScramCredentialInfo(client.ScramMechanism.SCRAM_SHA_512, 4096)
    change = client.UserScramCredentialUpsertion(user, scram, password.encode())
    admin.alter_user_scram_credentials([change])[user].result()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The broker, with user ``scram`` and a topic ``events`` of ten records."""
    with running_secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@contextmanager
def running_secured_broker(folder: Path) -> Iterator[Secured]:
    """A broker with authentication and with its data in a folder."""
    folder.mkdir(exist_ok=True)
    authority = make_authority()
    server = issue(authority, "broker")
    (folder / "ca.pem").write_text(authority.certificate_pem)
    (folder / "server.pem").write_text(server.key_pem() + server.certificate_pem + authority.certificate_pem)
    plain, controller, password, certificate = (free_port() for _ in range(4))
    public = f"PLAINTEXT://127.0.0.1:{plain},PASSWORD://localhost:{password},CERTIFICATE://localhost:{certificate}"
    modules = "org.apache.kafka.common.security"
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    info = start_broker(
        folder / "broker",
        plain,
        controller,
        {
            "listeners": f"{public},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": public,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PASSWORD:SASL_SSL,CERTIFICATE:SSL"
            ),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "listener.name.password.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
            "listener.name.password.plain.sasl.jaas.config": (
                f'{modules}.plain.PlainLoginModule required user_plain="{quoted}";'
            ),
            "listener.name.certificate.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
        },
    )
    set_scram_password(info.bootstrap, "scram", PASSWORD)
    create_topic(info.bootstrap, "events", 2)
    produce(info.bootstrap, "events", [Record(value=str(n).encode(), partition=n % 2) for n in range(10)])
    try:
        yield Secured(
            plain=info.bootstrap,
            by_password=f"localhost:{password}",
            by_certificate=f"localhost:{certificate}",
            authority=authority,
            authority_file=folder / "ca.pem",
        )
    finally:
        stop_broker(folder / "broker")
