"""The SQL of the README, the tutorial and the how-to guides has the documented results on Spark and a broker.

A page's blocks run from top to bottom, in a warehouse with the objects that the page assumes. If a result follows a
query, the query must return it. Topics, addresses and paths of a page are replaced by those of the test.
"""

from __future__ import annotations

import base64
import re
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from rw_sql.cli.servers.kafka_topics import create_topic, produce
from rw_sql.session.results import cell_text
from rw_sql.syntax import split_script
from tests.checkpoints.made import kafka, make_checkpoint
from tests.integration.attached import produce_json, wait_until
from tests.integration.processes import Server
from tests.support.avro_records import AvroWriter, record_schema
from tests.support.mysql import MARIADB, server_of
from tests.support.own_package import installed
from tests.support.postgres import PASSWORD, running_server
from tests.support.secured import set_scram_password

if TYPE_CHECKING:
    from pyspark.sql import Row

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.cli.servers.schema_registry import RegistryInfo
    from tests.integration.attached import AttachedSession
    from tests.support.secured import Secured

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OLD = ({"id": 1, "customer": "ann", "amount": 10}, {"id": 2, "customer": "bob", "amount": 20})
MORE = ({"id": 4, "customer": "bob", "amount": 1}, {"id": 5, "customer": "cid", "amount": 7})
NEW = ({"id": 6, "customer": "ann", "amount": 3}, {"id": 7, "customer": "cid", "amount": 2})


@dataclass(slots=True)
class Reader:
    """A reader of a page: the working folder, the existing objects, and the replacements for the page's words.

    ``at`` is the broker's address for sources. ``before`` maps the number of an SQL block, from 0, to the reader's
    actions in a terminal before it. ``secured`` is a broker with authentication, ``registry`` a schema registry; both
    start when the first page needs them.
    """

    session: AttachedSession
    broker: BrokerInfo
    second: BrokerInfo
    secured: Callable[[], Secured]
    registry: Callable[[], RegistryInfo]
    folder: Path
    at: str
    words: dict[str, str] = field(default_factory=dict)
    before: dict[int, Callable[[], object]] = field(default_factory=dict)
    left: ExitStack = field(default_factory=ExitStack)

    def topic(self, name: str, partitions: int = 1, *, at: BrokerInfo | None = None) -> str:
        """Creates a topic for this page alone; it replaces the page's name from then on."""
        made = self.words.setdefault(f"'{name}'", f"'{name}.{self.folder.name}'").strip("'")
        create_topic((at or self.broker).bootstrap, made, partitions)
        for number in range(partitions):
            self.words[f"'{name}:{number}'"] = f"'{made}:{number}'"
        return made

    def send(self, name: str, *rows: dict[str, object], partition: int = 0, at: BrokerInfo | None = None) -> None:
        """Puts records into one of the page's topics."""
        produce_json((at or self.broker).bootstrap, self.words[f"'{name}'"].strip("'"), rows, partition)

    def sources(self, *names: str, columns: str = "id INT, customer VARCHAR, amount INT", more: str = "") -> None:
        """Creates sources, each over a new topic of its own with three records."""
        for name in names:
            made = self.topic(name, 2)
            self.send(name, *OLD)
            self.send(name, {"id": 3, "customer": "ann", "amount": 5}, partition=1)
            self.session.run(
                f"CREATE SOURCE {name} ({columns}) {more} WITH (connector = 'kafka', topic = '{made}', {self.at}) "
                "FORMAT PLAIN ENCODE JSON"
            )

    def views(self) -> None:
        """Two views on orders: totals, and its rows."""
        self.session.run(
            "CREATE MATERIALIZED VIEW totals AS "
            "SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer",
            "CREATE MATERIALIZED VIEW orders_rows AS SELECT * FROM orders",
            "FLUSH",
        )

    def connection(self) -> None:
        """Creates the connection that later sources use."""
        self.session.run(f"CREATE CONNECTION brokers WITH (type = 'kafka', {self.at})")
        self.at = "connection = brokers"


def first_source(reader: Reader) -> None:
    reader.topic("orders", 2)
    reader.send("orders", *OLD, {"id": 3, "customer": "ann", "amount": 5})
    reader.before[3] = lambda: reader.send("orders", *MORE, partition=1)


def first_move(reader: Reader) -> None:
    reader.sources("orders")
    reader.send("orders", *MORE, partition=1)
    reader.views()
    reader.topic("orders_v2")
    reader.send("orders_v2", *MORE, *NEW)
    reader.before[4] = lambda: reader.words.update({"4;": f"{undo_of_newest(reader)};"})


def undo_of_newest(reader: Reader) -> int:
    """The number of the newest unsafe operation, which a page undoes."""
    rows = reader.session.sql("SELECT max(epoch) AS epoch FROM rw_catalog.rw_operations WHERE is_unsafe")
    return int(rows[0].epoch)


def another_broker(reader: Reader) -> None:
    port = reader.broker.bootstrap.rpartition(":")[2]
    reader.sources("clicks")
    reader.connection()
    reader.sources("orders")
    reader.views()
    reader.topic("orders", 2, at=reader.second)
    reader.send("orders", *OLD, *MORE, at=reader.second)
    reader.words |= {"broker-2:9092": f"localhost:{port}", "new-cluster:9092": reader.second.bootstrap}


def another_topic(reader: Reader) -> None:
    reader.sources("orders")
    reader.views()
    reader.topic("orders_v2", 2)
    for partition in (0, 1):
        reader.send("orders_v2", *OLD, *MORE, *NEW, partition=partition)


def a_day(reader: Reader) -> None:
    reader.sources("orders", more="INCLUDE timestamp AS at")
    reader.views()


def poison(reader: Reader) -> None:
    reader.sources("orders", columns="id INT, customer VARCHAR, amount_text VARCHAR")
    reader.session.run(
        "CREATE MATERIALIZED VIEW amounts AS SELECT id, try_cast(amount_text AS INT) AS amount FROM orders", "FLUSH"
    )

    def one_more() -> None:
        reader.session.run("ALTER SOURCE orders SET source_rate_limit = 0")
        reader.send("orders", {"id": 8, "customer": "eve", "amount_text": "x"})

    reader.words["1234"] = "2"
    reader.before[2] = one_more
    reader.before[3] = lambda: reader.session.run("ALTER SOURCE orders SET source_rate_limit = DEFAULT")


def wrong_move(reader: Reader) -> None:
    reader.sources("orders")
    reader.views()
    reader.session.run("ALTER SYSTEM SET enable_unsafe_ops = true")

    def move() -> None:
        reader.session.run(
            "PAUSE SOURCE orders", "INJECT SOURCE OFFSETS orders TO EARLIEST", "RESUME SOURCE orders", "FLUSH"
        )
        operations = reader.session.sql("SHOW UNSAFE OPERATIONS FOR orders")
        reader.words["OPERATION 17"] = f"OPERATION {max(row.operation for row in operations)}"

    move()
    reader.before[2] = move


def checkpoint(reader: Reader) -> None:
    made = reader.topic("orders")
    reader.send("orders", *OLD, {"id": 3, "amount": 500}, {"id": 4, "amount": 700})
    path = make_checkpoint(reader.folder / "job", (kafka(**{made: (3,)}),))
    reader.words |= {"/checkpoints/job": str(path), "broker-1:9092": reader.broker.bootstrap}


def password(reader: Reader) -> None:
    reader.broker = replace(reader.broker, bootstrap=reader.secured().plain)

    def log_in() -> None:
        set_scram_password(reader.broker.bootstrap, "reader-1", "the first password")
        reader.at = (
            f"properties.bootstrap.server = '{reader.secured().by_password}', "
            "properties.security.protocol = 'sasl_ssl', "
            "properties.sasl.mechanism = 'SCRAM-SHA-512', properties.sasl.username = 'reader-1', "
            "properties.sasl.password = SECRET kafka_password, "
            f"properties.ssl.ca.location = '{reader.secured().authority_file}'"
        )
        reader.connection()
        reader.sources("orders")
        reader.views()
        # The broker has one password per user, so it gets the new one before the statement tries it.
        set_scram_password(reader.broker.bootstrap, "reader-1", "the second password")

    reader.before[1] = log_in
    reader.before[4] = lambda: set_scram_password(reader.broker.bootstrap, "reader-2", "the password of reader-2")


def connector(reader: Reader) -> None:
    path = reader.folder / "app.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE clicks (page TEXT, at INTEGER)")
        database.commit()
    reader.words["/data/app.db"] = str(path)
    reader.left.enter_context(installed(reader.folder / "site"))


def jobs(reader: Reader) -> None:
    reader.sources("orders")
    reader.views()


def nothing(reader: Reader) -> None:
    """The page creates what it needs."""


def schemas(reader: Reader) -> None:
    """Three records by the first schema; a newer one is registered before the columns are refreshed."""
    registry = reader.registry()
    reader.words["http://127.0.0.1:8085/apis/ccompat/v7"] = registry.url
    topic, writer = reader.topic("orders"), AvroWriter(registry.url)
    fields = {"id": "int", "customer": "string", "amount": "int"}
    order = record_schema("Order", fields)
    produce(reader.broker.bootstrap, topic, [writer.record(topic, order, row) for row in OLD])
    newer = record_schema("Order", {**fields, "note": {"type": ["null", "string"], "default": None}})
    reader.before[2] = lambda: writer.register(f"{topic}-value", newer)


def shop(reader: Reader) -> None:
    """A PostgreSQL and a MariaDB server with the page's role and tables, and a copy of the slot."""
    settings = {"wal_level": "logical", "max_wal_senders": "10", "max_replication_slots": "10"}
    server = reader.left.enter_context(running_server(**settings)).info
    own = reader.left.enter_context(server_of(MARIADB)).info

    def run(statement: str, database: str = "shop") -> None:
        with psycopg.connect(
            host="127.0.0.1", port=server.port, dbname=database, user=server.user, password=PASSWORD, autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    run("CREATE DATABASE shop", "postgres")
    run(f"CREATE ROLE rw_reader LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    for table in ("orders (id BIGINT PRIMARY KEY, amount INT)", "customers (id BIGINT PRIMARY KEY, email TEXT)"):
        run(f"CREATE TABLE {table}")
    run("INSERT INTO orders VALUES (1, 10), (2, 20)")
    own.run(
        "CREATE DATABASE shop",
        "CREATE DATABASE billing",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, amount INT)",
        "INSERT INTO shop.orders VALUES (1, 10)",
        f"CREATE USER rw_reader IDENTIFIED BY '{PASSWORD}'",
        "GRANT ALL ON *.* TO rw_reader",
    )
    reader.session.allow_unsafe()
    reader.words |= {"db.example": "127.0.0.1", "'5432'": f"'{server.port}'", "'3306'": f"'{own.port}'"}
    reader.before[1] = lambda: run("SELECT pg_copy_logical_replication_slot('rw_shop', 'rw_shop_2')")


def second_owner(reader: Reader) -> None:
    """A process that owns the group of the page, beside the session."""
    reader.sources("orders", columns="id INT, customer VARCHAR, amount INT, day DATE")
    reader.views()
    server = Server(reader.session.warehouse, reader.folder, "--no-http", "--resource-group", "nightly")
    reader.left.callback(server.close)
    wait_until(server.is_serving, "it serves the group")


PAGES: dict[str, Callable[[Reader], None]] = {
    "README.md": first_source,
    "docs/tutorial/first-source.md": first_source,
    "docs/tutorial/move-a-source.md": first_move,
    "docs/how-to/move-a-broker.md": another_broker,
    "docs/how-to/move-a-topic.md": another_topic,
    "docs/how-to/replay-a-day.md": a_day,
    "docs/how-to/skip-a-poison-record.md": poison,
    "docs/how-to/roll-back.md": wrong_move,
    "docs/how-to/adopt-a-foreign-checkpoint.md": checkpoint,
    "docs/how-to/rotate-a-password.md": password,
    "docs/how-to/write-a-connector.md": connector,
    "docs/how-to/monitor.md": jobs,
    "docs/how-to/use-schemas.md": nothing,
    "docs/how-to/read-avro-from-a-schema-registry.md": schemas,
    "docs/how-to/capture-a-database.md": shop,
    "docs/how-to/use-resource-groups.md": second_owner,
}
"""Every page with SQL that can be typed unchanged, with the preparation of its assumptions."""


def test_no_page_with_sql_is_left_out() -> None:
    pages = [*(ROOT / "docs" / "tutorial").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]
    with_sql = {str(path.relative_to(ROOT)) for path in pages if "```sql" in path.read_text(encoding="utf-8")}
    assert with_sql | {"README.md"} == set(PAGES)


SERVERS = {
    "docs/how-to/read-avro-from-a-schema-registry.md": [pytest.mark.registry],
    "docs/how-to/capture-a-database.md": [pytest.mark.postgres, pytest.mark.mysql],
}
"""The servers of some pages, besides a broker."""


@pytest.mark.parametrize("page", [pytest.param(page, marks=SERVERS.get(page, [])) for page in PAGES])
@pytest.mark.usefixtures("quick_discovery")
def test_a_page_runs(
    page: str,
    session: AttachedSession,
    broker: BrokerInfo,
    second_broker: BrokerInfo,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RW_SQL_SECRET_KEY", base64.b64encode(bytes(32)).decode())
    monkeypatch.setenv("PG_PASSWORD", "secret")
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    session.run("SET statement_timeout = '300s'")  # a busy machine takes longer than 60 s to start the first jobs
    session.answer(True)
    at = f"properties.bootstrap.server = '{broker.bootstrap}'"
    reader = Reader(
        session=session,
        broker=broker,
        second=second_broker,
        secured=lambda: request.getfixturevalue("secured"),
        registry=lambda: request.getfixturevalue("schema_registry"),
        folder=tmp_path,
        at=at,
    )
    reader.words["127.0.0.1:9092"] = broker.bootstrap
    PAGES[page](reader)
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text[text.index("## Five minutes") :] if page == "README.md" else text
    number = 0
    rows: list[Row] = []
    with reader.left:
        for language, body in BLOCK.findall(text):
            if language == "sql":
                reader.before.get(number, lambda: None)()
                number += 1
                for statement in split_script(put(reader.words, body)):
                    rows = session.sql(statement.text)
            elif language == "text" and "-+-" in body:
                shown = [tuple(cell.strip() for cell in line.split("|")) for line in body.splitlines()[2:]]
                assert [tuple(cell_text(value) for value in row) for row in rows] == shown
        assert number > 0
        assert [row.object for row in session.sql("SHOW JOBS") if row.state == "STALLED"] == []


def put(words: dict[str, str], text: str) -> str:
    """A page's SQL with its words replaced; replaced text is not searched again."""
    return re.sub(
        "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), lambda m: words[m[0]], text
    )
