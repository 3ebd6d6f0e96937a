"""A secret appears nowhere: not in a process's messages, displays, logs or files, nor in the files that remain after a
kill."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from moto.server import ThreadedMotoServer

from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.support.leaks import search_all
from tests.support.postgres import programs
from tests.support.secured import set_scram_password
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresInfo
    from tests.support.secured import Secured

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PRIVATE = "rw_sql-secrets-"
LOGIN = {"aws_access_key_id": "k", "aws_secret_access_key": "of the test's own"}

PLACES = (
    "answers",
    "console.log",
    "events",
    "local",
    "logs/log4j.log",
    "logs/python.log",
    "metrics",
    "notebook",
    "pages",
    "status",
    "warehouse/checkpoints",
    "warehouse/data",
    "warehouse/rw_catalog",
)
"""The places where a canary value that was treated as a secret must not appear."""


VALUES = ("one", "two", "wrong", "plain", "key", "database")


@pytest.fixture
def bucket() -> Iterator[str]:
    """The address of a store that speaks S3, with a file of rows in its bucket ``lake``."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", **LOGIN)
    client.create_bucket(Bucket="lake")
    client.put_object(Bucket="lake", Key="rows.json", Body=b'{"name": "from the bucket"}\n')
    yield address
    server.stop()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> PostgresInfo | None:
    """PostgreSQL if it is installed; otherwise the child's connection to it reaches no server."""
    return request.getfixturevalue("postgres") if programs() is not None else None


@pytest.mark.alone
def test_a_secret_is_found_nowhere_and_a_canary_everywhere(
    secured: Secured, bucket: str, database: PostgresInfo | None, tmp_path: Path
) -> None:
    # Spark copies its jars to its working folder; the originals contain no value that was created just now.
    jars = list(Path.home().glob(".ivy2*/jars/*.jar"))
    # No letter of theirs needs escaping anywhere, so that no form of them is overlooked.
    mark = uuid.uuid4().hex[:8]
    canary, *values = (f"{mark}{word}{uuid.uuid4().hex[:20]}" for word in ("canary", *VALUES))
    set_scram_password(secured.plain, "leak", values[0])
    if database is not None:
        database.run("CREATE TABLE leaks (name TEXT PRIMARY KEY, n BIGINT)")
        database.run(f"CREATE ROLE leak LOGIN PASSWORD '{values[-1]}'")
        database.run("GRANT ALL ON leaks TO leak")
    root, home = tmp_path / "left", tmp_path / "home"
    for folder in (root, home, root / "tmp"):
        folder.mkdir()
    task = {
        "root": str(root),
        "plain": secured.plain,
        "bootstrap": secured.by_password,
        "authority": str(secured.authority_file),
        "canary": canary,
        "values": values,
        "s3": bucket,
        "jdbc": database.url if database is not None else None,
        "views": ["rw_objects", "rw_operations", "rw_sources", "rw_connections", "rw_secrets"],
    }
    with (root / "console.log").open("wb") as console:
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration.leak_child"],
            input=json.dumps(task).encode(),
            stdout=console,
            stderr=console,
            cwd=ROOT,
            check=False,
            timeout=LIFE_SECONDS,
            env={
                **os.environ,
                "TMPDIR": str(root / "tmp"),
                "IPYTHONDIR": str(home),
                KEY_VARIABLE: base64.b64encode(os.urandom(32)).decode(),
            },
        )
    tail = (root / "console.log").read_text(errors="replace")[-3000:]
    assert done.returncode == -signal.SIGKILL, tail
    assert_private(root / "tmp")

    told = "".join(file.read_text(encoding="utf-8") for file in sorted((root / "answers").iterdir()))
    for answer in ("'name': 'from the bucket'", 'connection "pg" does not'):
        assert answer in told, f"{answer} is in no answer"
    if database is not None:
        assert "CREATE SINK out" in told
        assert len(database.run("SELECT name FROM leaks")) == 10
    seen = {line.split()[1] for line in first_lines(root / "pages") if line.startswith("200 ")}
    assert {"/environment/", "/SQL/", "/StreamingQuery/", "/jobs/", "/metrics/json/"} <= seen, sorted(seen)
    # The beginnings of the values, because a truncated value is a leak too.
    found = search_all(root, [canary, *(value[:14] for value in values)], leave_out=PRIVATE, older=jars)
    hits = {str(hit.path.relative_to(root)) for hit in found.pop(canary)}
    missing = [place for place in PLACES if not any(hit.startswith(place) for hit in hits)]
    assert not missing, f"the canary was not found in {missing}, but in {sorted(hits)[:40]}"
    leaks = {text: [(str(hit.path.relative_to(root)), hit.form) for hit in where] for text, where in found.items()}
    assert not any(leaks.values()), leaks


def first_lines(folder: Path) -> list[str]:
    """The first line of every file."""
    return [file.read_text(encoding="utf-8").partition("\n")[0] for file in folder.iterdir()]


def assert_private(folder: Path) -> None:
    """The files that a client's secrets are read from are this user's alone."""
    folders = list(folder.glob(f"{PRIVATE}*"))
    assert folders, "the JVM's client read its password from nowhere"
    for one in folders:
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in one.iterdir()} == {0o600}
