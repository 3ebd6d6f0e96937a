"""Archives of Spark's classes, with real JVMs that end at once."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from rw_sql.runtime.spark.jar_cache import spark_folder
from rw_sql.session.class_archive import JAVA_OPTIONS, ClassArchive, class_archive, with_archive
from rw_sql.session.java import java_program

pytestmark = pytest.mark.spark

CONFIG = {JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no options of other tests."""
    for name in ("SPARK_SUBMIT_OPTS", "RW_SQL_CLASS_ARCHIVE", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rw_sql" / "classes"


def class_path() -> str:
    return os.pathsep.join(str(jar) for jar in sorted((spark_folder() / "jars").glob("*.jar")))


def run_jvm(archive: ClassArchive, *options: str) -> str:
    """Runs a JVM with Spark's class path and the options of an archive to its end; returns what it prints."""
    words = with_archive(CONFIG, archive)[JAVA_OPTIONS].split()
    command = [str(java_program()), *words, *options, "-cp", class_path(), "org.apache.spark.launcher.Main"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def found(config: dict[str, str] | None = None) -> ClassArchive:
    archive = class_archive(CONFIG if config is None else config)
    assert archive is not None
    return archive


def made(cache: Path) -> Path:
    """Makes an archive as a first run does; returns it under the name that its JVM gave it."""
    archive = found()
    assert archive.class_path_file is not None
    run_jvm(archive)
    archive.class_path_file.write_text(class_path(), encoding="utf-8")
    (new,) = cache.glob("*.new")
    return new


def test_what_one_jvm_writes_another_one_maps(cache: Path) -> None:
    made(cache)
    archive = found()
    assert not archive.is_made
    (file,) = cache.iterdir()
    assert f"-XX:SharedArchiveFile={file} " in archive.options
    assert f"-{file.stat().st_size}.jsa" in file.name
    loaded = [line for line in run_jvm(archive, "-Xlog:class+load").splitlines() if "spark.launcher.Main " in line]
    assert loaded
    assert all("shared objects file (top)" in line for line in loaded), loaded
    assert found() == archive


def test_an_archive_that_was_not_finished_is_deleted_and_made_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = made(cache)
    new.chmod(0o600)
    os.truncate(new, new.stat().st_size // 2)
    (folder := tmp_path / "of the user").mkdir()
    monkeypatch.chdir(folder)
    assert found().is_made
    assert list(cache.iterdir()) == []
    # The JVM that tried it has ended with SIGBUS, without a report.
    assert list(folder.iterdir()) == []


def test_an_archive_with_changed_bytes_is_deleted_and_made_again(cache: Path) -> None:
    new = made(cache)
    new.chmod(0o600)
    content = bytearray(new.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4096] = bytes(byte ^ 0xFF for byte in content[middle : middle + 4096])
    new.write_bytes(content)
    assert found().is_made
    assert list(cache.iterdir()) == []


def test_an_archive_that_was_truncated_later_is_not_used(cache: Path) -> None:
    made(cache)
    assert not found().is_made
    (file,) = cache.iterdir()
    file.chmod(0o600)
    os.truncate(file, file.stat().st_size // 2)
    assert found().is_made


def test_other_options_have_another_archive(cache: Path) -> None:
    made(cache)
    assert found({}).is_made
    assert found({**CONFIG, "spark.driver.memory": "3g"}).is_made
    assert not found().is_made


@pytest.mark.parametrize(
    "variables",
    [
        {"RW_SQL_CLASS_ARCHIVE": "off"},
        {"CI": "true"},
        {"SPARK_SUBMIT_OPTS": "-XX:SharedArchiveFile=/tmp/mine.jsa"},
        {"JAVA_TOOL_OPTIONS": "-Xshare:off"},
        {"HADOOP_CONF_DIR": "/etc/hadoop"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_no_archive_is_made(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert class_archive(CONFIG) is None
    assert with_archive(CONFIG, None) == CONFIG


def test_in_ci_a_stored_archive_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(cache)
    monkeypatch.setenv("CI", "true")
    assert not found().is_made


def test_a_folder_that_others_can_write_holds_no_archives(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert class_archive(CONFIG) is None


def test_a_folder_that_cannot_be_made_is_not_in_the_way(cache: Path) -> None:
    cache.parent.write_text("a file", encoding="utf-8")
    assert class_archive(CONFIG) is None


def test_old_files_are_deleted_before_another_archive_is_made(cache: Path) -> None:
    cache.mkdir(parents=True, mode=0o700)
    now = time.time()
    for age in range(6):
        file = cache / f"{age}-1.jsa"
        file.write_bytes(b"x")
        os.utime(file, (now - age, now - age))
    for name, written in {"a.1.new": now, "b.1.new": now - 86_400, "b.1.classpath": now - 86_400}.items():
        (cache / name).write_bytes(b"x")
        os.utime(cache / name, (written, written))
    assert found().is_made
    assert sorted(file.name for file in cache.iterdir()) == ["0-1.jsa", "1-1.jsa", "2-1.jsa", "a.1.new"]
