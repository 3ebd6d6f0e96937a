"""Ingest of Avro records with three writer schemas of a registry, compared with ingest of the same rows as JSON. The
two sources of rw_sql differ only in ENCODE."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness import Case, Pair
from bench.streaming import SETTINGS, Watched, child, flights_broker, wait_until, write_to_parent

RECORDS = 500_000
PARTITIONS = 4
_WARM_UPS = 3
_COLUMNS = "id BIGINT, customer VARCHAR, amount DOUBLE, at TIMESTAMPTZ, note VARCHAR"
_AT = {"type": "long", "logicalType": "timestamp-micros"}
_TEXT = {"type": ["null", "string"], "default": None}


def _schemas() -> list[dict[str, Any]]:
    """Three versions of the schema. The first version has no field ``note``, and the third version has an additional
    field and another order."""
    id_, customer = {"name": "id", "type": "long"}, {"name": "customer", "type": "string"}
    amount, at = {"name": "amount", "type": "double"}, {"name": "at", "type": _AT}
    note, more = {"name": "note", **_TEXT}, {"name": "more", **_TEXT}
    versions = ([id_, customer, amount, at], [id_, customer, amount, at, note], [note, at, more, amount, customer, id_])
    return [{"type": "record", "name": "Order", "fields": fields} for fields in versions]


def _fill(bootstrap: str, registry: str) -> None:
    """Fills two topics, one with Avro and one with JSON, with the same rows."""
    import fastavro

    from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
    from tests.support.avro_records import AvroWriter

    writer, versions = AvroWriter(registry), _schemas()
    # The second version is registered last, because a source uses the newest schema, and this version has every column.
    ids = [writer.register("avro-value", versions[at]) for at in (0, 2, 1)]
    parsed = {ids[0]: versions[0], ids[1]: versions[2], ids[2]: versions[1]}
    made = {id_: fastavro.parse_schema(json.loads(json.dumps(schema))) for id_, schema in parsed.items()}
    for topic in ("json", "avro"):
        create_topic(bootstrap, topic, PARTITIONS)

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        for at in range(RECORDS):
            note = None if at % 3 == 0 else f"note {at}"
            yield at, {"id": at, "customer": f"c{at % 1000}", "amount": at / 4, "at": 10**15 + at, "note": note}

    def avro() -> Iterator[Record]:
        from io import BytesIO

        for at, row in rows():
            id_, into = ids[at % 3], BytesIO()
            fastavro.schemaless_writer(into, made[id_], row)
            yield Record(value=b"\0" + id_.to_bytes(4, "big") + into.getvalue(), partition=at % PARTITIONS)

    produce(bootstrap, "avro", avro())
    produce(
        bootstrap, "json", (Record(value=json.dumps(row).encode(), partition=at % PARTITIONS) for at, row in rows())
    )


def _side(encode: str, bootstrap: str, registry: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    write_to_parent("ready")
    clause = f"AVRO (schema.registry = '{registry}')" if encode == "avro" else "JSON"
    for number, _ in enumerate(sys.stdin):
        spark.sql(
            f"CREATE SOURCE s{number} ({_COLUMNS}) WITH (connector = 'kafka', topic = '{encode}', paused = 'true', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE {clause}"
        ).collect()
        spark.sql(f"CREATE MATERIALIZED VIEW v{number} AS SELECT id FROM s{number} WHERE id < 0").collect()
        source = spark.sql(f"SELECT id FROM rw_catalog.rw_sources WHERE name = 's{number}'").collect()[0][0]
        log = Watched(f"{folder}/data/{source}/1")
        started = time.perf_counter()
        spark.sql(f"RESUME SOURCE s{number}").collect()
        wait_until(lambda: log.rows() >= RECORDS, f"{log.path} has all records")  # noqa: B023 - called at once
        write_to_parent(str(time.perf_counter() - started))
        spark.sql(f"DROP SOURCE s{number} CASCADE").collect()


def _throughput(process: Any) -> float:
    process.write_line("go")
    return RECORDS / float(process.read_line())


@contextmanager
def _open() -> Iterator[Pair]:
    from rw_sql.cli.servers.schema_registry import start_registry, stop_registry

    with flights_broker(0, PARTITIONS) as (bootstrap, folder):
        registry = start_registry(folder / "registry", port=0)
        try:
            _fill(bootstrap, registry.url)
            sides = [
                child("bench.cases.registry_avro", side, bootstrap, registry.url, str(folder / side))
                for side in ("avro", "json")
            ]
            with sides[0] as avro, sides[1] as plain:
                assert (avro.read_line(), plain.read_line()) == ("ready", "ready")
                yield Pair(
                    ours=lambda: _throughput(avro),
                    peer=lambda: _throughput(plain),
                    warm_up=lambda: [_throughput(side) for side in (avro, plain) * _WARM_UPS],
                    settings={
                        "records": f"{RECORDS:,} rows of five columns, {PARTITIONS} partitions",
                        "warm-up": f"{_WARM_UPS} runs per side, since streams run for days",
                        "ours": "Avro by three writer schemas in turn, resolved to the second one",
                        "peer": "the same rows as JSON, through the same statements",
                    },
                )
        finally:
            stop_registry(folder / "registry")


CASES = (
    Case(
        name="registry_avro_500000",
        title="500,000 Avro records of a schema registry, in three writer schemas",
        peer="the same rows as JSON",
        unit="records/s",
        goal=0.9,
        is_more_better=True,
        open=_open,
    ),
)


if __name__ == "__main__":
    _side(*sys.argv[1:])
