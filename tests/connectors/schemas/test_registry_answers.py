"""What a client makes of a registry that answers half, or of a program that is no registry."""

from __future__ import annotations

import pytest

from rw_sql.connectors.schemas.client import RegistryClient, RegistryError, address_fault
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
            with pytest.raises(RegistryError, match="is the address that of the registry's API"):
                ask()
    finally:
        proxy.stop()


def test_an_address_has_no_login() -> None:
    found = address_fault("http://b:8081, http://me:hidden@a:8081")
    assert found is not None
    assert "hidden" not in str(found)
    assert "must not contain a login" in found[1]
    assert address_fault("http://a:8081/at@home") is None
