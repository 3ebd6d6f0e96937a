"""A small warehouse, which is written once and stored in ``tests/fixtures/warehouses``. Every later version of rw_sql
must be able to open it.

``python -m tests.support.stored_warehouse`` writes a warehouse of the present catalog format with the present code:
``<newest number of catalog/>.tar.xz``, and a file with the warehouse's contents. A stored warehouse is never written
again.
"""

from __future__ import annotations

import base64
import json
import os
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rw_sql
from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.metastore.catalog import load_catalog
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import AttachedSession, produce_json, wait_until
from tests.support.spark_settings import FEW_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIX = ".tar.xz"
FOLDER = Path(__file__).parents[1] / "fixtures" / "warehouses"
KEY = base64.b64encode(b"the key of a kept test warehouse").decode()
"""The key that encrypts the secrets of a stored warehouse. These secrets protect nothing."""
PASSWORD = "kept by a test"
DEAD = "127.0.0.1:1"
"""The broker's address in a stored warehouse. No server listens there, so a test has to set another address."""

VIEWS = ("plain", "counted", "newest", "joined", "totals")
CREATED = {
    "SOURCE": ("s", "orders"),
    "MATERIALIZED VIEW": ("plain", "counted", "joined", "totals"),
    "TABLE": ("newest",),
    "SINK": ("copied",),
    "CONNECTION": ("brokers", "database"),
}


def statements(bootstrap: str) -> tuple[str, ...]:
    """The statements that create the warehouse: every kind of object, and moves with rewind points."""
    return (
        "CREATE SOURCE s (id INT, k INT) WITH (connector = 'datagen', datagen.rows.total = '40', "
        "datagen.split.num = '2', datagen.seed = '7', fields.id.kind = 'sequence', fields.id.start = '1', "
        "fields.k.kind = 'random', fields.k.min = '0', fields.k.max = '3')",
        "CREATE MATERIALIZED VIEW plain AS SELECT id, k FROM s",
        "CREATE MATERIALIZED VIEW counted AS SELECT id, count(*) AS n FROM s GROUP BY id",
        "CREATE TABLE newest (id INT PRIMARY KEY, k INT) WITH (connector = 'datagen', datagen.rows.total = '10', "
        "datagen.seed = '7', fields.id.kind = 'sequence', fields.id.start = '1', fields.id.end = '5', "
        "fields.k.kind = 'random', fields.k.min = '0', fields.k.max = '3')",
        "CREATE MATERIALIZED VIEW joined AS SELECT n.id, n.k, c.n FROM newest n JOIN counted c ON n.id = c.id",
        f"CREATE SECRET password WITH (backend = 'meta') AS '{PASSWORD}'",
        f"CREATE CONNECTION brokers WITH (type = 'kafka', properties.bootstrap.server = '{bootstrap}')",
        f"CREATE CONNECTION database WITH (type = 'jdbc', jdbc.url = 'jdbc:postgresql://{DEAD}/d', user = 'u', "
        "password = SECRET password, VALIDATE = false)",
        "CREATE SOURCE orders (id INT, item VARCHAR, price INT) WITH (connector = 'kafka', connection = brokers, "
        "topic = 'orders') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW totals AS SELECT item, sum(price) AS price FROM orders GROUP BY item",
        "CREATE SINK copied FROM totals WITH (connector = 'kafka', connection = brokers, topic = 'copied', "
        "primary_key = 'item') FORMAT UPSERT ENCODE JSON",
        "FLUSH",
        "PAUSE SOURCE s REASON 'a move'",
        "INJECT SOURCE OFFSETS s VALUES ('2-0' = 10) REASON 'ten records again'",
        "RESUME SOURCE s",
        "FLUSH",
    )


def main() -> None:
    """Writes the warehouse and its contents to the files that are stored."""
    target = FOLDER / f"{load_catalog().number:04}{SUFFIX}"
    if target.exists():
        raise SystemExit(f"{target} is there; a kept warehouse is never written again")
    os.environ[KEY_VARIABLE] = KEY
    with tempfile.TemporaryDirectory() as folder:
        broker = start_broker(Path(folder, "broker"), port=0, extra={})
        try:
            spark = rw_sql.connect(f"{folder}/first", config=FEW_ROWS)
            rw_sql.detach(spark)
            held = make(spark, Path(folder, "warehouse"), broker.bootstrap)
            spark.stop()
        finally:
            stop_broker(Path(folder, "broker"))
        FOLDER.mkdir(exist_ok=True)
        contents_file(target).write_text(readable(held), encoding="utf-8")
        pack(Path(folder, "warehouse"), target)


def make(spark: SparkSession, folder: Path, bootstrap: str) -> dict[str, Any]:
    """Writes the warehouse. At the end, the jobs are stopped in an orderly way, except for one source whose brokers
    have disappeared."""
    for topic in ("orders", "copied"):
        create_topic(bootstrap, topic, 1)
    produce_json(bootstrap, "orders", [{"id": id_, "item": "ab"[id_ % 2], "price": id_} for id_ in range(10)])
    session = AttachedSession(spark, str(folder))
    session.allow_unsafe()
    session.run(*statements(bootstrap))
    moved = session.sql("SHOW UNSAFE OPERATIONS FOR s")[0].operation
    back = f"REWIND SOURCE s TO OPERATION {moved}"
    wait_until(lambda: session.sql("SHOW UNSAFE OPERATIONS FOR s")[0].rewind == back, "there is a rewind point")
    session.sql(f"ALTER CONNECTION brokers SET (properties.bootstrap.server = '{DEAD}') WITH (VALIDATE = false)")
    held = contents(session)
    session.detach()
    return held


def contents(session: AttachedSession) -> dict[str, Any]:
    """The visible contents of a warehouse: rows, definitions, positions, the log of operations."""
    return {
        "rows": {view: [list(row) for row in session.rows_of(view)] for view in VIEWS},
        "definitions": {
            f"{kind} {name}": session.sql(f"SHOW CREATE {kind} {name}")[0][-1]
            for kind, names in CREATED.items()
            for name in names
        },
        "positions": {source: session.positions(source) for source in CREATED["SOURCE"]},
        "operations": [
            [row.epoch, row.kind, row.statement, row.reason, row.is_unsafe, row.outcome]
            for row in session.sql(
                "SELECT epoch, kind, statement, reason, is_unsafe, outcome FROM rw_catalog.rw_operations ORDER BY epoch"
            )
        ],
    }


def contents_file(kept: Path) -> Path:
    """The file with the contents of a stored warehouse."""
    return kept.with_name(kept.name.removesuffix(SUFFIX) + ".json")


def readable(held: dict[str, dict[str, Any] | list[Any]]) -> str:
    """JSON with one view, definition or operation per line."""
    sections = []
    for name, section in held.items():
        is_list = isinstance(section, list)
        entries = [(None, each) for each in section] if isinstance(section, list) else list(section.items())
        lines = [("" if key is None else f"{json.dumps(key)}: ") + json.dumps(each) for key, each in entries]
        begin, end = "[]" if is_list else "{}"
        sections.append(f"{json.dumps(name)}: {begin}\n" + ",\n".join(lines) + f"\n{end}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def pack(folder: Path, target: Path) -> None:
    """Packs a warehouse into one file. A warehouse consists of hundreds of small files, which xz compresses
    together."""
    with tarfile.open(target, "w:xz", preset=9) as packed:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                packed.add(file, str(file.relative_to(folder)))


def unpack(kept: Path, folder: Path) -> None:
    """Unpacks a stored warehouse into a folder."""
    with tarfile.open(kept) as packed:
        packed.extractall(folder, filter="data")


if __name__ == "__main__":
    main()
