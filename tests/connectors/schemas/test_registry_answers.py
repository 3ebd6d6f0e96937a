"""What a client makes of a registry that answers half, or of a program that is no registry."""

from __future__ import annotations

import pytest

from rw_sql.connectors.schemas.client import RegistryClient, RegistryError, address_fault
from tests.support.redirecting_server import redirecting
from tests.support.registry_proxy import RegistryProxy

QUICK = {"schema.registry.backoff.duration.ms": "1", "schema.registry.retries.max": "1"}


def test_an_answer_that_is_cut_off_is_tried_again() -> None:
    proxy = RegistryProxy("", answer=b"[]", is_cut=True)
    client = RegistryClient({"schema.registry": proxy.start(), **QUICK})
    try:
        with pytest.raises(RegistryError, match="IncompleteRead"):
            client.subjects()
        assert len(proxy.requests) == 2
        proxy.is_down = True
        with pytest.raises(RegistryError, match="HTTP 503"):
            client.subjects()
        proxy.is_down, proxy.is_cut, proxy.answer = False, False, b'{"hello": "world"}'
        for ask in (lambda: client.schema(1), lambda: client.latest("s"), lambda: client.register("s", "AVRO", "{}")):
            with pytest.raises(RegistryError, match=r"check that schema\.registry is the address of its API"):
                ask()
    finally:
        proxy.stop()


@pytest.mark.parametrize(
    "address",
    [
        "http://b:8081, http://me:hidden@a:8081",
        "me:hidden@a:8081",
        "me:hid/hidden@a:8081",
        "http://me:hid/hidden@a",
        "http://a?access_token=hidden",
    ],
)
def test_an_address_has_no_login(address: str) -> None:
    found = address_fault(address)
    assert found is not None
    assert "hidden" not in str(found)
    assert "must not contain a login" in found[1]
    assert address_fault("http://a:8081/at@home") is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_another_server_gets_no_password(status: int) -> None:
    login = {"schema.registry.username": "me", "schema.registry.password": "hidden"}
    with redirecting() as servers:
        servers.status = status
        client = RegistryClient({"schema.registry": servers.url, **login, **QUICK})
        for ask in (lambda: client.schema(1), client.subjects, lambda: client.register("s", "AVRO", "{}")):
            with pytest.raises(
                RegistryError, match=f"the registry redirects to {servers.target}: check the address in schema.registry"
            ):
                ask()
        assert servers.received == []


def test_a_redirect_to_the_same_server_is_followed() -> None:
    with redirecting() as servers:
        servers.target += "/api"
        here = RegistryClient({"schema.registry": servers.url, **QUICK})
        away, servers.target = servers.target, f"{servers.url}/again"
        with pytest.raises(RegistryError, match="HTTP 302"):
            here.subjects()  # It redirects for ever.
        with pytest.raises(RegistryError, match="redirects to another path"):
            here.register("s", "AVRO", "{}")
        assert RegistryClient({"schema.registry": away, **QUICK}).subjects() == ()
