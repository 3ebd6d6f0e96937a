"""A warehouse that was served is copied as the documentation describes, and the copy is put back after more records
have arrived: doctor finds nothing, and each record is in the views once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from rw_sql.session.sparkless import sparkless
from tests.integration.attached import wait_until
from tests.integration.processes import PROGRAM, Server
from tests.integration.test_live_groups import Client
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]

VIEWS = ("rows_of_s", "counted")


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for server in made:
        server.close()


def add_records(folder: Path, ids: range) -> None:
    """Writes a file with one record per id, which the source sees as a whole."""
    hidden = folder / f".{ids.start}"
    hidden.write_text("".join(json.dumps({"id": id_}) + "\n" for id_ in ids), encoding="utf-8")
    hidden.rename(folder / f"{ids.start:09}.json")


def doctor(warehouse: str) -> tuple[int, str]:
    """The exit status and the output of ``rw-sql doctor``."""
    done = subprocess.run(
        [*PROGRAM, "doctor", "-w", warehouse],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LAST_RESORT_SECONDS,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    return done.returncode, done.stdout


def test_a_copy_that_is_put_back_reads_the_later_records_again_and_has_each_record_once(
    tmp_path: Path, servers: list[Server]
) -> None:
    warehouse, backup, data = tmp_path / "warehouse", tmp_path / "backup", tmp_path / "data"
    data.mkdir()

    def serve() -> Server:
        servers.append(Server(str(warehouse), tmp_path, "--no-http"))
        wait_until(servers[-1].is_serving, "it serves")
        return servers[-1]

    def counts(client: Client) -> dict[int, int]:
        """The number of records by id, from the view that counts them."""
        return {row[0]: row[1] for row in client.rows("counted", "id", "n")}

    def has_all(end: int) -> None:
        with sparkless(str(warehouse)) as context:
            client = Client(context)
            wait_until(lambda: len(client.rows(VIEWS[0], "id")) >= end, f"the rows of {end} records are there")
            client.run("FLUSH")
            assert client.rows(VIEWS[0], "id") == [(id_,) for id_ in range(end)]
            assert counts(client) == dict.fromkeys(range(end), 1)

    add_records(data, range(1000))
    server = serve()
    with sparkless(str(warehouse)) as context:
        client = Client(context)
        client.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'posix_fs', posix_fs.root = '{data}', "
            "match_pattern = '*.json', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON"
        )
        client.run(f"CREATE MATERIALIZED VIEW {VIEWS[0]} AS SELECT id FROM s")
        client.run(f"CREATE MATERIALIZED VIEW {VIEWS[1]} AS SELECT id, count(*) AS n FROM s GROUP BY id")
    has_all(1000)
    assert server.terminate() == 0
    subprocess.run(["cp", "-a", str(warehouse), str(backup)], check=True)

    server = serve()
    add_records(data, range(1000, 2000))
    has_all(2000)
    assert server.terminate() == 0

    shutil.rmtree(warehouse)
    subprocess.run(["cp", "-a", str(backup), str(warehouse)], check=True)
    status, said = doctor(str(warehouse))
    assert status == 0, said
    serve()
    has_all(2000)
    add_records(data, range(2000, 2100))
    has_all(2100)
    status, said = doctor(str(warehouse))
    assert status == 0, said
