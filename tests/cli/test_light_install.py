"""What the light installation has works without Spark, pandas, delta-rs and PyArrow; the rest says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rw_sql
from rw_sql.errors import SqlError
from rw_sql.packages import EXTRAS, deferred, missing_package

SCRIPT = Path(__file__).parents[1] / "support" / "light_install.py"


def test_the_light_installation(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--refuse"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 failures; loaded of what is lacking: []\n", "")


def test_the_extras_hold_what_is_named() -> None:
    import tomllib

    project = tomllib.loads((SCRIPT.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = {
        "delta": "delta-spark",
        "yaml": "pyyaml",
        "psycopg": "psycopg[binary]",
        "arro3": "deltalake",
        "confluent_kafka": "confluent-kafka",
        "nats": "nats-py",
        "paho": "paho-mqtt",
        "pymysql": "PyMySQL[rsa]",
    }
    within = {"numpy": "pyarrow", "py4j": "pyspark"}  # What others of an extra bring.
    for package, extra in EXTRAS.items():
        listed = " ".join(extras[extra] + extras["catalog"])
        assert names.get(package, within.get(package, package)) in listed, package
    core = " ".join(project["dependencies"])
    assert not [package for package in EXTRAS if package in core]


def test_a_missing_package_is_one_sentence() -> None:
    error = missing_package(ModuleNotFoundError("no", name="deltalake.table"), "rw-sql status", is_full=False)
    assert error is not None
    assert error.render() == (
        "RW416: rw-sql status needs the package deltalake, which this light installation lacks\n"
        "HINT: pip install 'rw-sql[catalog]'"
    )
    assert missing_package(ModuleNotFoundError("no", name="mine"), "rw-sql run") is None


def test_a_deferred_module_is_the_module() -> None:
    module = deferred("json.decoder")
    assert module.JSONDecoder is __import__("json").JSONDecoder
    with pytest.raises(AttributeError):
        _ = module.nothing


def test_connect_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rw_sql._HOMES, "connect", "pyspark.no_such_module")
    with pytest.raises(SqlError, match=r"rw_sql.connect needs the package pyspark"):
        _ = rw_sql.connect
