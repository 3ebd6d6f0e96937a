"""Reads ``.slt`` files. The format is that of sqllogictest's Rust runner, with additional directives such as those for
Kafka.

Records are separated by empty lines, and ``#`` begins a comment::

    statement ok                        the statement below succeeds
    statement error [CODE] [regex]      the statement below fails with this code or SQLSTATE and a text that matches
    query TI [rowsort | valuesort]      the query returns the rows below ``----``: T text, I integer, R real, ? anything
    query error [CODE] [regex]          like ``statement error``, for a query
    query T retry 100 backoff 200ms     the query is run up to 100 times, 200 ms apart, until its rows match
    query TT columns kind,statement     only these columns of the query's result are compared
    flush                               runs FLUSH, which waits until all existing records have reached the views
    include common/*.slt                adds the records of other files; the path is relative to this file's folder
    objects ..                          creates the objects that a folder defines, in the order of their dependencies
    let a, b                            the query below returns one row, whose values become ``${a}`` and ``${b}``
    skipif LABEL, onlyif LABEL          a condition for the next record, which may also be ``include`` or ``halt``; the
                                        labels are ``rw_sql`` and those given by ``--label``
    halt                                skips the rest of the file
    topic orders partitions 2           creates a topic
    add partitions orders 3             adds partitions until the topic has 3
    produce orders [partition 0]        each line below is a record's value
    produce records orders              each line below is a JSON object: value, key, partition, timestamp_ms, headers
    file offsets.json                   writes the lines below to a file; ``${dir}`` is its folder
    answer yes | no | nobody            the answer to unsafe statements; ``nobody``: no question can be asked

Values are compared after white space is collapsed. ``NULL`` denotes a NULL, ``(empty)`` denotes an empty text, and
``<slt:ignore>`` matches any value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rw_sql.cli.testing.outcome import WrongTestError

SEPARATOR = "----"

_REFUSED = {
    "sleep": "to wait for a condition, use flush, or retry and backoff at the end of a query line",
    "system": "a test cannot run programs",
    "connection": "each file has one session",
    "hash-threshold": "list the expected rows instead of their hash",
    "control": "query lines say how rows are sorted, and ${name} is always replaced",
    "subtest": "put the records of the subtest into a separate file",
}
_OF_ONE_LINE = ("flush", "include", "halt", "topic", "add", "answer", "objects")
"""The first words of records that consist of a single line."""

_WORDS = (
    "statement",
    "query",
    "flush",
    "include",
    "let",
    "halt",
    "topic",
    "add",
    "produce",
    "file",
    "answer",
    "objects",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SltRecord:
    """One record. ``words`` are the words of the record's first line. ``body`` contains the lines below the first line,
    up to the line ``----``. ``rows`` contains the lines below ``----``: the expected rows of a query, or the expected
    text of an error.

    ``file`` and the 1-based ``line`` are the record's position. ``rows_at`` is the 0-based index of the line with the
    first expected row, and ``end`` is the index after the record's last line. ``conditions`` are the record's skipif
    and onlyif conditions.
    """

    file: str
    line: int
    words: tuple[str, ...]
    body: tuple[str, ...]
    rows: tuple[str, ...] = ()
    rows_at: int = 0
    end: int = 0
    conditions: tuple[tuple[str, str], ...] = ()

    def counts(self, labels: frozenset[str]) -> bool:
        """True if the record must be run by an engine with these labels, according to the record's conditions."""
        return all((label in labels) == (word == "onlyif") for word, label in self.conditions)


def read_records(text: str, file: str, *, within: tuple[str, ...] = ()) -> list[SltRecord]:
    """The records of a file and of the files that it includes. Raises WrongTestError with the line of the error.

    ``within`` contains the resolved paths of the file and of the files that include it. It is empty for a test's own
    file.
    """
    lines = text.split("\n")
    records: list[SltRecord] = []
    conditions: list[tuple[str, str]] = []
    rest: list[tuple[str, str]] = []  # the conditions of all records below a halt with a condition
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        words = tuple(lines[at].split())
        if words[0] in ("skipif", "onlyif"):
            if len(words) != 2:
                raise WrongTestError(f"{words[0]} takes one label", file=file, line=at + 1)
            conditions.append((words[0], words[1]))
            at += 1
            continue
        if words[0] in _REFUSED:
            raise WrongTestError(f"{words[0]} is not supported: {_REFUSED[words[0]]}", file=file, line=at + 1)
        if words[0] not in _WORDS:
            raise WrongTestError(f"not a record: {lines[at].strip()}", file=file, line=at + 1)
        record, at = _record(lines, at, file, (*rest, *conditions))
        if words[0] == "halt" and not conditions:
            break
        if words[0] == "halt":
            if len(conditions) > 1:
                raise WrongTestError("halt may have only one skipif or onlyif before it", file=file, line=record.line)
            (word, label) = conditions[0]
            rest.append(("onlyif" if word == "skipif" else "skipif", label))
        elif words[0] == "include":
            records += [
                replace(found, conditions=(*record.conditions, *found.conditions))
                for found in _included(record, within or (str(Path(file).resolve()),))
            ]
        else:
            records.append(record)
        conditions.clear()
    if not records and not within:
        raise WrongTestError("the file contains no record", file=file)
    return records


def _record(lines: list[str], start: int, file: str, conditions: tuple[tuple[str, str], ...]) -> tuple[SltRecord, int]:
    at = start
    while at < len(lines) and lines[at].strip():
        at += 1
    words = tuple(lines[start].split())
    body, rows, rows_at = lines[start + 1 : at], [], at
    if SEPARATOR in body:
        cut = body.index(SEPARATOR)
        rows_at = start + 2 + cut
        body, rows = body[:cut], body[cut + 1 :]
    elif words[0] == "query" and words[1:2] != ("error",):
        raise WrongTestError(f"a query needs {SEPARATOR} and its rows", file=file, line=start + 1)
    if words[0] in _OF_ONE_LINE and at > start + 1:
        told = f"{words[0]} takes no lines below it: an empty line ends a record"
        raise WrongTestError(told, file=file, line=start + 2)
    if SEPARATOR in lines[start:at] and (words[:2] == ("statement", "ok") or words[0] == "let"):
        told = f"only a query and an expected error have rows below {SEPARATOR}"
        raise WrongTestError(told, file=file, line=rows_at)
    record = SltRecord(
        file=file,
        line=start + 1,
        words=words,
        body=tuple(body),
        rows=tuple(rows),
        rows_at=rows_at,
        end=at,
        conditions=conditions,
    )
    return record, at


def _included(record: SltRecord, within: tuple[str, ...]) -> list[SltRecord]:
    if len(record.words) != 2:
        raise WrongTestError("include takes one path or pattern", file=record.file, line=record.line)
    found = sorted(Path(record.file).parent.glob(record.words[1]))
    if not found:
        raise WrongTestError(f"no file is named {record.words[1]}", file=record.file, line=record.line)
    records: list[SltRecord] = []
    for path in found:
        if str(path.resolve()) in within:
            raise WrongTestError(f"{path} includes itself", file=record.file, line=record.line)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise WrongTestError(f"{path} cannot be read: {error}", file=record.file, line=record.line) from error
        records += read_records(text, str(path), within=(*within, str(path.resolve())))
    return records


def topics_of(records: list[SltRecord]) -> frozenset[str]:
    """The topics that these records create. Two files that create the same topic cannot run in parallel."""
    return frozenset(record.words[1] for record in records if record.words[0] == "topic" and len(record.words) > 1)


def rewritten(text: str, file: str, records: list[SltRecord], found: dict[int, list[str]]) -> str:
    """Returns the file's text, in which the rows in ``found`` replace the expected rows. Each key of ``found`` is the
    index of the line at which a query's expected rows begin, and the value contains the new rows."""
    lines = text.split("\n")
    for record in reversed(records):
        if record.file == file and record.rows_at in found:
            lines[record.rows_at : record.end] = found[record.rows_at]
    return "\n".join(lines)
