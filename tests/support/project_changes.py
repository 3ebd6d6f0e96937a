"""Changes to the project in ``examples/pipelines``, each with the expected classes of changes in its plan. They are the
forty changes of the proof ``apply-changes``, and further changes that are only planned."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.cli.formatting.command import format_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROJECT = Path(__file__).parents[2] / "examples" / "pipelines"
BROKER = "127.0.0.1:9092"
VARIABLES = {"env": "dev", "BROKER": BROKER, "ORDERS_PER_SECOND": "1000"}
TOPICS = ("orders", "payments", "customers", "items", "sales", "orders_v2")

Files = dict[str, str]


def project_files() -> Files:
    """The texts of the project's files, by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(PROJECT.glob("*.sql"))}


@dataclass(frozen=True, slots=True)
class ProjectChange:
    """An edit of the project's files, and the number of changes of each class that a plan of the edit has."""

    name: str
    classes: Mapping[str, int]
    edit: Callable[[Files], None]

    def files(self) -> Files:
        """The project's files after the edit."""
        files = project_files()
        self.edit(files)
        return files


def _replace(file: str, old: str, new: str) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        assert files[file].count(old) == 1, f"{file} has not one {old!r}"
        files[file] = files[file].replace(old, new)

    return edit


def _append(file: str, text: str) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        files[file] = files.get(file, "") + "\n" + text + ";\n"

    return edit


def _drop(file: str, kind: str, name: str) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        kept, count = re.subn(rf"(?:--[^\n]*\n)?CREATE {kind} {name}\b[^;]*;\n", "", files[file])
        assert count == 1, f"{file} has no {kind} {name}"
        files[file] = kept

    return edit


def _each(*edits: Callable[[Files], None]) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        for one in edits:
            one(files)

    return edit


def _to_files(files: Files) -> None:
    """Writes every statement into its own file, with file names that lead to another order of the statements."""
    statements = [text for file in files.values() for text in re.findall(r"CREATE [^;]*;", file)]
    files.clear()
    files.update({f"{99 - number}.sql": f"{text}\n" for number, text in enumerate(statements)})


def _format(change: Callable[[str], str]) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        for name, text in files.items():
            files[name] = change(text)

    return edit


def _backwards(files: Files) -> None:
    for name, text in files.items():
        files[name] = "\n".join(reversed(re.findall(r"CREATE [^;]*;", text)))


def _renamed(name: str, new: str) -> Callable[[Files], None]:
    """Returns an edit that renames an object, also in the statements of the objects that read it."""

    def edit(files: Files) -> None:
        for file, text in files.items():
            text = re.sub(
                rf"(CREATE (?:MATERIALIZED VIEW|SOURCE|SINK|TABLE) ){name}\b",
                rf"-- rw: renamed from {name}\n\1{new}",
                text,
            )
            files[file] = re.sub(rf"\b(FROM|JOIN) {name}\b", rf"\1 {new}", text)

    return edit


VIEW = "CREATE MATERIALIZED VIEW"
_MORE_PAID = _replace("views.sql", "count(*) AS payments", "count(*) AS payments, max(cents) AS largest")
_FASTER = _replace("sources.sql", "'${ORDERS_PER_SECOND}'", "'5'")
_BY_COUNTRY = _append(
    "views.sql",
    f"{VIEW} sales_by_country AS SELECT country, sum(cents) AS cents FROM sales_by_customer GROUP BY country",
)
_ARCHIVE = _append(
    "sinks.sql",
    "CREATE SINK order_feed FROM order_lines "
    "WITH (connector = 'kafka', connection = broker, topic = '${env}.sales') FORMAT PLAIN ENCODE JSON",
)
_OTHER_TOPIC = _replace("sources.sql", "'${env}.orders'", "'${env}.orders_v2'")
_NEW_COLUMN = _replace("tables.sql", "cents BIGINT", "cents BIGINT,\n  weight INT")
_WIDER = _replace(
    "sources.sql", "method CHARACTER VARYING,", "method CHARACTER VARYING,\n  currency CHARACTER VARYING,"
)

CHANGES = (
    # Nothing changes.
    ProjectChange(
        "statements are written on one line", {}, _format(lambda t: " ".join(re.sub(r"--.*", "", t).split()))
    ),
    ProjectChange(
        "words in lower case", {}, _format(lambda t: re.sub(r"\b[A-Z]{2,}\b(?![}_])", lambda m: m[0].lower(), t))
    ),
    ProjectChange("comments everywhere", {}, _format(lambda t: "/* a */ " + t.replace(",\n", ", -- a remark\n"))),
    ProjectChange("formatted", {}, _format(format_text)),
    ProjectChange("every statement in a file of its own", {}, _to_files),
    ProjectChange("statements in reverse order", {}, _backwards),
    ProjectChange(
        "properties in another order, a default written out",
        {},
        _each(
            _replace(
                "sources.sql",
                "connection = broker,\n  topic = '${env}.payments'",
                "topic = '${env}.payments', scan.startup.mode = 'earliest',\n  connection = broker",
            ),
            _format(lambda t: t.replace("CHARACTER VARYING", "VARCHAR")),
        ),
    ),
    # Create.
    ProjectChange("another view", {"create": 1}, _BY_COUNTRY),
    ProjectChange("another sink", {"create": 1}, _ARCHIVE),
    ProjectChange(
        "a source and a view on it, written above it",
        {"create": 2},
        _each(
            _append("a.sql", f"{VIEW} late AS SELECT id FROM orders_v2"),
            _append(
                "b.sql",
                "CREATE SOURCE orders_v2 (id BIGINT) WITH (connector = 'kafka', connection = broker, "
                "topic = '${env}.orders_v2') FORMAT PLAIN ENCODE JSON",
            ),
        ),
    ),
    ProjectChange(
        "another connection",
        {"create": 1},
        _append("c.sql", "CREATE CONNECTION other WITH (type = 'kafka', properties.bootstrap.server = '${BROKER}')"),
    ),
    # Alter in place.
    ProjectChange("a source is read more slowly", {"alter": 1}, _FASTER),
    ProjectChange(
        "a rate limit is taken away",
        {"alter": 1},
        _replace("sources.sql", ",\n  source_rate_limit = '${ORDERS_PER_SECOND}'", ""),
    ),
    ProjectChange(
        "a client id of the connection",
        {"alter": 1},
        _replace("connections.sql", "'${BROKER}'", "'${BROKER}', properties.client.id = 'shop'"),
    ),
    ProjectChange(
        "a property that only the reader uses",
        {"alter": 1},
        _replace("sources.sql", "'${env}.payments'", "'${env}.payments',\n  properties.fetch.max.bytes = '1000000'"),
    ),
    ProjectChange("a column of a table", {"alter": 1}, _NEW_COLUMN),
    ProjectChange(
        "a column of a table under another name",
        {"alter": 1},
        _replace("tables.sql", "title CHARACTER VARYING", "label CHARACTER VARYING FROM title"),
    ),
    ProjectChange(
        "a column of a table is not needed", {"alter": 1}, _replace("tables.sql", "  name CHARACTER VARYING,\n", "")
    ),
    ProjectChange(
        "a view reads its history more slowly",
        {"alter": 1},
        _replace("views.sql", "VIEW paid\nAS", "VIEW paid\nWITH (backfill_rate_limit = 100)\nAS"),
    ),
    # Rename.
    ProjectChange("a view that others read is renamed", {"rename": 1}, _renamed("order_totals", "order_values")),
    ProjectChange("a source is renamed", {"rename": 1}, _renamed("payments", "received")),
    ProjectChange("a sink is renamed", {"rename": 1}, _renamed("sales_feed", "sales_out")),
    ProjectChange(
        "two views are renamed", {"rename": 2}, _each(_renamed("paid", "settled"), _renamed("unpaid", "open"))
    ),
    # Unsafe.
    ProjectChange("another topic", {"unsafe": 1}, _OTHER_TOPIC),
    ProjectChange(
        "another topic of payments",
        {"unsafe": 1},
        _replace("sources.sql", "'${env}.payments'", "'${env}.orders_v2'"),
    ),
    ProjectChange(
        "another topic of a table", {"unsafe": 1}, _replace("tables.sql", "'${env}.items'", "'${env}.orders_v2'")
    ),
    ProjectChange("another topic, and read more slowly", {"unsafe": 1}, _each(_OTHER_TOPIC, _FASTER)),
    # Rebuild.
    ProjectChange("a view has another column", {"rebuild": 1}, _MORE_PAID),
    ProjectChange(
        "a view has another condition", {"rebuild": 1}, _replace("views.sql", "WHERE t.cents >", "WHERE t.cents >=")
    ),
    ProjectChange(
        "a view reads something else",
        {"rebuild": 1},
        _replace(
            "views.sql", "JOIN customers AS c ON t.customer = c.id", "LEFT JOIN customers AS c ON t.customer = c.id"
        ),
    ),
    # Recreate.
    ProjectChange("a source has another column", {"recreate": 6}, _WIDER),
    ProjectChange(
        "a view with a sink has another query",
        {"recreate": 4},
        _replace("views.sql", "sum(pieces) AS pieces", "max(pieces) AS pieces"),
    ),
    ProjectChange(
        "another topic of a sink", {"recreate": 2}, _replace("sinks.sql", "'${env}.sales'", "'${env}.orders_v2'")
    ),
    # Drop.
    ProjectChange("a view is not needed", {"drop": 1}, _drop("views.sql", VIEW.removeprefix("CREATE "), "unpaid")),
    ProjectChange(
        "a sink and the view that it reads are not needed",
        {"drop": 2},
        _each(
            _drop("sinks.sql", "SINK", "sales_feed"), _drop("views.sql", VIEW.removeprefix("CREATE "), "sales_by_item")
        ),
    ),
    ProjectChange(
        "a source is not needed, nor what reads it",
        {"drop": 3},
        _each(
            _drop("sources.sql", "SOURCE", "payments"),
            _drop("views.sql", VIEW.removeprefix("CREATE "), "paid"),
            _drop("views.sql", VIEW.removeprefix("CREATE "), "unpaid"),
        ),
    ),
    # Three at once.
    ProjectChange(
        "a view, a rate limit and a new view",
        {"rebuild": 1, "alter": 1, "create": 1},
        _each(_MORE_PAID, _FASTER, _BY_COUNTRY),
    ),
    ProjectChange(
        "a rename, another topic and a drop",
        {"rename": 1, "unsafe": 1, "drop": 1},
        _each(_renamed("paid", "settled"), _OTHER_TOPIC, _drop("sinks.sql", "SINK", "sales_feed")),
    ),
    ProjectChange(
        "a column, a view that uses it, and every statement in a file of its own",
        {"alter": 1, "create": 1},
        _each(_NEW_COLUMN, _append("views.sql", f"{VIEW} weights AS SELECT id, weight FROM items"), _to_files),
    ),
    ProjectChange(
        "a renamed view gets another query",
        {"rename": 1, "rebuild": 1},
        _each(_renamed("unpaid", "open"), _replace("views.sql", "WHERE t.cents >", "WHERE t.cents >=")),
    ),
)

_SCHEMA = _append("schemas.sql", "CREATE SCHEMA mart")

FURTHER = (
    ProjectChange(
        "a source, a table, a view and a sink get another schema and another name",
        {"create": 1, "rename": 4},
        _each(
            _SCHEMA,
            _renamed("payments", "mart.received"),
            _renamed("items", "mart.articles"),
            _renamed("paid", "mart.settled"),
            _renamed("sales_feed", "mart.sales_out"),
        ),
    ),
    ProjectChange(
        "a view gets another schema and another name, a source is read more slowly, and another view has another query",
        {"create": 1, "rename": 1, "alter": 1, "rebuild": 1},
        _each(
            _SCHEMA,
            _FASTER,
            _renamed("paid", "mart.settled"),
            _replace("views.sql", "WHERE t.cents >", "WHERE t.cents >="),
        ),
    ),
    ProjectChange(
        "a view has another query, and a source and its readers, which do not read the view, are created again",
        {"recreate": 6, "rebuild": 1},
        _each(
            _WIDER,
            _replace(
                "views.sql", "JOIN customers AS c ON t.customer = c.id", "LEFT JOIN customers AS c ON t.customer = c.id"
            ),
        ),
    ),
)
"""Further changes, whose plans depend on an interruption, or on the order of the statements."""


def classes_of(actions: list[str]) -> dict[str, int]:
    """The number of changes of each class."""
    return dict(Counter(actions))
