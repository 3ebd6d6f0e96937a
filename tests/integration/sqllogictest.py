"""Reads and runs ``.slt`` scripts: sqllogictest as its Rust runner writes it, with a few directives for Kafka.

Records are separated by blank lines; ``#`` begins a comment::

    statement ok                        the statement below succeeds
    statement error RW305 must be       it raises this code, and its text matches this regular expression
    query TI rowsort                    it returns the rows below ``----``; T text, I integer, R real
    query T retry 100 backoff 200ms     asked again until the rows are those
    query TT columns kind,statement     only these of the columns it returns
    topic orders partitions 2           makes a topic
    add partitions orders 3             grows it
    produce orders [partition 0]        each line below is a record's value
    produce records orders              each line below is a JSON object: value, key, partition, timestamp_ms, headers
    file offsets.json                   the lines below are a file; ``${dir}`` is its folder
    answer yes | no | nobody            who is asked before an unsafe statement

``${bootstrap}``, ``${dir}`` and ``${warehouse}`` stand for the broker's address, a folder of the test's own and the
warehouse. Values are compared with white space squeezed; NULL and ``(empty)`` are written out. A topic's name begins
with its script's, since all scripts share one broker.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.cli.kafka_topics import Record, add_partitions, create_topic, produce
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

_SEPARATOR = "----"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRecord:
    """One record: the words of its first line, the lines below it, and for a query the rows it expects.

    ``line`` is 1-based; ``rows_at`` is the index of the first expected row's line in the file, ``end`` the index after
    the record's last line.
    """

    line: int
    words: tuple[str, ...]
    body: tuple[str, ...]
    rows: tuple[str, ...] = ()
    rows_at: int = 0
    end: int = 0


def read_records(text: str) -> list[ScriptRecord]:
    """The records of a script. Raises ValueError naming the line that is none."""
    lines = text.split("\n")
    records = []
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        start = at
        while at < len(lines) and lines[at].strip():
            at += 1
        words = tuple(lines[start].split())
        body = lines[start + 1 : at]
        rows: list[str] = []
        rows_at = at
        if words[0] == "query":
            if _SEPARATOR not in body:
                raise ValueError(f"line {start + 1}: a query needs {_SEPARATOR}")
            cut = body.index(_SEPARATOR)
            rows_at = start + 2 + cut
            body, rows = body[:cut], body[cut + 1 :]
        records.append(
            ScriptRecord(line=start + 1, words=words, body=tuple(body), rows=tuple(rows), rows_at=rows_at, end=at)
        )
    return records


def shown(value: object) -> str:
    """A value as a script writes it."""
    match value:
        case None:
            return "NULL"
        case "":
            return "(empty)"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.3f}"
        case bytes() | bytearray():
            return "x" + bytes(value).hex()
        case list() | tuple():
            return "[" + ", ".join(shown(inner) for inner in value) + "]"
        case _:
            return " ".join(str(value).split())


@dataclass(slots=True)
class ScriptRun:
    """One run of a script against an attached session and a broker."""

    session: AttachedSession
    bootstrap: str
    folder: Path
    name: str
    recorded: dict[int, list[str]] = field(default_factory=dict)

    def run(self, record: ScriptRecord, *, is_recording: bool = False) -> None:
        """Runs one record. Raises AssertionError saying what was expected, with the line."""
        match record.words:
            case ("statement", "ok"):
                self._rows(record)
            case ("statement", "error", code, *pattern):
                self._refused(record, code, " ".join(pattern))
            case ("query", types, *modes):
                self._query(record, types, modes, is_recording=is_recording)
            case ("topic", topic, "partitions", count):
                create_topic(self.bootstrap, self._own(topic, record), int(count))
            case ("add", "partitions", topic, count):
                add_partitions(self.bootstrap, self._own(topic, record), int(count))
            case ("produce", "records", topic):
                produce(self.bootstrap, self._own(topic, record), [_record(line) for line in record.body])
            case ("produce", topic):
                produce(self.bootstrap, self._own(topic, record), record.body)
            case ("produce", topic, "partition", number):
                values = [Record(value=line.encode(), partition=int(number)) for line in record.body]
                produce(self.bootstrap, self._own(topic, record), values)
            case ("file", name):
                (self.folder / name).write_text("\n".join(record.body), encoding="utf-8")
            case ("answer", "yes" | "no" as word):
                self.session.answer(word == "yes")
            case ("answer", "nobody"):
                self.session.attached.ask = None
            case _:
                raise ValueError(f"line {record.line}: not a record: {' '.join(record.words)}")

    def _own(self, topic: str, record: ScriptRecord) -> str:
        assert topic.startswith(self.name), f"line {record.line}: topic {topic} does not begin with {self.name}"
        return topic

    def _text(self, lines: tuple[str, ...]) -> str:
        text = "\n".join(lines)
        for name, value in self._names().items():
            text = text.replace("${" + name + "}", value)
        return text

    def _names(self) -> dict[str, str]:
        return {"bootstrap": self.bootstrap, "dir": str(self.folder), "warehouse": self.session.warehouse}

    def _rows(self, record: ScriptRecord, columns: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
        try:
            rows = self.session.sql(self._text(record.body))
            return [tuple(row[name] for name in columns) if columns else tuple(row) for row in rows]
        except SqlError as error:
            raise AssertionError(f"line {record.line}: {error}") from error

    def _refused(self, record: ScriptRecord, code: str, pattern: str) -> None:
        error: SqlError | None = None
        try:
            self.session.sql(self._text(record.body))
        except SqlError as raised:
            error = raised
        assert error is not None, f"line {record.line}: no error, where {code} was expected"
        assert error.code == code, f"line {record.line}: not {code} but {error}"
        assert re.search(pattern, str(error)), f"line {record.line}: /{pattern}/ is not in\n{error}"

    def _query(self, record: ScriptRecord, types: str, modes: list[str], *, is_recording: bool) -> None:
        is_sorted = "rowsort" in modes
        attempts, pause = _retries(modes)
        columns = tuple(modes[modes.index("columns") + 1].split(",")) if "columns" in modes else ()
        expected = self._text(record.rows).split("\n") if record.rows else []
        never = threading.Event()
        while True:
            rows = self._rows(record, columns)
            found = [" ".join(shown(value) for value in row) for row in rows]
            wanted = [" ".join(line.split()) for line in expected]
            if is_sorted:
                found, wanted = sorted(found), sorted(wanted)
            attempts -= 1
            if found == wanted or attempts < 1:
                break
            never.wait(pause)
        if is_recording:
            self.recorded[record.rows_at] = [self._hidden(line) for line in found]
            return
        assert found == wanted, f"line {record.line}: rows are\n" + "\n".join(found) + "\nnot\n" + "\n".join(wanted)
        for row in rows:
            _check_types(row, types, record)

    def _hidden(self, line: str) -> str:
        for name, value in self._names().items():
            line = line.replace(value, "${" + name + "}")
        return line


def rewritten(text: str, records: list[ScriptRecord], recorded: dict[int, list[str]]) -> str:
    """The script with the rows that its queries returned."""
    lines = text.split("\n")
    for record in reversed(records):
        if record.rows_at in recorded:
            lines[record.rows_at : record.end] = recorded[record.rows_at]
    return "\n".join(lines)


def _retries(modes: list[str]) -> tuple[int, float]:
    if "retry" not in modes:
        return 1, 0.0
    backoff = modes[modes.index("backoff") + 1]
    return int(modes[modes.index("retry") + 1]), int(backoff.removesuffix("ms")) / 1000


def _check_types(row: tuple[object, ...], types: str, record: ScriptRecord) -> None:
    assert len(row) == len(types), f"line {record.line}: {len(row)} columns, not {len(types)}"
    for value, kind in zip(row, types, strict=True):
        if value is None:
            continue
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        fits = {"I": is_integer, "R": isinstance(value, float), "T": not is_integer and not isinstance(value, float)}
        assert fits[kind], f"line {record.line}: {value!r} is not of type {kind}"


def _record(line: str) -> Record:
    given = json.loads(line)
    value, key = given.get("value"), given.get("key")
    return Record(
        value=value.encode() if isinstance(value, str) else None,
        key=key.encode() if isinstance(key, str) else None,
        partition=given.get("partition"),
        timestamp_ms=given.get("timestamp_ms"),
        headers=tuple((name, text.encode()) for name, text in given.get("headers", ())),
    )
