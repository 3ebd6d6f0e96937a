"""The place of the caret if an upstream or target is unreachable or lacks a named object, and the hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.base import Upstream
from rw_sql.connectors.sink import SinkLook
from rw_sql.errors import SqlError
from rw_sql.plan.checks.upstreams import STORED_IN_LIST, require_target, require_upstream
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateConnection, CreateSink, CreateSource
from tests.conftest import FIXTURES, rendered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = (
    "CREATE SOURCE s (id INT)\nWITH (connector = 'kafka', topic = 'orders, ordrs',\n"
    "      properties.bootstrap.server = '127.0.0.1:9999')\nFORMAT PLAIN ENCODE JSON"
)
OVER_CONNECTION = (
    "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'orders') FORMAT PLAIN ENCODE JSON"
)
SINK = "CREATE SINK k FROM m WITH (connector = 'kafka', topic = 'ordrs', properties.bootstrap.server = 'b:9092')"
SINK_OVER_CONNECTION = "CREATE SINK k FROM m WITH (connector = 'kafka', connection = c, topic = 'orders')"
CONNECTION = "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = 'no-such-host.invalid:9092')"
LOGIN = "CREATE CONNECTION c WITH (type = 'kafka', properties.sasl.password = SECRET s)"
REFUSED = "127.0.0.1:9999/bootstrap: Connect to ipv4#127.0.0.1:9999 failed: Connection refused"
REFUSED_ELSEWHERE = "127.0.0.1:9999/1: Connect to ipv4#127.0.0.1:9999 failed: Connection refused"
"""The reason if the bootstrap server answers, and names this address for broker 1."""
PASSWORD = "properties.sasl.password"
LINE_END, ON_ONE_LINE = f'property "{PASSWORD}" contains a line end', "ALTER SECRET a_secret AS '…', on one line"
"""The error and hint for a value that Kafka's clients refuse before they ask a broker."""
UNKNOWN_HOST = (
    "no-such-host.invalid:9092/bootstrap: Failed to resolve 'no-such-host.invalid:9092': Name or service not known"
)


def require(text: str, look: Upstream | SinkLook) -> None:
    statement = parse_statement(text)
    assert isinstance(statement, CreateSource | CreateSink | CreateConnection)
    name, span, options = statement.name.last, statement.name.span, statement.options
    if isinstance(look, SinkLook):
        require_target(look, name, span, options=options, stored=STORED_IN_LIST)
    else:
        is_connection = isinstance(statement, CreateConnection)
        kind, stored = ("connection", STORED_IN_LIST) if is_connection else ("source", "")
        require_upstream(look, name, span, kind=kind, options=options, stored=stored)


def refusal(text: str, look: Upstream | SinkLook) -> SqlError:
    with pytest.raises(SqlError) as caught:
        require(text, look)
    return caught.value.located(text)


def test_the_caret_points_at_the_fault(recorded: Callable[[Path, str], None]) -> None:
    looks: tuple[tuple[str, Upstream | SinkLook], ...] = (
        (SOURCE, Upstream(missing=("ordrs",), present=("customers", "orders", "orders_big"))),
        (SOURCE, Upstream(missing=("ordrs",), present=("customers", "orders_big", "ordr"))),
        (SOURCE, Upstream(missing=("ordrs",))),
        (SOURCE, Upstream(error=REFUSED)),
        (OVER_CONNECTION, Upstream(error="b:9092: no answer within 8 s")),
        (OVER_CONNECTION, Upstream(error=REFUSED_ELSEWHERE)),
        (SINK, SinkLook(missing='topic "ordrs"', named="ordrs", hint='did you mean "orders"?')),
        (SINK, SinkLook(error=REFUSED.replace("127.0.0.1:9999", "b:9092"))),
        (SINK, SinkLook(error=REFUSED_ELSEWHERE)),
        (OVER_CONNECTION, Upstream(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE)),
        (LOGIN, Upstream(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE)),
        (SINK_OVER_CONNECTION, SinkLook(error=LINE_END, refused_key=PASSWORD, hint=ON_ONE_LINE)),
        (CONNECTION, Upstream(error=UNKNOWN_HOST)),
    )
    told = [f"{text}\n\n{rendered(refusal(text, look))}" for text, look in looks]
    recorded(FIXTURES / "mistakes" / "upstreams.txt", "\n\n".join(told))
