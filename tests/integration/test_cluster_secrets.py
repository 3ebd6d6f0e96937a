"""A standalone Spark cluster whose executors have neither the driver's private files nor, at first, its packages."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.runtime.support.secrets import KEY_VARIABLE
from rw_sql.version import __version__
from tests.integration.cluster import why_no_blind_worker
from tests.integration.cluster_secrets_child import CLICKS, FIRST, LOADED, SECOND
from tests.support.leaks import search_all
from tests.support.postgres import programs
from tests.support.secured import set_scram_password

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo
    from tests.support.secured import Secured

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

_WHY_NOT = why_no_blind_worker()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> PostgresInfo | None:
    """PostgreSQL if it is installed; otherwise no table is loaded."""
    return request.getfixturevalue("postgres") if programs() is not None else None


def run_child(task: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.cluster_secrets_child"],
        input=json.dumps(task),
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, KEY_VARIABLE: base64.b64encode(os.urandom(32)).decode()},
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.alone
@pytest.mark.skipif(bool(_WHY_NOT), reason=f"left out: {_WHY_NOT}")
def test_executors_of_another_host_get_the_secrets_and_are_refused_without_packages(
    secured: Secured, database: PostgresInfo | None, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex[:8]
    first, second, password = (f"{mark}{word}{uuid.uuid4().hex[:20]}" for word in ("one", "two", "database"))
    set_scram_password(secured.plain, "far", first)
    if database is not None:
        database.run("CREATE TABLE far (id INT PRIMARY KEY, word TEXT)")
        database.run(f"INSERT INTO far SELECT i, 'w' || i FROM generate_series(1, {LOADED}) i")
        database.run(f"CREATE ROLE far LOGIN PASSWORD '{password}'")
        database.run("GRANT ALL ON far TO far")
    root = tmp_path / "root"
    root.mkdir()
    found = run_child({
        "root": str(root),
        "plain": secured.plain,
        "bootstrap": secured.by_password,
        "authority": str(secured.authority_file),
        "first": first,
        "second": second,
        "jdbc": database.url if database is not None else None,
        "database": password,
    })  # fmt: skip

    # Refused in words; the source goes on by itself once the packages are there.
    python = f"{root}/hidden/bin/python"
    assert found["no_python"].startswith(f"LIBRARIES Python {sys.version_info[0]}.{sys.version_info[1]}: executors ")
    assert f" in {root}/far/" in found["no_python"]
    assert f"cannot run {python} (" in found["no_python"]
    assert "Or set PYSPARK_PYTHON to a Python " in found["no_python"]
    assert found["no_packages"].startswith("LIBRARIES rw_sql, pyarrow: the executor on host ")
    assert "lacks rw_sql, pyarrow. On every host, run " in found["no_packages"]
    assert f"-m pip install rw-sql=={__version__} pyarrow; the job then continues" in found["no_packages"]
    assert found["rows_before"] == 0
    assert CLICKS > 0

    # The executor, which does not see the driver's files, has read each record once: the large batches before and after
    # the rotation, a query, and a view's history.
    count = FIRST + SECOND
    every = [count, count, sum(range(count))]
    assert found["ids"] == found["scanned"] == found["late"] == every
    assert found["restarts"] == 0
    if database is not None:
        assert found["loaded"] == [LOADED, LOADED, sum(range(LOADED + 1))], found["waited"]

    # It has its own copies, which nobody else can read, and which are removed with the last session.
    assert first in found["copies"]
    assert second in found["copies"]
    assert "-----BEGIN CERTIFICATE-----" in found["copies"]
    assert password not in found["copies"]
    assert found["modes"] == ["600", "700"]
    assert "rw_sql-secrets-" not in found["left"]
    # The driver's own folder stays until its process ends.
    assert len(found["kept"]) == 1
    assert not list((root / "hidden" / "tmp").glob("rw_sql-secrets-*"))

    jars = list(Path.home().glob(".ivy2*/jars/*.jar"))
    leaks = search_all(root, [value[:14] for value in (first, second, password)], older=jars)
    assert not any(leaks.values()), {
        text: [(str(hit.path.relative_to(root)), hit.form) for hit in hits] for text, hits in leaks.items()
    }
    for name in ("driver", "executor", "python"):
        assert (root / "logs" / f"{name}.log").stat().st_size > 0
    assert any((root / "events").rglob("*"))
