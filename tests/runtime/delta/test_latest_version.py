"""The newest version of a table in an object store is found without a listing of a long log, and is never an older
one."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.delta import delta_log
from rw_sql.runtime.delta.delta_log import commit_path, latest_version
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 10


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """A warehouse in a store whose listings have few names per request."""
    monkeypatch.setattr(delta_log, "_PAGE", PAGE)
    found = Warehouse(f"memory://{uuid.uuid4().hex}")
    yield found
    found.remove(found.uri)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests to the store: listings and looks for one file."""
    found: list[str] = []
    for name in ("list_names", "has_file"):
        method = getattr(Warehouse, name)

        def counted(self: Warehouse, path: str, method: object = method, name: str = name) -> object:
            found.append(name)
            return method(self, path)  # type: ignore[operator]

        monkeypatch.setattr(Warehouse, name, counted)
    return found


def table_of(warehouse: Warehouse) -> str:
    return f"{warehouse.uri}/data/1/1"


def commit(warehouse: Warehouse, *versions: int) -> None:
    for version in versions:
        warehouse.write_text(commit_path(table_of(warehouse), version), "{}\n")


def clean(warehouse: Warehouse, *versions: int) -> None:
    for version in versions:
        warehouse.remove(commit_path(table_of(warehouse), version))


def test_a_log_of_one_page_is_listed(warehouse: Warehouse, calls: list[str]) -> None:
    assert latest_version(warehouse, table_of(warehouse)) == -1
    commit(warehouse, *range(PAGE))
    for _ in range(2):
        assert latest_version(warehouse, table_of(warehouse)) == PAGE - 1
    assert calls == ["list_names"] * 3


def test_a_longer_log_is_listed_once(warehouse: Warehouse, calls: list[str]) -> None:
    commit(warehouse, *range(30))
    assert latest_version(warehouse, table_of(warehouse)) == 29
    calls.clear()
    assert latest_version(warehouse, table_of(warehouse)) == 29
    assert calls == ["has_file"] * 2
    commit(warehouse, 30)
    assert latest_version(warehouse, table_of(warehouse)) == 30
    calls.clear()
    commit(warehouse, *range(31, 31 + 1000))
    assert latest_version(warehouse, table_of(warehouse)) == 1030
    assert set(calls) == {"has_file"}
    assert len(calls) < 25


def test_the_versions_of_a_long_log_are_found_however_many_are_new(warehouse: Warehouse) -> None:
    chance = random.Random(3)
    newest = 20
    commit(warehouse, *range(newest + 1))
    for _ in range(40):
        assert latest_version(warehouse, table_of(warehouse)) == newest
        new = chance.randrange(0, 9)
        commit(warehouse, *range(newest + 1, newest + new + 1))
        newest += new


def test_a_version_that_is_cleaned_up_is_not_the_newest(warehouse: Warehouse, calls: list[str]) -> None:
    commit(warehouse, *range(30))
    assert latest_version(warehouse, table_of(warehouse)) == 29
    commit(warehouse, *range(30, 60))
    clean(warehouse, *range(50))
    calls.clear()
    assert latest_version(warehouse, table_of(warehouse)) == 59
    assert calls[-1] == "list_names"


def test_versions_that_are_made_and_cleaned_up_between_two_looks_for_files_are_not_missed(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(warehouse, *range(30))
    assert latest_version(warehouse, table_of(warehouse)) == 29
    has_file = Warehouse.has_file

    def cleaned_meanwhile(self: Warehouse, path: str) -> bool:
        monkeypatch.setattr(Warehouse, "has_file", has_file)
        commit(warehouse, *range(30, 40))
        clean(warehouse, *range(35))
        return self.has_file(path)

    monkeypatch.setattr(Warehouse, "has_file", cleaned_meanwhile)
    assert latest_version(warehouse, table_of(warehouse)) == 39


def test_a_table_that_is_made_again_has_its_own_versions(warehouse: Warehouse) -> None:
    commit(warehouse, *range(30))
    assert latest_version(warehouse, table_of(warehouse)) == 29
    clean(warehouse, *range(30))
    assert latest_version(warehouse, table_of(warehouse)) == -1
    commit(warehouse, 0, 1)
    assert latest_version(warehouse, table_of(warehouse)) == 1


def test_a_store_that_does_not_tell_whether_a_file_exists_is_listed(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Warehouse, path: str) -> bool:
        raise PermissionError(path)

    monkeypatch.setattr(Warehouse, "has_file", refuse)
    commit(warehouse, *range(30))
    for newest in (29, 30):
        assert latest_version(warehouse, table_of(warehouse)) == newest
        commit(warehouse, 30)


def test_a_log_that_has_become_short_is_listed_again(
    warehouse: Warehouse, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(warehouse, *range(30))
    assert latest_version(warehouse, table_of(warehouse)) == 29
    clean(warehouse, *range(25))
    monkeypatch.setattr(delta_log, "_LISTING_SECONDS", 0.0)
    calls.clear()
    assert latest_version(warehouse, table_of(warehouse)) == 29
    assert calls == ["list_names"]
