"""A topic of Avro records, whose schemas are in a registry that can be killed or made to answer with errors."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rw_sql.cli.servers.kafka_topics import create_topic, produce
from rw_sql.cli.servers.schema_registry import is_running, registry_runner, start_registry, stop_registry
from rw_sql.errors import SqlError
from tests.support.avro_records import AvroWriter, record_schema
from tests.support.registry_proxy import RegistryProxy

TOPIC = "readings"
_SUBJECT = f"{TOPIC}-value"


def why_no_registry() -> str:
    """The reason why this machine has no registry; empty if it has one."""
    try:
        registry_runner()
    except SqlError as error:
        return error.message
    return ""


@dataclass(slots=True)
class Readings:
    """The topic, its registry, and the number of its records: the record ``n`` has the id ``n``.

    A source reads the registry through ``proxy``. The newest schema has no records until :meth:`write_unseen`, so that
    a reader must then ask the registry.
    """

    folder: Path
    draw: random.Random
    bootstrap: str = ""
    proxy: RegistryProxy = field(default_factory=lambda: RegistryProxy(""))
    url: str = ""
    written: int = 0
    _used: int = 0
    _writer: AvroWriter = field(default_factory=lambda: AvroWriter(""))
    _schemas: list[dict[str, Any]] = field(default_factory=list)

    def start(self, bootstrap: str) -> None:
        """Starts the registry, and writes the first records."""
        self.bootstrap = bootstrap
        self.proxy.target = self._writer.url = start_registry(self.folder, port=0).url
        self.url = self.proxy.start()
        create_topic(self.bootstrap, TOPIC, 2)
        self._add_schema()
        self.write_unseen(10)
        self._add_schema()

    def stop(self) -> None:
        """Stops the registry."""
        self.proxy.stop()
        stop_registry(self.folder)

    def grow(self, rows: int) -> None:
        """Appends records whose schemas have been used. The broker and the registry must answer."""
        if self._used == len(self._schemas):
            self._add_schema()
        self._write([self.draw.randrange(self._used) for _ in range(rows)])

    def write_unseen(self, rows: int) -> None:
        """Appends records of the newest schema. The broker must answer."""
        self._used = len(self._schemas)
        self._write([self._used - 1] * rows)

    def expected(self) -> Counter[tuple[object, ...]]:
        """The rows ``(id, v)`` of all records."""
        return Counter((number, _value(number)) for number in range(self.written))

    def kill(self, ended: threading.Event, seconds: float) -> bool:
        """Kills the registry, writes records of a schema that only the registry knows, and starts it again after some
        seconds, with its schemas; returns False if it is not running."""
        info = is_running(self.folder)
        if info is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(info.pid, signal.SIGKILL)
        while is_running(self.folder) is not None:
            ended.wait(0.05)
        self.write_unseen(50)
        ended.wait(seconds)
        # The registry keeps its schemas in memory. Until it has them again, it must not answer that it has none.
        self.proxy.is_down = True
        try:
            start_registry(self.folder, port=0)
            self._restore()
        finally:
            self.proxy.is_down = False
        return True

    def refuse(self, ended: threading.Event, seconds: float) -> bool:
        """Lets the registry answer every request with 503 for some seconds; meanwhile, writes records of a schema that
        only the registry knows."""
        self.proxy.is_down = True
        try:
            self.write_unseen(50)
            ended.wait(seconds)
        finally:
            self.proxy.is_down = False
        return True

    def _add_schema(self) -> None:
        more = {f"x{number}": {"type": "int", "default": number} for number in range(len(self._schemas))}
        self._schemas.append(record_schema("Reading", {"id": "long", "v": "long", **more}))
        self._writer.register(_SUBJECT, self._schemas[-1])

    def _restore(self) -> None:
        before, self._writer.ids = self._writer.ids, {}
        for schema in self._schemas:
            self._writer.register(_SUBJECT, schema)
        assert self._writer.ids == before, "the registry gives its schemas other ids"

    def _write(self, versions: list[int]) -> None:
        records = []
        for version in versions:
            value = {"id": self.written, "v": _value(self.written), **{f"x{n}": self.written for n in range(version)}}
            records.append(self._writer.record(TOPIC, self._schemas[version], value, partition=self.written % 2))
            self.written += 1
        produce(self.bootstrap, TOPIC, records)


def _value(number: int) -> int:
    return 7 * number + 1
