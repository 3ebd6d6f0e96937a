"""Random Avro schemas in several versions, compared with Avro's own library."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import spark
from rw_sql.cli.servers.schema_registry import start_registry
from tests.runtime.decoding.registry_reference import compare_values
from tests.support.avro_records import AvroWriter

RECORDS = 200


@cache
def _writer(folder: str) -> AvroWriter:
    return AvroWriter(start_registry(folder, port=0).url)


def _check(seed: int, folder: Path) -> Facts:
    # Each process has one registry for all of its seeds, and the keeper ends the registry with the process. Processes
    # do not share a registry.
    registry = folder.parent / f"registry-{os.getpid()}"
    versions = compare_values(spark(), _writer(str(registry)), seed, RECORDS)
    return {"schemas": 1, "versions": versions, "records": RECORDS}


PROOF = Proof(
    name="registry-values",
    claim="Every value of an Avro record is the one that Avro's own library reads by the source's schema.",
    method=(
        f"{RECORDS} records per seed are written by 2 to 5 versions of a random schema, with nested records, arrays, "
        "maps, unions, enums, fixed, decimals, dates, times, timestamps in two units, defaults, fields that are "
        "added, dropped and reordered. One version is the source's schema. The schemas are registered in a real "
        "registry; fastavro writes the records, and reads each by the source's version."
    ),
    seeds=range(60),
    check=_check,
)
