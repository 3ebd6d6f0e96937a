"""Servers of NATS that do not answer, that are started again, and that require a login."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.nats import client as nats_client
from rw_sql.errors import SqlError
from tests.connectors.nats.test_nats_source import NATS, offsets, options, read
from tests.support.nats_keys import new_key, signed_jwt
from tests.support.nats_server import NatsServer, nats_running

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.nats


def test_a_server_that_does_not_answer_and_another_that_does(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream)
    gone = {"server_url": "nats://127.0.0.1:1", "stream": stream, "subject": ">"}
    assert NATS.look(gone).error == "cannot connect to 127.0.0.1:1 (connection refused)"
    assert NATS.look({**gone, "server_url": f"127.0.0.1:1, {nats_server.url}"}).error is None
    with pytest.raises(SqlError, match="the servers do not answer"):
        NATS.offsets_at(gone, 0, [stream])
    with pytest.raises(OSError, match="cannot connect"):
        read(gone, stream, 1, 2)
    assert NATS.sparse_topics(gone)[stream].startswith("cannot connect")
    assert NATS.record_times(gone, {stream: 1}) == {}


def test_a_server_that_was_started_again(stream: str) -> None:
    with nats_running() as first:
        first.create(stream)
        given_ = options(first, stream)
        assert NATS.look(given_).error is None
    assert NATS.look(given_).error is not None
    # A pooled connection has ended: the next request opens another one.
    with nats_running(port=first.port) as second:
        second.create(stream)
        assert NATS.look(given_).error is None
        NATS.reconnect(given_)
        assert NATS.look(given_).splits[stream].end == 1


def test_logins(stream: str) -> None:
    with nats_running(
        config='accounts { A { jetstream: enabled, users: [{user: "ann", password: "s3cret"}] }, SYS {} }\n'
        "system_account: SYS",
        login=(("user", "ann"), ("password", "s3cret")),
    ) as server:
        server.create(stream)
        server.publish(stream, [b"{}"])
        login = {"connect_mode": "user_and_password", "username": "ann", "password": "s3cret"}
        assert offsets(options(server, stream, **login), stream, 1, 2) == [1]
        for wrong in ({**login, "password": "other"}, {}):
            told = NATS.look(options(server, stream, **wrong))
            assert told.error == f"127.0.0.1:{server.port}: authentication failed (Authorization Violation)"
            assert "other" not in told.error


def test_a_login_by_jwt(stream: str) -> None:
    operator, system, account, user = (new_key(kind) for kind in ("operator", "account", "account", "user"))
    limits = dict.fromkeys(("subs", "conn", "data", "payload", "imports", "exports", "leaf"), -1)
    stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    accounts = [
        (key.public_key.decode(), signed_jwt(operator, key.public_key.decode(), "account", {"limits": of}))
        for key, of in ((system, limits), (account, {**limits, **stored}))
    ]
    signed = {
        "operator": signed_jwt(operator, operator.public_key.decode(), "operator", {}),
        "user": signed_jwt(account, user.public_key.decode(), "user", {"subs": -1, "data": -1, "payload": -1}),
    }
    listed = "\n".join(f"{name}: {text}" for name, text in accounts)
    config = (
        f"operator: {signed['operator']}\nsystem_account: {accounts[0][0]}\n"
        f"resolver: MEMORY\nresolver_preload: {{ {listed} }}\n"
    )
    login = {"connect_mode": "credential", "jwt": signed["user"], "nkey": user.seed.decode()}
    given_ = {"server_url": "", "stream": stream, "subject": ">", **login}
    made = nats_client._login(given_)
    with nats_running(config=config, login=tuple(made.items())) as server:
        server.create(stream)
        server.publish(stream, [b"{}"] * 2)
        assert offsets(options(server, stream, **login), stream, 1, 3) == [1, 2]
        other = new_key("user")
        told = NATS.look(options(server, stream, **{**login, "nkey": other.seed.decode()}))
        assert "authentication failed" in str(told.error)
        assert other.seed.decode() not in str(told.error)


def test_jetstream_that_is_not_enabled(nats_server: NatsServer) -> None:
    with nats_running(
        config='accounts { A { users: [{user: "bob", password: "s3cret"}] } }',
    ) as server:
        login = {"connect_mode": "user_and_password", "username": "bob", "password": "s3cret"}
        told = NATS.look(options(server, "S", **login))
        assert "JetStream" in str(told.error)
