"""The rules of a release: a version in one place, a changelog divided into versions, locked development tools."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import rw_sql

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^## \[(?P<version>[\d.]+)\] - (?P<day>unreleased|\d{4}-\d{2}-\d{2})$")
GROUPS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
LOCK = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
PYTHONS = ("3.11.5", "3.12.0", "3.13.0")


def test_the_version_has_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"] == {"path": "rw_sql/version.py"}
    package = (ROOT / "rw_sql" / "version.py").read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(.*)"$', package, re.MULTILINE) == [rw_sql.__version__]


def test_the_changelog_is_cut_into_versions() -> None:
    headings = [HEADING.match(line) for line in CHANGELOG.splitlines() if line.startswith("## ")]
    assert all(headings), [line for line in CHANGELOG.splitlines() if line.startswith("## ")]
    cut = [(Version(found["version"]), found["day"]) for found in headings if found]
    assert [version for version, _ in cut] == sorted({version for version, _ in cut}, reverse=True)
    days = [date.fromisoformat(day) for _, day in cut if day != "unreleased"]
    assert days == sorted(days, reverse=True)
    assert [day for _, day in cut[1:] if day == "unreleased"] == [], "only the newest version is unreleased"
    assert {line[4:] for line in CHANGELOG.splitlines() if line.startswith("### ")} <= GROUPS


def test_no_entry_of_the_changelog_is_there_twice() -> None:
    """A merge of two branches that edited the same entry keeps both."""
    begins = Counter(line[:40] for line in CHANGELOG.splitlines() if line.startswith("- ") and len(line) > 40)
    assert [begin for begin, times in begins.items() if times > 1] == []


def test_the_newest_version_of_the_changelog_is_the_package_s() -> None:
    """Between two releases the package is a development version of the next one."""
    newest = next(found for line in CHANGELOG.splitlines() if (found := HEADING.match(line)))
    present = Version(rw_sql.__version__)
    assert present.base_version == newest["version"]
    assert present.is_devrelease == (newest["day"] == "unreleased")


def locked_for(python: str) -> dict[str, Version]:
    """The versions that the lock file has for a version of Python, on Linux."""
    environment = {"python_version": python.rpartition(".")[0], "python_full_version": python, "sys_platform": "linux"}
    lines = [Requirement(line) for line in LOCK.splitlines() if line and not line.startswith("#")]
    meant = [line for line in lines if line.marker is None or line.marker.evaluate(environment)]
    assert len({line.name for line in meant}) == len(meant)
    return {canonicalize_name(line.name): Version(str(line.specifier).removeprefix("==")) for line in meant}


def required() -> list[Requirement]:
    """The package's requirements, and every extra that a target of the Makefile installs."""
    project = PROJECT["project"]
    extras = {"dev", "demo", "docs", "release", "notebook", "s3"}
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    return [found for text in texts if (found := Requirement(text)).name != "rw-sql"]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_file_has_what_pyproject_asks_for(python: str) -> None:
    locked = locked_for(python)
    missing = [str(asked) for asked in required() if canonicalize_name(asked.name) not in locked]
    assert missing == [], "make lock"
    outdated = [str(asked) for asked in required() if locked[canonicalize_name(asked.name)] not in asked.specifier]
    assert outdated == [], "make lock"


def test_the_lock_file_names_versions_and_nothing_else() -> None:
    pinned = re.compile(r"[a-z0-9-]+==[\w.]+( ; [\w. '=!<>()-]+)?")
    lines = [line for line in LOCK.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not pinned.fullmatch(line)] == []
    assert "://" not in LOCK
