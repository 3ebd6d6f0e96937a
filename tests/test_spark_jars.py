"""The jars for each version of Spark."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from rw_sql.errors import SPARK_VERSION, SqlError
from rw_sql.spark_jars import SUPPORTED, jars_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("minor", SUPPORTED)
def test_a_patch_release_uses_the_jars_of_its_minor_version(minor: str) -> None:
    jars = jars_of(f"{minor}.7")
    assert jars == jars_of(minor)
    assert f"delta-spark_{minor}_2.13" in jars.delta
    assert all(f":{minor}." in uri for uri in (jars.kafka[0], jars.avro))


@pytest.mark.parametrize("version", ["3.5.3", "4.3.0", "5.0.0", "4.20.1"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(SqlError, match=f"this is Spark {re.escape(version)}") as caught:
        jars_of(version)
    assert caught.value.code == SPARK_VERSION.code


def test_pip_installs_the_versions_that_have_jars() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (wanted,) = (one for one in extras["spark"] if one.startswith("pyspark"))
    low, high = re.fullmatch(r"pyspark>=(4\.\d+),<(4\.\d+)", wanted).groups()  # type: ignore[union-attr]
    assert low == SUPPORTED[0]
    with pytest.raises(SqlError):
        jars_of(high)
    assert f"4.{int(high.removeprefix('4.')) - 1}" == SUPPORTED[-1]


def test_the_nightly_workflow_runs_every_supported_version() -> None:
    nightly = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8"))
    matrix = nightly["jobs"]["test-spark"]["strategy"]["matrix"]["include"]
    assert [one["spark"] for one in matrix] == list(SUPPORTED)
