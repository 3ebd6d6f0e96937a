"""Runs the records of a ``.slt`` file on an attached session, with a broker if there is one."""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from rw_sql.cli.sql_files import folder_files
from rw_sql.cli.testing.outcome import MismatchError, WrongTestError
from rw_sql.cli.testing.row_diff import compare_lists
from rw_sql.cli.testing.slt_file import SEPARATOR
from rw_sql.cli.text_input import read_text
from rw_sql.errors import SqlError
from rw_sql.plan.deploy.folder import read_folder
from rw_sql.plan.deploy.order import in_order
from rw_sql.session.scripts import run_part
from rw_sql.syntax import ScriptStatement, render
from rw_sql.syntax.dialect.time_zones import time_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from rw_sql.cli.testing.row_diff import Row
    from rw_sql.cli.testing.slt_file import SltRecord
    from rw_sql.session.attach import Attached

_NAME = re.compile(r"\$\{(\w+)\}")
_CODE = re.compile(r"\(?(RW\d{3}|[0-9A-Z]{5})\)?\Z")
_IGNORED = "<slt:ignore>"
_ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)
_OF_RUN = ("dir", "warehouse", "bootstrap")
"""The variables whose values differ from run to run."""

_NEEDS_BROKER = "needs a broker: run rw-sql test --kafka"
_FAILING = ("stalled, not waited for", "not waited for", "except for rows missing in")
_CATALOG = threading.Lock()
"""A lock that a test holds while it runs a statement on ``rw_catalog``.

Sessions of one Spark may be attached to different warehouses, but the views of ``rw_catalog`` show only one
warehouse at a time.
"""


def shown(value: object) -> str:
    """A value in the form in which a ``.slt`` file contains it."""
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
class SltRun:
    """One run of a file. ``names`` maps the names in ``${…}`` to their values. ``found`` contains the rows to record.
    Each key is the index of the line at which a query's expected rows begin, and the value contains the new rows.

    If ``is_recording`` is true, a query whose rows differ from the expected rows raises no MismatchError, and its rows
    are recorded. This does not apply to the queries of an included file, because other files may include the same file.
    """

    attached: Attached
    folder: Path
    file: str
    names: dict[str, str]
    bootstrap: str | None = None
    is_recording: bool = False
    found: dict[int, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self, record: SltRecord) -> None:
        """Runs one record. Raises MismatchError with the record's line number, and WrongTestError for an invalid
        record."""
        match record.words:
            case ("statement", "ok"):
                self._rows(record)
            case ("statement" | "query", "error", *wanted):
                self._refused(record, wanted)
            case ("query", types, *modes):
                self._query(record, types, modes)
            case ("flush",):
                self._flush(record)
            case ("let", *names):
                self._let(record, [name for word in names for name in word.split(",") if name])
            case ("objects", folder):
                self._objects(record, folder)
            case ("file", name):
                self._write(record, name)
            case ("answer", "yes" | "no" as word):
                self.attached.ask = partial(_say, word == "yes")
            case ("answer", "nobody"):
                self.attached.ask = None
            case _:
                self._upstream(record)

    def _write(self, record: SltRecord, name: str) -> None:
        path = self.folder / name
        if path.parent.resolve() != self.folder.resolve():
            raise WrongTestError("file takes a name without a folder", file=record.file, line=record.line)
        path.write_text("\n".join(record.body), encoding="utf-8")

    def _flush(self, record: SltRecord) -> None:
        try:
            lacking = passed_over(self._run_sql("FLUSH", record)[1])
        except SqlError as error:
            raise MismatchError(f"{error.code}: {error.message}", error.render(), line=record.line) from error
        if lacking is not None:
            raise MismatchError(lacking, line=record.line)

    def _objects(self, record: SltRecord, folder: str) -> None:
        """Creates the objects that a folder's files define.

        The run's ``names`` contain the values of the variables in these files.
        """
        try:
            files = folder_files(str(Path(record.file).parent / folder))
            ordered = in_order(read_folder([(file, read_text(file)) for file in files], self.names))
        except SqlError as error:
            raise WrongTestError(error.render(), file=record.file, line=record.line) from error
        for made in ordered:
            try:
                self._run_sql(render(made.statement), record)
            except SqlError as error:
                raise MismatchError(
                    f"{made.place}: {error.code}: {error.message}", error.render(), line=record.line
                ) from error

    def _upstream(self, record: SltRecord) -> None:
        from rw_sql.cli.servers.kafka_topics import Record, add_partitions, create_topic, produce

        match record.words:
            case ("topic", topic, "partitions", count) if count.isdecimal():
                create_topic(self._broker(record), topic, int(count))
            case ("add", "partitions", topic, count) if count.isdecimal():
                add_partitions(self._broker(record), topic, int(count))
            case ("produce", "records", topic):
                produce(self._broker(record), topic, [_record(line, record) for line in record.body])
            case ("produce", topic):
                produce(self._broker(record), topic, record.body)
            case ("produce", topic, "partition", number) if number.isdecimal():
                values = [Record(value=line.encode(), partition=int(number)) for line in record.body]
                produce(self._broker(record), topic, values)
            case _:
                raise WrongTestError(f"not a record: {' '.join(record.words)}", file=record.file, line=record.line)

    def _broker(self, record: SltRecord) -> str:
        if self.bootstrap is None:
            raise WrongTestError(f"{record.words[0]} {_NEEDS_BROKER}", file=record.file, line=record.line)
        return self.bootstrap

    def _text(self, lines: Sequence[str], record: SltRecord) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1] not in self.names:
                told = f"${{{found[1]}}} {_NEEDS_BROKER}" if found[1] == "bootstrap" else f"${{{found[1]}}} is not set"
                raise WrongTestError(told, file=record.file, line=record.line)
            return self.names[found[1]]

        return _NAME.sub(value, "\n".join(lines))

    def _run_sql(self, text: str, record: SltRecord) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Runs a statement. Returns the names of the result's columns, and its rows. Raises SqlError with the line of
        the error in the test file."""
        kept: list[tuple[tuple[str, ...], list[tuple[Any, ...]]]] = []

        def keep(result: DataFrame) -> None:
            zone = time_zone(self.attached.spark.conf.get("spark.sql.session.timeZone") or "")
            kinds = [column.dataType for column in result.schema.fields]
            rows = [
                tuple(_in_zone(value, kind, zone) for value, kind in zip(row, kinds, strict=True))
                for row in result.collect()
            ]
            kept.append((tuple(result.columns), rows))

        part = ScriptStatement(text=text, start=0, line=1, column=1)
        try:
            if "rw_catalog" in text.casefold():
                with _CATALOG:
                    run_part(self.attached, part, text, None, keep)
            else:
                run_part(self.attached, part, text, None, keep)
        except SqlError as error:
            if error.span is not None and error.text == text:
                # The error gets the text that was executed. Empty lines before this text move it to its line in the
                # file.
                error.text = "\n" * record.line + text
                error.span = type(error.span)(
                    error.span.start + record.line,
                    error.span.end + record.line,
                    error.span.line + record.line,
                    error.span.column,
                )
            raise
        return kept[0]

    def _rows(self, record: SltRecord, columns: tuple[str, ...] = ()) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        try:
            names, rows = self._run_sql(self._text(record.body, record), record)
        except SqlError as error:
            raise MismatchError(f"{error.code}: {error.message}", error.render(), line=record.line) from error
        if not columns:
            return names, rows
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise MismatchError(f"the query has no column {unknown[0]}", f"it has {', '.join(names)}", line=record.line)
        places = [names.index(name) for name in columns]
        return columns, [tuple(row[place] for place in places) for row in rows]

    def _refused(self, record: SltRecord, wanted: Sequence[str]) -> None:
        code = _CODE.match(wanted[0]) if wanted else None
        pattern = " ".join(wanted[1:] if code else wanted)
        try:
            is_match = re.compile(pattern).search
        except re.error as error:
            told = f"/{pattern}/ is not a regular expression: {error}"
            raise WrongTestError(told, file=record.file, line=record.line) from error
        try:
            self._run_sql(self._text(record.body, record), record)
        except SqlError as error:
            text = str(error)
            if code is not None and code[1] not in (error.code, error.sqlstate):
                raise MismatchError(f"the error is {error.code}, not {code[1]}", text, line=record.line) from error
            if not is_match(text):
                raise MismatchError(f"the error does not match /{pattern}/", text, line=record.line) from error
            exact = "\n".join(record.rows).strip()
            if exact and error.render().strip() != self._text([exact], record) and error.message != exact:
                raise MismatchError(f"the error is not the one below {SEPARATOR}", text, line=record.line) from error
            return
        raise MismatchError(f"no error, but {' '.join(wanted) or 'an error'} was expected", line=record.line)

    def _let(self, record: SltRecord, names: list[str]) -> None:
        _, rows = self._rows(record)
        if len(rows) != 1 or len(rows[0]) != len(names):
            found = f"{len(rows)} rows" if len(rows) != 1 else f"{len(rows[0])} columns"
            raise MismatchError(
                f"let {', '.join(names)} takes one row of {len(names)} columns, not {found}", line=record.line
            )
        self.names.update(zip(names, map(shown, rows[0]), strict=True))

    def _query(self, record: SltRecord, types: str, modes: Sequence[str]) -> None:
        attempts, pause = _retries(modes, record)
        columns = _chosen_columns(modes, record)
        expected = (
            [" ".join(line.split()) for line in self._text(record.rows, record).split("\n")] if record.rows else []
        )
        never = threading.Event()
        while True:
            attempts -= 1
            try:
                names, rows = self._rows(record, columns)
            except MismatchError:
                if attempts < 1:
                    raise
                never.wait(pause)
                continue
            found = _sorted([" ".join(map(shown, row)) for row in rows], modes)
            wanted = _sorted(expected, modes)
            is_right = len(found) == len(wanted) and all(map(_is_match, wanted, found))
            if is_right or attempts < 1:
                break
            never.wait(pause)
        if self.is_recording and record.file == self.file:
            if not is_right:
                self.found[record.rows_at] = self._recorded(record, found, modes)
            return
        if not is_right:
            raise MismatchError(
                "the query's rows differ from the expected rows",
                _difference(names, expected, found, [tuple(map(shown, row)) for row in rows], modes),
                line=record.line,
            )
        if len(found) > 1 and not _is_ordered(record, modes):
            self.notes.append(f"line {record.line}: the query has no ORDER BY, and the record has no rowsort")
        for row in rows:
            _check_types(row, types, record)

    def _recorded(self, record: SltRecord, found: list[str], modes: Sequence[str]) -> list[str]:
        """Returns the lines to record for the found rows. If an expected row matches a found row, its line is kept as
        written, with its ``${…}`` and ``<slt:ignore>``."""
        written = [] if "valuesort" in modes else list(record.rows)
        lines = []
        for line in found:
            kept = next((old for old in written if _is_match(" ".join(self._text([old], record).split()), line)), None)
            if kept is not None:
                written.remove(kept)
            lines.append(kept if kept is not None else self._hidden(line))
        return lines

    def _hidden(self, line: str) -> str:
        """Returns a row in which variables such as ``${dir}`` replace the values that differ from run to run."""
        values = {self.names[name]: name for name in _OF_RUN if self.names.get(name)}
        pattern = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
        return re.sub(pattern, lambda found: f"${{{values[found[0]]}}}", line) if pattern else line


def passed_over(rows: Sequence[Sequence[Any]]) -> str | None:
    """Returns a text that lists the objects for which a FLUSH did not wait because their jobs fail. ``rows`` is the
    result of the FLUSH. Returns None if there is no such object.

    Paused objects are not listed, because a pause is intentional.
    """
    told = [f"{name}: {detail}" for name, _, detail in rows if detail.startswith(_FAILING)]
    return "; ".join(told) or None


def _in_zone(value: Any, kind: DataType, zone: dt.tzinfo | None) -> Any:
    """Converts the times in a value from Spark's ``collect`` to ``zone``; None leaves the times unchanged. PySpark
    returns times in the time zone of this process, which may differ from machine to machine."""
    match kind:
        case _ if value is None or zone is None:
            return value
        case TimestampType():
            return value.astimezone(zone).replace(tzinfo=None)
        case ArrayType():
            return [_in_zone(inner, kind.elementType, zone) for inner in value]
        case StructType():
            kinds = [column.dataType for column in kind.fields]
            return tuple(_in_zone(inner, each, zone) for inner, each in zip(value, kinds, strict=True))
        case MapType():
            return {
                _in_zone(key, kind.keyType, zone): _in_zone(inner, kind.valueType, zone) for key, inner in value.items()
            }
        case _:
            return value


def _say(word: bool, _question: object) -> bool:
    return word


def _is_match(wanted: str, found: str) -> bool:
    if _IGNORED not in wanted:
        return wanted == found
    return re.fullmatch(".*".join(map(re.escape, wanted.split(_IGNORED))), found) is not None


def _is_ordered(record: SltRecord, modes: Sequence[str]) -> bool:
    text = " ".join(record.body)
    is_read = re.match(r"\s*(?:select|with|values|from|table)\b", text, re.IGNORECASE) is not None
    return not is_read or "rowsort" in modes or "valuesort" in modes or _ORDERED.search(text) is not None


def _sorted(lines: list[str], modes: Sequence[str]) -> list[str]:
    if "valuesort" in modes:
        return sorted(value for line in lines for value in line.split())
    return sorted(lines) if "rowsort" in modes else lines


def _difference(
    names: Sequence[str], expected: list[str], found: list[str], rows: Sequence[Row], modes: Sequence[str]
) -> str:
    """Returns the difference between the expected and the found rows as text. If each expected line has one value per
    column and no found value contains a space, the text shows the query's columns. Otherwise, it shows each row as one
    column."""
    split = [tuple(line.split()) for line in expected]
    is_plain = all(len(row) == len(names) for row in split) and all(" " not in cell for row in rows for cell in row)
    if is_plain and "valuesort" not in modes:
        kept = list(rows)
        if "rowsort" in modes:
            split, kept = sorted(split), sorted(kept)
        return compare_lists(names, split, kept) or ""
    return compare_lists(["row"], [(line,) for line in expected], [(line,) for line in found]) or ""


def _chosen_columns(modes: Sequence[str], record: SltRecord) -> tuple[str, ...]:
    if "columns" not in modes:
        return ()
    after = modes[modes.index("columns") + 1 :]
    if not after:
        raise WrongTestError("columns takes names: columns kind,name", file=record.file, line=record.line)
    return tuple(after[0].split(","))


def _retries(modes: Sequence[str], record: SltRecord) -> tuple[int, float]:
    if "retry" not in modes:
        return 1, 0.0
    told = re.search(r"\bretry (\d+) backoff (\d+)(ms|s)\b", " ".join(modes))
    if told is None:
        raise WrongTestError(
            "retry takes a number and a time: retry 5 backoff 200ms", file=record.file, line=record.line
        )
    return int(told[1]), int(told[2]) / (1000 if told[3] == "ms" else 1)


def _check_types(row: tuple[object, ...], types: str, record: SltRecord) -> None:
    if len(row) != len(types):
        raise MismatchError(f"the query has {len(row)} columns, not {len(types)}", line=record.line)
    for value, kind in zip(row, types, strict=True):
        if value is None or kind == "?":
            continue
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        fits = {"I": is_integer, "R": isinstance(value, float), "T": not is_integer and not isinstance(value, float)}
        if not fits.get(kind, False):
            raise MismatchError(f"{value!r} is not of type {kind}", line=record.line)


def _record(line: str, record: SltRecord) -> Any:
    from rw_sql.cli.servers.kafka_topics import Record

    try:
        given = json.loads(line)
        unknown = set(given) - {"value", "key", "partition", "timestamp_ms", "headers"}
        if unknown:
            raise ValueError(f"it has no {min(unknown)}")
        return Record(
            value=_bytes(given.get("value")),
            key=_bytes(given.get("key")),
            partition=given.get("partition"),
            timestamp_ms=given.get("timestamp_ms"),
            headers=tuple((name, text.encode()) for name, text in given.get("headers", ())),
        )
    except (ValueError, TypeError, AttributeError) as error:
        told = f"a record is a JSON object with value, key, partition, timestamp_ms and headers, not {line}"
        raise WrongTestError(told, file=record.file, line=record.line) from error


def _bytes(value: Any) -> bytes | None:
    """Returns the bytes of a record's key or value. A string is encoded unchanged, and any other value is encoded as
    JSON. For None, which stands for a null key or a tombstone, returns None."""
    return None if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()
