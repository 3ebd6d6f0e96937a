"""The errors of upstreams and targets contain no secret, whatever a connector reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors import registry
from rw_sql.connectors.base import Upstream
from rw_sql.connectors.sink import SinkLook
from rw_sql.connectors.support.private_files import SecretText
from rw_sql.runtime.control.upstreams import Upstreams

if TYPE_CHECKING:
    import pytest


def test_the_error_of_a_connector_contains_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(options: Any, candidates: Any = ()) -> dict[str, str]:
        return {"login": SecretText("hunter2\n"), "host": "h"}

    source = SimpleNamespace(look=lambda options: Upstream(error=f"h refuses {options['login']!r}"))
    sink = SimpleNamespace(look=lambda options, _: SinkLook(error=f"h refuses {options['login'].strip()}"))
    monkeypatch.setattr(registry, "connector", lambda _: source)
    monkeypatch.setattr(registry, "sink_connector", lambda _: sink)
    upstreams = Upstreams(resolve, {}, lambda _: False)
    assert upstreams.look("x", ()).error == upstreams.look_again("x", ()).error == "h refuses '[secret]'"
    assert upstreams.look_at_target("x", (), None).error == "h refuses [secret]"


def test_an_os_error_of_a_connector_is_an_error_of_the_upstream_not_of_the_warehouse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raises(options: Any, shape: Any = None) -> Any:
        raise FileNotFoundError(2, "No such file or directory", "/no/ca.pem")

    monkeypatch.setattr(registry, "connector", lambda _: SimpleNamespace(look=raises))
    monkeypatch.setattr(registry, "sink_connector", lambda _: SimpleNamespace(look=raises))
    upstreams = Upstreams(lambda options, candidates=(): {}, {}, lambda _: False)
    for found in (
        upstreams.look("x", ()),
        upstreams.look_again("x", ()),
        upstreams.look_at_target("x", (), None),
    ):
        assert found.error == "[Errno 2] No such file or directory: '/no/ca.pem'"
