"""For a missing or outdated Java, the error is one sentence with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from rw_sql.errors import JAVA_MISSING, SqlError
from rw_sql.session import java
from rw_sql.session.java import check_java


def fake_java(folder: Path, version_line: str) -> Path:
    """A program at ``<folder>/bin/java`` that prints this version to standard error, as real ones do."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    "line",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'openjdk version "21" 2023-09-19',
        'java version "25.0.1" 2025-10-21 LTS',
        'openjdk version "26-ea" 2026-03-17',
    ],
)
def test_a_new_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    fake_java(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


@pytest.mark.parametrize(
    ("line", "told"), [('java version "1.8.0_292"', "is Java 8"), ('openjdk version "11.0.2" 2019-01-15', "is Java 11")]
)
def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str) -> None:
    fake_java(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SqlError) as refused:
        check_java()
    assert refused.value.kind is JAVA_MISSING
    assert told in refused.value.message
    assert "apt-get install openjdk-17" in str(refused.value.hint)


def test_the_path_is_searched_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(SqlError, match="no java is on the PATH and JAVA_HOME is not set"):
        check_java()
    fake_java(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(SqlError, match=r"from the PATH.* is Java 11"):
        check_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SqlError, match="JAVA_HOME contains no"):
        check_java()


def test_a_java_without_a_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "bash: cannot run")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SqlError, match="is not a working Java: bash: cannot run"):
        check_java()


def test_options_that_java_does_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_suitable", {})
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:-NoSuchOption")
    with pytest.raises(SqlError, match="is not a working Java: Unrecognized VM option 'NoSuchOption'") as refused:
        check_java()
    assert str(refused.value.hint).startswith("change JAVA_TOOL_OPTIONS, ")
