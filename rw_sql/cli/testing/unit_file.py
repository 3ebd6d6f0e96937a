"""Reads unit tests of views from files ``*.test.yaml`` and ``*.sqltest``.

YAML::

    definitions: ["../*.sql"]           # default: *.sql beside the file, and above it if its folder is called tests
    variables: {topic: orders}
    tests:
      - name: totals add up
        view: totals
        given:
          orders:                       # rows; a column that a row leaves out is NULL
            - {id: 1, customer: ann, amount: 10}
          customers: {file: customers.csv}
          rates: {sql: "SELECT 'EUR' AS currency, 1.1 AS rate"}
          events: {records: [{value: '{"id": 1}', key: a}]}     # as in the topic; needs --kafka
        expect:                         # only the columns named here are compared
          - {customer: ann, amount: 10}

SQL (Spark runs the queries)::

    DEFINITIONS '../*.sql';
    TEST 'totals add up' FOR totals
    GIVEN orders (id, customer, amount) AS (VALUES (1, 'ann', 10))
    EXPECT (customer, amount) AS (VALUES ('ann', 10));
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rw_sql.cli.testing.outcome import WrongTestError
from rw_sql.cli.testing.values import Written
from rw_sql.cli.testing.yaml_text import plain, read_yaml
from rw_sql.errors import near_names
from rw_sql.syntax.lexing.lexemes import SPARKS, lexemes

if TYPE_CHECKING:
    from collections.abc import Iterator

YAML_ENDS = (".test.yaml", ".test.yml")
SQL_END = ".sqltest"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsGiven:
    """The input rows of a test. They are given as literal ``rows`` with their ``columns``, as a query ``sql`` that
    returns the rows, or as the ``records`` of a topic. ``types`` contains the types of columns whose types are not in a
    definition."""

    columns: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    sql: str | None = None
    records: tuple[Mapping[str, Any], ...] | None = None
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTest:
    """One test. If the inputs of ``view`` have the rows ``given``, the view must have the rows ``expect``."""

    file: str
    line: int
    name: str
    view: str
    given: Mapping[str, RowsGiven]
    expect: RowsGiven


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFile:
    """The tests of a file. ``definitions`` contains patterns for the files that create the tested objects. If
    ``definitions`` is None, these are the ``*.sql`` files in the test file's folder and, if this folder is called
    ``tests``, also those in its parent folder."""

    file: str
    tests: tuple[UnitTest, ...]
    definitions: tuple[str, ...] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def definition_files(self) -> list[str]:
        """The files that create the tested objects, sorted within each folder or pattern. Raises WrongTestError if a
        pattern matches no file, or if there are no patterns and no files."""
        folder = Path(self.file).parent
        if self.definitions is None:
            folders = [folder, folder.parent] if _is_above(folder) else [folder]
            found = [path for each in folders for path in sorted(each.iterdir()) if path.suffix.lower() == ".sql"]
            if not found:
                how = self.with_subfolders or "list the files under definitions"
                raise WrongTestError(f"no *.sql file is beside it: {how}", file=self.file)
            return [str(path) for path in found]
        files: list[str] = []
        for pattern in self.definitions:
            matching = sorted(folder.glob(pattern)) if not Path(pattern).is_absolute() else [Path(pattern)]
            if not matching:
                raise WrongTestError(f"no file is named {pattern}", file=self.file)
            files += [str(path) for path in matching if str(path) not in files]
        return files

    @property
    def with_subfolders(self) -> str:
        """Returns a hint that shows the line with which the file would read definitions in subfolders too. Returns an
        empty text if no subfolder contains definitions, or if the file already names its definitions."""
        folder = Path(self.file).parent
        is_above = _is_above(folder)
        inner = (folder.parent if is_above else folder).glob("*/**/*.sql")
        if self.definitions is not None or next((path for path in inner if path.parent != folder), None) is None:
            return ""
        pattern = "../**/*.sql" if is_above else "**/*.sql"
        if self.file.lower().endswith(SQL_END):
            return f"DEFINITIONS '{pattern}'; reads the files in subfolders too"
        return f'definitions: ["{pattern}"] reads the files in subfolders too'


def _is_above(folder: Path) -> bool:
    """True if the parent of this folder may contain definitions too, because this folder is called ``tests``."""
    return folder.resolve().name == "tests"


def read_unit_file(text: str, file: str) -> UnitFile:
    """Reads the tests of a file. Raises WrongTestError with the line of the error."""
    found = _read_sql(text, file) if file.lower().endswith(SQL_END) else _read_yaml(text, file)
    names = [test.name for test in found.tests]
    twice = next((test for test in found.tests if names.count(test.name) > 1), None)
    if twice is not None:
        raise WrongTestError(f'"{twice.name}" is the name of two tests', file=file, line=twice.line)
    if not found.tests:
        raise WrongTestError("the file contains no test", file=file)
    return found


def _read_yaml(text: str, file: str) -> UnitFile:
    document, root = read_yaml(text, file)
    top = _Keys(document, file, 1, "the file", ("definitions", "variables", "tests"))
    definitions = top.get("definitions", (list, str))
    lines = _lines_of_tests(root)
    tests = [
        _yaml_test(item, file, lines[number] if number < len(lines) else 1)
        for number, item in enumerate(top.get("tests", list) or [])
    ]
    return UnitFile(
        file=file,
        tests=tuple(tests),
        definitions=None
        if definitions is None
        else (definitions,)
        if isinstance(definitions, str)
        else (*definitions,),
        variables={
            str(key): "" if value is None else str(value) for key, value in (top.get("variables", dict) or {}).items()
        },
    )


def _lines_of_tests(root: Any) -> list[int]:
    for key, value in getattr(root, "value", ()):
        if key.value == "tests" and isinstance(value.value, list):
            return [item.start_mark.line + 1 for item in value.value]
    return []


def _yaml_test(item: Any, file: str, line: int) -> UnitTest:
    keys = _Keys(item, file, line, "a test", ("name", "view", "given", "expect"))
    view, name = keys.need("view", str), keys.get("name", (str, int))
    given = keys.get("given", dict) or {}
    return UnitTest(
        file=file,
        line=line,
        name=str(name) if name is not None else view,
        view=view,
        given={str(key): _yaml_rows(value, file, line, f"given {key}") for key, value in given.items()},
        expect=_yaml_rows(keys.need("expect", (list, dict)), file, line, "expect"),
    )


def _yaml_rows(value: Any, file: str, line: int, what: str) -> RowsGiven:
    if value is None or isinstance(value, list):
        return _listed(value or [], file, line, what)
    allowed = ("rows", "file", "sql", "columns") if what == "expect" else ("rows", "file", "sql", "records", "columns")
    keys = _Keys(value, file, line, what, allowed)
    ways = [key for key in ("rows", "file", "sql", "records") if key in keys.values]
    if len(ways) != 1:
        raise WrongTestError(f"{what} needs exactly one of {', '.join(allowed[:-1])}", file=file, line=line)
    types = {str(key): str(kind) for key, kind in (keys.get("columns", dict) or {}).items()}
    match ways[0]:
        case "sql":
            return RowsGiven(sql=keys.need("sql", str), types=types)
        case "records":
            records = keys.need("records", list)
            for record in records:
                _Keys(record, file, line, f"a record of {what}", ("value", "key", "partition", "timestamp", "headers"))
            return RowsGiven(records=tuple(plain(record) for record in records), types=types)
        case "file":
            return _csv_rows(Path(file).parent / keys.need("file", str), file, line, types)
        case _:
            return _listed(keys.need("rows", list), file, line, what, types)


def _listed(rows: list[Any], file: str, line: int, what: str, types: Mapping[str, str] | None = None) -> RowsGiven:
    for row in rows:
        if not isinstance(row, dict):
            raise WrongTestError(f"a row of {what} is {{column: value, …}}, not {row!r}", file=file, line=line)
    named = dict.fromkeys(str(column) for row in rows for column in row)
    columns = tuple(dict.fromkeys([*(types or {}), *named]))
    return RowsGiven(columns=columns, rows=tuple(rows), types=types or {})


def _csv_rows(path: Path, file: str, line: int, types: Mapping[str, str]) -> RowsGiven:
    """Reads the rows of a CSV file with a header line. An empty cell is NULL."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as opened:
            reader = csv.DictReader(opened, strict=True)
            rows = [{key: value or None for key, value in row.items()} for row in reader]
            columns = tuple(reader.fieldnames or ())
            twice = next((name for name in columns if columns.count(name) > 1), None)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WrongTestError(f"{path} cannot be read: {error}", file=file, line=line) from error
    if twice is not None:
        raise WrongTestError(f'the header of {path} has the column "{twice}" twice', file=file, line=line)
    if any(None in row for row in rows):
        raise WrongTestError(f"a line of {path} has more cells than its header", file=file, line=line)
    return RowsGiven(columns=columns, rows=tuple(rows), types=types)


class _Keys:
    """A mapping in a YAML file. Raises WrongTestError if the mapping has a key that is not in ``known``."""

    def __init__(self, values: Any, file: str, line: int, what: str, known: tuple[str, ...]) -> None:
        self._file, self._line, self._what = file, line, what
        if not isinstance(values, Mapping):
            raise self._wrong(f"{what} must be a mapping with the keys {', '.join(known)}")
        self.values = values
        for key in values:
            if key not in known:
                near = near_names(str(key), known, most=1)
                hint = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(known)}"
                raise self._wrong(f'{what} has no key "{key}": {hint}')

    def get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """The value of a key; None if the key is missing. Raises WrongTestError if the value is not of the type
        ``kind``."""
        value = self.values.get(key)
        value = value.value if isinstance(value, Written) else value
        if value is not None and not isinstance(value, kind):
            raise self._wrong(f'"{key}" of {self._what} has the wrong type')
        return value

    def need(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """The value of a required key. Raises WrongTestError if the key is missing or its value has the wrong type."""
        if self.values.get(key) is None:
            raise self._wrong(f'{self._what} needs "{key}"')
        return self.get(key, kind)

    def _wrong(self, message: str) -> WrongTestError:
        return WrongTestError(message, file=self._file, line=self._line)


_HEAD = re.compile(r"TEST\s+(?P<name>'(?:[^']|'')*'|[\w.]+)\s+FOR\s+(?P<view>[\w.]+|\"[^\"]+\")\s*", re.IGNORECASE)
_PART = re.compile(
    r"(?:GIVEN\s+(?P<input>[\w.]+|\"[^\"]+\")|(?P<expect>EXPECT))\s*(?P<columns>\([^()]*\))?\s*AS\s*(?=\()",
    re.IGNORECASE,
)
_DEFINITIONS = re.compile(r"DEFINITIONS\s+((?:'[^']*'\s*,?\s*)+)\Z", re.IGNORECASE)


def _read_sql(text: str, file: str) -> UnitFile:
    definitions: tuple[str, ...] | None = None
    tests: list[UnitTest] = []
    for piece, line in _pieces(text):
        if (found := _DEFINITIONS.match(piece)) is not None:
            definitions = (*(definitions or ()), *re.findall(r"'([^']*)'", found[1]))
        else:
            tests.append(_sql_test(piece, file, line))
    return UnitFile(file=file, tests=tuple(tests), definitions=definitions)


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Splits the text at semicolons. Yields each piece with the number of its first line. In the pieces, spaces replace
    the comments."""
    kept: list[str] = []
    for match, end, is_comment in lexemes(SPARKS, text, 0):
        piece = text[match.start() : end]
        kept.append(re.sub(r"[^\n]", " ", piece) if is_comment else "\0" if match["end"] else piece)
    line = 1
    for part in "".join(kept).split("\0"):
        if part.strip():
            yield part.strip(), line + part[: len(part) - len(part.lstrip())].count("\n")
        line += part.count("\n")


def _sql_test(piece: str, file: str, line: int) -> UnitTest:
    usage = "TEST name FOR view GIVEN input [(columns)] AS (query) … EXPECT [(columns)] AS (query)"
    head = _HEAD.match(piece)
    if head is None:
        raise WrongTestError(f"a test begins with TEST name FOR view: {usage}", file=file, line=line)
    given: dict[str, RowsGiven] = {}
    expect: RowsGiven | None = None
    at = head.end()
    while at < len(piece):
        part = _PART.match(piece, at)
        if part is None:
            place = line + piece[:at].count("\n")
            raise WrongTestError(f"GIVEN … AS (…) or EXPECT … AS (…) is expected: {usage}", file=file, line=place)
        end = _closing(piece, part.end())
        if end is None:
            raise WrongTestError("a bracket is not closed", file=file, line=line + piece[: part.end()].count("\n"))
        rows = RowsGiven(sql=f"SELECT * FROM {piece[part.end() : end]} AS t{part['columns'] or ''}")
        if part["input"]:
            given[_unquoted(part["input"])] = rows
        else:
            expect = rows
        at = end + len(piece[end:]) - len(piece[end:].lstrip(" \t\r\n,"))
    if expect is None:
        raise WrongTestError("the test expects nothing: EXPECT [(columns)] AS (query)", file=file, line=line)
    name = head["name"]
    return UnitTest(
        file=file,
        line=line,
        name=name[1:-1].replace("''", "'") if name.startswith("'") else name,
        view=_unquoted(head["view"]),
        given=given,
        expect=expect,
    )


def _closing(text: str, start: int) -> int | None:
    """The position after the bracket that closes the bracket at ``start``; None if no bracket closes it."""
    depth = 0
    for match, end, _ in lexemes(SPARKS, text, start):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return end
    return None


def _unquoted(name: str) -> str:
    return name[1:-1] if name.startswith('"') else name.lower()
