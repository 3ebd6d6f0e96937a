"""Writes the reference pages about the command line, the Python API, the catalog, parameters and metrics: ``python -m
rw_sql.cli.reference [--check]``.

``python -m rw_sql.syntax`` writes the pages of the language, and ``python -m rw_sql.connectors.docs`` writes the pages
of the connectors.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections import defaultdict
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlglot import parse_one
from sqlglot.expressions import Query
from typer.main import get_command

import rw_sql
from rw_sql.assets import list_assets, read_asset
from rw_sql.cli.interface.examples import EXAMPLES
from rw_sql.cli.interface.exit_codes import MEANINGS
from rw_sql.cli.main import app
from rw_sql.connectors import base, plain, ranged, spec
from rw_sql.connectors import sink as sink_base
from rw_sql.metastore.catalog import load_catalog
from rw_sql.model.parameters import SESSION_PARAMETERS, SYSTEM_PARAMETERS
from rw_sql.runtime.observe.metrics import HELP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rw_sql.model.parameters import Parameter

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

_MADE = "<!-- Made by python -m rw_sql.cli.reference from {source}: change that. -->\n"

_CONNECTOR_API = (
    ("Sources", base, ("Connector", "SplitState", "UpstreamSplit", "Upstream", "GroupOffsets")),
    ("Bases to extend", ranged, ("PythonConnector", "RangedConnector", "Record")),
    ("Common behaviour of connectors", plain, ("PlainConnector",)),
    ("The TOML file", spec, ("parse_spec",)),
    ("Sinks", sink_base, ("SinkConnector", "SinkError", "RefusedRowsError", "TargetUnfitError", "TakenOverError")),
)

_VIEW_ROWS = {
    "rw_schemas": "schema",
    "rw_objects": "object of any kind, its record as JSON",
    "rw_sources": "source: connector, options, canonical definition, generation",
    "rw_tables": "table with a connector: definition, id of its source, primary key, conflict behavior",
    "rw_connections": "connection: type, canonical definition",
    "rw_secrets": "secret: backend, canonical definition; never a value",
    "rw_sinks": "sink: connector, type, options, keys, inputs, whether it is paused",
    "rw_materialized_views": "materialized view: query, inputs, keys, schema",
    "rw_pauses": "pause of a source; `source_id` is NULL for PAUSE ALL SOURCES",
    "rw_parameters": "parameter set by ALTER SYSTEM SET",
    "rw_depend": "dependency: `objid` reads or uses `refobjid`",
    "rw_fragment_splits": "split that a fragment reads",
    "rw_source_state": "position that a statement set",
    "rw_operations": "operation: statement, before-image, outcome, the statement that would undo it, epoch of its undo",
    "rw_event_logs": "event: statements, their outcomes, starts of jobs, recent changes of job state; `info` is JSON",
    "rw_jobs": "job: state, reason, last error, restarts",
    "rw_runs": "start of a job",
    "rw_positions": "position that the shared reader of a source has stored",
    "rw_rewind_points": "unsafe operation, with its rewind point or the reason why it has none",
    "rw_ddl_progress": "view that is being built, or table that is being refreshed, with its progress",
    "rw_refresh_table_state": "refreshable table: state, times of its refreshes, interval, last failure",
    "rw_refresh_progress": "key range of a table's newest refresh: number of rows that differ between the upstream and "
    "the table, whether the range is merged",
    "rw_lease": "resource group: the owner of its jobs; a group has no row before its first owner",
}
"""Maps each catalog view to the meaning of one of its rows. The meanings are defined here because released files of
``catalog/`` never change."""

_PLAINER = {
    "Statements that sessions without a JVM pass to the owner of a group. The newest row of a request holds.": (
        "Statements that sessions without a JVM pass to the owner of a group. If a request has several rows, only the "
        "newest row is valid."
    ),
    "Which of these files a warehouse has seen.": "The files of `catalog/` that have been applied to the warehouse.",
    (
        "The log of record. Appending a row with entry = 'operation' is the commit of a statement; a row with entry = "
        "'outcome' says later what came of it. Statistics are kept for epoch alone: the images can be megabytes."
    ): (
        "The log of record. Appending a row with entry = 'operation' is the commit of a statement; a later row with "
        "entry = 'outcome' contains its outcome. Delta keeps statistics only of the column epoch, because the images "
        "can be megabytes long."
    ),
    "the number of the commit; an outcome carries the epoch it is about": (
        "the number of the commit; an outcome has the epoch of its operation"
    ),
    "tells a writer whether a commit in doubt was its own": (
        "lets a writer find out whether an uncertain commit was its own"
    ),
    "canonical text, secrets by name": "canonical text, with the names of secrets",
    "the names it affects, dependents included": "the names of the affected objects, including dependents",
    "who": "the user",
    "what EXPLAIN prints": "the text that EXPLAIN prints",
    "before-image: JSON of everything the changes touch": "before-image: JSON of everything that the changes replace",
    "JSON, for the proof afterwards": "JSON, for SHOW SOURCE CONTINUITY",
    "applied, committed or failed: and why": "applied, committed or failed, with the reason",
    "Projections of operations: the newest row of a key holds.": (
        "A projection of operations. If several rows have the same key, only the newest row is valid."
    ),
    "JSON; null once dropped": "JSON; null if the object was dropped",
    "the operation that assigned or took the split": "the operation that assigned or removed the split",
    "the operation that set or forgot the state": "the operation that set or discarded the state",
    "the next record to read, as JSON of the connector; null once forgotten": (
        "the next record to read, as JSON of the connector; null if it was discarded"
    ),
    "version of the log of the fragment when it was set": "version of the fragment's log when the state was set",
    "Facts of the running jobs. They advance no epoch; seq orders the rows of a key, the newest holds.": (
        "The runtime_* tables describe the running jobs. Writing to them does not increase the epoch. If several rows "
        "have the same key, only the row with the highest `seq` is valid."
    ),
    "always the same: a warehouse has one owner": (
        "`jobs` for the resource group default, `jobs.GROUP` for another group"
    ),
    "the newest epoch that the owner brought into the world": "the newest epoch that the owner has applied to the jobs",
    "the start of the job, from 1; fences all earlier ones": (
        "the number of this start of the job, from 1; it fences all earlier runs"
    ),
    "the catalog the run started from": "the epoch of the catalog when the run started",
    "Readers that stand still while a BEGIN UNSAFE block is committed. A hold ends with the next commit of anybody.": (
        "Readers that are stopped while a BEGIN UNSAFE block is committed. The next commit of any process lets them "
        "start again."
    ),
    "one COMMIT that holds one or more sources": (
        "identifies the COMMIT of the block; the same value for all sources whose readers this COMMIT stops"
    ),
    "the catalog that the block is committed on": "the epoch of the catalog on which the block was planned",
    "where the process cannot be looked at": (
        "the end of the hold, in milliseconds since 1970; used if the process is on another machine, where it cannot "
        "be checked"
    ),
    (
        "What REWIND goes back to. A point belongs to one source and one unsafe operation; the copies lie beside the "
        "checkpoints."
    ): (
        "The states to which REWIND can return. A point belongs to one source and one unsafe operation; its copies of "
        "checkpoints are stored beside the checkpoints."
    ),
    "the point is what was there just before it": "the point is the state just before this operation",
    "why there is none; null where there is one": "the reason if there is no point; null if there is one",
    "where the copies of the checkpoints lie, below the checkpoints of the warehouse": (
        "the folder of the checkpoints' copies, below the warehouse's checkpoints"
    ),
    "Which REWINDs the owner has carried out.": "The REWINDs that the owner has completed.",
    "the operation that is the REWIND": "the epoch of the REWIND",
    "How far views have come with what was there before them. The newest row of a job holds.": (
        "The progress of backfills. If a job has several rows, only the newest row is valid."
    ),
    "reading history, catching up, or live once it is over": (
        "reading history, catching up, or, after the backfill, live"
    ),
    "offsets of the history that were read": "number of offsets of the history that were read",
    (
        "How far the refreshes of tables have come, chunk by chunk; chunk -1 is the loading. The newest row of a chunk "
        "holds."
    ): (
        "The progress of refreshes, chunk by chunk; chunk -1 stands for the loading phase before the merge. If a chunk "
        "has several rows, only the newest row is valid."
    ),
    "which refresh of the table, counted from 1": "the number of the table's refresh, from 1",
    "the key up to which the chunk reaches, as JSON; null where it has no rows": (
        "the last key of the chunk, as JSON; null if the chunk has no rows"
    ),
    "rows that differ from those of the table": "number of rows that differ from the table's rows",
    "of the catalog when the chunk was merged": "the epoch of the catalog when the chunk was merged",
}
"""Maps comments of ``catalog/*.sql`` to the same comments in plainer words. Released files of ``catalog/`` never
change."""


def pages() -> dict[str, str]:
    """Returns all pages: the name of each page under docs/reference, with the text of the page."""
    return {
        "cli.md": cli_page(),
        "python.md": python_page(),
        "catalog.md": catalog_page(),
        "parameters.md": parameters_page(),
        "metrics.md": metrics_page(),
    }


def cli_page() -> str:
    """The page about the command line, with the arguments and options of every command."""
    parts = [
        _MADE.format(source="rw_sql/cli"),
        "# Command line\n",
        "`rw-sql COMMAND --help`, or `-h`, prints the same text. A command that fails writes the error and its code to",
        'standard error. With `--output json`, it also writes `{"error": {…}}` to standard output, unless the JSON',
        "that the command prints already contains the error. An option has the same name in all commands. Old names of",
        "options still work, but the command then prints the new name.\n",
        "## Exit status\n",
        _table(("status", "meaning"), [(str(status), meaning) for status, meaning in MEANINGS.items()]),
        "## Completion\n",
        "`rw-sql --install-completion` installs completion of commands, options and their values for the shell in",
        "`$SHELL`. For another shell, add its name: `--install-completion bash`, `zsh` or `fish`. `--show-completion`",
        "prints the completion script.\n",
    ]
    for path, command in _commands("rw-sql", get_command(app)):
        arguments = [found for found in command.params if found.param_type_name == "argument"]
        options = [found for found in command.params if found.param_type_name == "option" and found.name != "help"]
        usage = " ".join([path, *(["[OPTIONS]"] if options else []), *(_metavar(found) for found in arguments)])
        parts += [f"## {path}\n", f"{_joined(command.help or '')}\n", f"```\n{usage}\n```\n"]
        rows = [(f"`{_metavar(found)}`", _code(found.default), found.help or "") for found in arguments]
        rows += [(_flags(found), _code(found.default), _meaning(found)) for found in options]
        if rows:
            parts.append(_table(("argument or option", "default", "meaning"), rows))
        examples = "\n".join(EXAMPLES[path.removeprefix("rw-sql ")])
        parts.append(f"```sh\n{examples}\n```\n")
    return "\n".join(parts)


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    nested = getattr(command, "commands", None)
    if nested is None:
        yield path, command
        return
    for name, found in nested.items():
        yield from _commands(f"{path} {name}", found)


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return str(name) if argument.required else f"[{name}]"


def _flags(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or str(option.name).upper()}"
    return ", ".join(f"`{flag}{value}`" for flag in sorted(option.opts, key=len, reverse=True))


def _meaning(option: Any) -> str:
    text = option.help or ""
    if option.multiple and "repeat" not in text.lower():
        text += " Repeatable."
    return text + (f" Environment: `{option.envvar}`." if option.envvar else "")


def _code(default: Any) -> str:
    if default is None or default is False or callable(default) or default == ():
        return ""
    return f"`{default}`"


def python_page() -> str:
    """The page about the Python API, with the names that the package exports, and the base classes for connectors in
    other packages."""
    parts = [
        _MADE.format(source="the docstrings of rw_sql"),
        "# Python API\n",
        "`import rw_sql` loads neither Spark nor Java. After `connect` or `attach`, `spark.sql` accepts the",
        "statements. All names that are not on this page are internal.\n",
        "## rw_sql\n",
        f"{_joined(rw_sql.__doc__ or '')}\n",
    ]
    for name in rw_sql.__all__:
        parts += _described(name, getattr(rw_sql, name))
    parts += [
        "## Notebooks\n",
        "`%load_ext rw_sql` registers `%rw`, for one line, and `%%rw`, for a cell of statements. `%%rw --yes` confirms",
        "each unsafe statement of the cell whose `ALLOW` names the predicted gaps and duplicates.\n",
        "## Connectors of your own\n",
        "[Write a connector](../how-to/write-a-connector.md) shows how the following classes fit together.\n",
    ]
    for title, module, names in _CONNECTOR_API:
        parts.append(f"### {title}\n")
        parts.append(f"From `{module.__name__}`.\n")
        for name in names:
            parts += _described(name, getattr(module, name), level=4)
    return "\n".join(parts)


def _described(name: str, thing: Any, level: int = 3) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    if not inspect.isclass(thing):
        yield f"```python\n{_signature(thing)}\n```\n"
        yield f"{_joined(thing.__doc__ or '')}\n"
        return
    if is_dataclass(thing):
        yield f"```python\n{_fields(thing)}\n```\n"
    yield f"{_joined(inspect.cleandoc(thing.__doc__ or ''))}\n"
    rows = []
    for member, value in vars(thing).items():
        made = value.fget if isinstance(value, property) else value
        if member.startswith("_") or not inspect.isfunction(made) or not made.__doc__:
            continue
        shown = member if isinstance(value, property) else _signature(made)
        rows.append((f"`{' '.join(shown.split())}`", _joined(made.__doc__)))
    if rows:
        yield _table(("member", "meaning"), rows)


def _signature(function: Any) -> str:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    node.args.posonlyargs = [found for found in node.args.posonlyargs if found.arg != "self"]
    node.args.args = [found for found in node.args.args if found.arg not in ("self", "cls")]
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returned}"


def _source_of(field: ast.AnnAssign) -> str:
    """Returns the source text of a field as Ruff formats it, with double quotes around a text that is the field's
    default."""
    text = ast.unparse(field)
    if isinstance(field.value, ast.Constant) and isinstance(field.value.value, str):
        text = text.removesuffix(ast.unparse(field.value)) + json.dumps(field.value.value, ensure_ascii=False)
    return text


def _fields(record: type) -> str:
    node = ast.parse(textwrap.dedent(inspect.getsource(record))).body[0]
    assert isinstance(node, ast.ClassDef)
    return "\n".join(
        [f"class {record.__name__}:", *(f"    {_source_of(at)}" for at in node.body if isinstance(at, ast.AnnAssign))]
    )


def catalog_page() -> str:
    """The page about the catalog, with the views that an attached session sees, and the Delta tables from which these
    views read."""
    script = "\n".join(read_asset("catalog", name) for name in list_assets("catalog", ".sql"))
    views = load_catalog().views
    if set(views) != set(_VIEW_ROWS):
        raise ValueError(f"the catalog's page describes other views than there are: {set(views) ^ set(_VIEW_ROWS)}")
    parts = [
        _MADE.format(source="catalog/*.sql"),
        "# Catalog tables and views\n",
        "An attached session has the views in the database `rw_catalog`. The tables are Delta tables under",
        "`<warehouse>/rw_catalog/`, which any Delta client may read but must not write.",
        "[The catalog](../explanation/catalog.md) explains how they work together.\n",
        "## Views\n",
        _table(
            ("view", "one row per", "columns"),
            [(f"`{name}`", _VIEW_ROWS[name], _columns(text)) for name, text in sorted(views.items())],
        ),
    ]
    added: dict[str, str] = defaultdict(str)
    for name, body in re.findall(r"(?ms)^ALTER TABLE rw_catalog\.(\w+) ADD COLUMNS \(\n(.*?)^\);", script):
        added[name] += body
    for comment, name, body in re.findall(
        r"(?ms)((?:^--[^\n]*\n)*)^CREATE TABLE rw_catalog\.(\w+) \(\n(.*?)^\)", script
    ):
        parts.append(f"## {name}\n")
        said = " ".join(line.removeprefix("--").strip() for line in comment.splitlines())
        if said:
            parts.append(f"{_PLAINER.get(said, said)}\n")
        rows = re.findall(
            r"^  (\w+) ([A-Z<>]+)( NOT NULL)?(?: COMMENT '((?:[^']|'')*)')?,?$", body + added[name], re.MULTILINE
        )
        parts.append(
            _table(
                ("column", "type", "", "meaning"),
                [
                    (f"`{column}`", f"`{kind}`", null.strip(), _PLAINER.get(said, said))
                    for column, kind, null, said in ((c, k, n, text.replace("''", "'")) for c, k, n, text in rows)
                ],
            )
        )
    return "\n".join(parts)


def _columns(query: str) -> str:
    parsed = parse_one(query, read="spark")
    assert isinstance(parsed, Query)
    return ", ".join(f"`{name}`" for name in parsed.named_selects)


def parameters_page() -> str:
    """The page about the parameters of ALTER SYSTEM SET and SET."""
    return "\n".join(
        [
            _MADE.format(source="rw_sql/model/parameters.py"),
            "# Parameters\n",
            "Times are written as in PostgreSQL: `60` and `60s` both mean 60 seconds; other examples are `500ms`,",
            "`2min`, `1h` and `7d`.\n",
            "## Of the warehouse\n",
            "`ALTER SYSTEM SET name = value` stores a parameter in the catalog, for every session.\n",
            _parameters(SYSTEM_PARAMETERS.values()),
            "## Of a session\n",
            "`SET name = value` lasts as long as the session. `SET` with any other name goes to Spark unchanged.\n",
            _parameters(SESSION_PARAMETERS.values()),
        ]
    )


def _parameters(known: Iterable[Parameter]) -> str:
    return _table(("parameter", "default", "meaning"), [(f"`{p.name}`", f"`{p.default}`", p.doc) for p in known])


def metrics_page() -> str:
    """The page about metrics, with the help text of every metric."""
    return "\n".join(
        [
            _MADE.format(source="rw_sql/runtime/observe/metrics.py"),
            "# Metrics\n",
            "`SHOW METRICS` returns the metrics as rows. `rw-sql serve` serves the metrics to Prometheus at the path",
            "`/metrics` of its status page. With `--metrics [HOST:]PORT`, it also serves them on a separate port.",
            "[Monitor a warehouse](../how-to/monitor.md) lists the alerts.\n",
            _table(
                ("metric", "type", "meaning"),
                [(f"`{name}`", "counter" if name.endswith("_total") else "gauge", text) for name, text in HELP.items()],
            ),
        ]
    )


def _joined(text: str) -> str:
    """Converts a docstring to Markdown with one line per paragraph.

    Sphinx roles and double backquotes become single backquotes.
    """
    blocks = [" ".join(block.split()) for block in inspect.cleandoc(text).split("\n\n")]
    plain_text = re.sub(r":\w+:`(?:[\w.]+\.)?(\w+)`", r"`\1`", "\n\n".join(blocks).replace("``", "`"))
    # Outside code, ``array<struct<…>>`` would be read as HTML.
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], plain_text)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("\n\n", " ").replace("\n", " ").replace("|", "\\|")


def stale_pages(folder: Path) -> list[Path]:
    """The pages in ``folder`` that are out of date."""
    return [
        folder / name
        for name, text in pages().items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """Writes the pages that are out of date. With ``--check``, only lists these pages, and returns 1 if there is such a
    page."""
    stale = stale_pages(FOLDER)
    is_checked = "--check" in arguments
    for path in stale:
        if not is_checked:
            path.write_text(pages()[path.name], encoding="utf-8")
        sys.stdout.write(f"{path.name} {'is out of date' if is_checked else 'written'}\n")
    return 1 if stale and is_checked else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
