"""The Python packages that connectors need on the executors of a cluster."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.kafka.odd_times import without_files
from rw_sql.connectors.ranged import PythonConnector
from rw_sql.connectors.registry import BUILT_IN, connector
from rw_sql.runtime.decoding.upstream_records import packages_on_executors
from rw_sql.syntax import parse
from rw_sql.syntax.statements import CreateSource

if TYPE_CHECKING:
    from pathlib import Path

_NOT_INSTALLED_HERE = {"adlfs", "gcsfs"}


def source(encode: str) -> CreateSource:
    (statement,) = parse(
        f"CREATE SOURCE s (a INT) WITH (connector = 'kafka', topic = 't') FORMAT PLAIN ENCODE {encode}"
    )
    assert isinstance(statement, CreateSource)
    return statement


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - {"kafka"}))
def test_a_connector_whose_reader_is_not_sent_by_value_needs_this_package(name: str) -> None:
    kind = connector(name)
    text = inspect.getsource(sys.modules[type(kind).__module__])
    packages = packages_on_executors(kind, source("JSON"))
    assert ("rw_sql" in packages) == ("read_parts(" in text)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_packages_are_named_as_they_are_imported(name: str) -> None:
    packages = set(packages_on_executors(connector(name), source("PROTOBUF (message = 'm')")))
    assert {each for each in packages - _NOT_INSTALLED_HERE if importlib.util.find_spec(each) is None} == set()
    assert {"google.protobuf", "pyarrow"} <= packages


def test_a_connector_of_one_s_own_needs_this_package_and_one_without_the_base_class_names_none() -> None:
    assert PythonConnector.executor_packages == ("rw_sql", "pyarrow")
    other: Any = object()
    assert packages_on_executors(other, source("JSON")) == ()


def test_librdkafka_on_an_executor_needs_no_file_of_the_driver(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\n", encoding="utf-8")
    given = {"bootstrap.servers": "b", "ssl.ca.location": f" {file} ", "ssl.key.pem": "k"}
    assert without_files(given) == {
        "bootstrap.servers": "b",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----\n",
        "ssl.key.pem": "k",
    }
    assert given["ssl.ca.location"] == f" {file} "
