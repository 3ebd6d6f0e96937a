"""Every wrong statement is refused with the recorded text, and changes nothing.

``tests/fixtures/errors/<situation>.sql`` has the statements, separated by blank lines; the ``.txt`` file beside it has
the errors.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic, delete_records
from rw_sql.errors import SqlError
from tests.conftest import FIXTURES
from tests.integration.attached import AttachedSession, produce_json
from tests.integration.world import nothing_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ERRORS = FIXTURES / "errors"
UNREACHABLE_SECONDS = 10.0

SITUATIONS: dict[str, Callable[[AttachedSession], None]] = {
    "switched_off": lambda session: session.run("ALTER SYSTEM SET enable_unsafe_ops = false"),
    "nobody_can_be_asked": lambda session: setattr(session.attached, "ask", None),
    "in_a_block": lambda session: session.run("BEGIN UNSAFE"),
    "answered_no": lambda session: session.answer(False),
}
"""The difference of each situation from the default: unsafe operations enabled, and every question confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusing:
    """A warehouse with a running source ``orders``, a paused source ``held``, and ``moved``, whose splits are
    unknown."""

    session: AttachedSession
    names: dict[str, str]

    def filled_in(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace("${" + name + "}", value)
        return text

    def hidden(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace(value, "${" + name + "}")
        return re.sub(r"(HINT: .*CONFIRM ')[0-9a-f]+('.* --confirm )[0-9a-f]+", r"\1${token}\2${token}", text)


@pytest.fixture(scope="module")
def refusing(spark: SparkSession, broker: BrokerInfo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    session = AttachedSession(spark, str(tmp_path_factory.mktemp("refusing")))
    session.allow_unsafe()
    for topic in ("refused_orders", "refused_held", "refused_moved"):
        create_topic(broker.bootstrap, topic, 2)
        produce_json(broker.bootstrap, topic, [{"id": id_} for id_ in range(5)], 0)
        produce_json(broker.bootstrap, topic, [{"id": id_} for id_ in range(5, 8)], 1)
    delete_records(broker.bootstrap, "refused_held", {1: 1})
    for name in ("orders", "held", "moved"):
        session.run(
            f"""CREATE SOURCE {name} (id INT) WITH (
                connector = 'kafka', topic = 'refused_{name if name != "moved" else "orders"}',
                properties.bootstrap.server = '{broker.bootstrap}'
            ) FORMAT PLAIN ENCODE JSON"""
        )
    session.run(
        "CREATE MATERIALIZED VIEW order_counts AS SELECT id, count(*) AS n FROM orders GROUP BY id",
        "CREATE MATERIALIZED VIEW held_rows AS SELECT id FROM held",
        "FLUSH",
        "PAUSE SOURCE held",
        "PAUSE SOURCE moved",
        "ALTER SOURCE moved UNSAFE SET (topic = 'refused_moved')",
        "RESET SOURCE SPLITS moved WITH (REDISCOVER = false)",
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        yield Refusing(session=session, names={"bootstrap": broker.bootstrap, "silent": f"127.0.0.1:{port}"})
    session.detach()


def statements(path: Path) -> list[str]:
    """The statements of a fixture."""
    return [block.strip("\n") for block in path.read_text(encoding="utf-8").split("\n\n") if block.strip()]


def refusal(refusing: Refusing, statement: str) -> SqlError:
    """The error of a statement; asserts that it came soon and that nothing changed."""
    with nothing_changes(refusing.session.warehouse):
        started = time.monotonic()
        with pytest.raises(SqlError) as caught:
            refusing.session.sql(refusing.filled_in(statement))
        assert time.monotonic() - started < UNREACHABLE_SECONDS
    return caught.value


@pytest.mark.parametrize("path", sorted(ERRORS.glob("*.sql")), ids=lambda path: path.stem)
def test_refusal(
    refusing: Refusing, path: Path, recorded: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ERRORS)
    refusing.session.allow_unsafe()
    if (changed := SITUATIONS.get(path.stem)) is not None:
        changed(refusing.session)
    told = []
    for statement in statements(path):
        error = refusal(refusing, statement)
        told.append(f"{statement}\n\n{refusing.hidden(error.render())}\nSQLSTATE: {error.sqlstate}\n")
    recorded(path.with_suffix(".txt"), "\n\n".join(told))


def test_the_rows_are_still_right(refusing: Refusing) -> None:
    assert refusing.session.flushed_rows_of("order_counts") == [(id_, 1) for id_ in range(8)]
    assert refusing.session.rows_of("held_rows") == [(id_,) for id_ in (*range(5), 6, 7)]
