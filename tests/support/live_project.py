"""The example project on a live warehouse; its commands run in the existing session."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.cli.servers.kafka_topics import create_topic, delete_topic
from rw_sql.metastore import Metastore
from tests.integration.attached import AttachedSession
from tests.support.offline_warehouse import meaning_of
from tests.support.project_changes import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextmanager
def project_topics(bootstrap: str, env: str) -> Iterator[None]:
    """The topics that an environment of the project reads and writes, deleted afterwards."""
    topics = [f"{env}.{topic}" for topic in TOPICS]
    for topic in topics:
        create_topic(bootstrap, topic, 1)
    try:
        yield
    finally:
        for topic in topics:
            delete_topic(bootstrap, topic)


class LiveProject:
    """A warehouse to which folders are applied, as by a user, with one Spark session."""

    def __init__(self, spark: SparkSession, warehouse: Path, bootstrap: str) -> None:
        self.session = AttachedSession(spark, str(warehouse))
        self.session.allow_unsafe()
        self._folder = warehouse.with_name(warehouse.name + "-folder")
        self._bootstrap = bootstrap

    def write(self, files: Mapping[str, str]) -> None:
        """Writes these files to the folder, and removes all others."""
        self._folder.mkdir(exist_ok=True)
        for path in self._folder.glob("*.sql"):
            path.unlink()
        for name, text in files.items():
            (self._folder / name).write_text(text, encoding="utf-8")
        values = f"BROKER={self._bootstrap}\nORDERS_PER_SECOND=1000\n"
        (self._folder / "dev.env").write_text(values, encoding="utf-8")

    def run(self, command: str, *words: str) -> str:
        """The output of a command on the folder. Raises the command's error, and AssertionError for an exit status
        other than 0."""

        @contextmanager
        def running(_warehouse: str | None, *, run_jobs: bool = True, **_: object) -> Iterator[SparkSession]:
            assert run_jobs
            yield self.session.spark

        target = [str(self._folder), "--env", "dev", "-w", self.session.warehouse]
        with patch("rw_sql.cli.spark_start.spark_for", running):
            result = CliRunner().invoke(app, [command, *target, *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    def apply(self, files: Mapping[str, str]) -> str:
        """Applies a folder with these files, and permits drops, gaps and duplicates."""
        self.write(files)
        return self.run("apply", "--yes", "--allow-drop", "--allow", "GAPS,DUPLICATES")

    def diff(self, files: Mapping[str, str]) -> str:
        """The differences between the warehouse and a folder with these files."""
        self.write(files)
        return self.run("diff", "--exit-code")

    def meaning(self) -> dict[tuple[str, str], object]:
        """The meaning of every object in the warehouse's catalog."""
        return meaning_of(Metastore.open(self.session.warehouse).snapshot())

    def close(self) -> None:
        """Stops the warehouse's jobs."""
        self.session.detach()
