"""Generates pages of docs/reference: the language page from the grammar, the connectors page from the connectors'
specs, and the page of error codes."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass

from rw_sql import errors
from rw_sql.assets import list_assets, read_asset
from rw_sql.syntax.parsing.script import parse_statement

_SINK = ".sink.toml"
"""The file name suffix of the sinks' specs."""

_MADE = "<!-- Made by python -m rw_sql.syntax from {source}: change that. -->\n"
_ORDER = ("source", "connection", "table", "materialized_view", "sink", "schema", "session", "alter", "parts")
_RULE = re.compile(r"[!?]?([a-z_]+)\s*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One grammar rule, with its name, its example and its definition."""

    name: str
    example: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One grammar file, with its first comment and its rules."""

    name: str
    title: str
    rules: tuple[Rule, ...]


def chapters() -> tuple[Chapter, ...]:
    """The grammar's files except ``statements.lark``, in reading order.

    Raises ValueError if the grammar files differ from the list of chapters.
    """
    names = {name.removesuffix(".lark") for name in list_assets("grammar", ".lark")} - {"statements"}
    if names != set(_ORDER):
        raise ValueError(f"the reference has no place for {', '.join(sorted(names ^ set(_ORDER)))}")
    return tuple(_chapter(name) for name in _ORDER)


def _chapter(name: str) -> Chapter:
    lines = read_asset("grammar", f"{name}.lark").splitlines()
    title = lines[0].removeprefix("//").strip().rstrip(".")
    return Chapter(name=name, title=title, rules=tuple(rules_of(lines)))


def rules_of(lines: list[str]) -> list[Rule]:
    """The rules of a grammar file. Raises ValueError if the line above a rule is not the rule's example."""
    found: list[Rule] = []
    at = 0
    while at < len(lines):
        match = _RULE.match(lines[at])
        if match is None:
            at += 1
            continue
        above = lines[at - 1]
        if not above.startswith("// example: "):
            raise ValueError(f"grammar rule {match[1]} has no example line")
        end = at + 1
        while end < len(lines) and lines[end].startswith(" "):
            end += 1
        body = "\n".join(re.sub(r"\s*-> \w+$", "", line).removeprefix("!") for line in lines[at:end])
        found.append(Rule(name=match[1], example=above.removeprefix("// example: "), text=body))
        at = end
    return found


def language_page() -> str:
    """Returns the content of docs/reference/language.md."""
    listed = read_asset("grammar", "statements.lark")
    statements = set(re.findall(r"[:|] ([a-z_]+)$", listed, re.MULTILINE))
    head = [line.removeprefix("//").strip() for line in listed.splitlines() if line.startswith("// ")]
    parts = [
        _MADE.format(source="grammar/*.lark"),
        "# The language\n",
        "Words in capitals are keywords, in upper or lower case; quoted characters stand for themselves; `*` means any",
        "number of repetitions. A rule with an empty first line is optional. Words joined by an underscore",
        "(`IF_NOT_EXISTS`) are written with spaces. A keyword is reserved only where it has a meaning: elsewhere it is",
        "a name.\n",
        "| terminal | meaning |",
        "| --- | --- |",
        *(f"| {name} | {text} |" for name, text in _terminals(head)),
        "",
    ]
    for chapter in chapters():
        parts.append(f"## {chapter.title}\n")
        for rule in chapter.rules:
            parts.append(f"### {rule.name}\n")
            if rule.name in statements:
                document = (parse_statement(rule.example).__class__.__doc__ or "").strip().split("\n")[0]
                parts.append(f"{document}\n")
            parts.append(f"```sql\n{rule.example}\n```\n")
            parts.append(f"```\n{rule.text}\n```\n")
    return "\n".join(parts)


def _terminals(head: list[str]) -> list[tuple[str, str]]:
    pairs = [re.match(r"([A-Z_]+)\s{2,}(.+)", line) for line in head]
    return [(pair[1], pair[2]) for pair in pairs if pair is not None]


def connectors_page() -> str:
    """Returns the content of docs/reference/connectors.md."""
    files = list_assets("sources", ".toml")
    sinks = [file for file in files if file.endswith(_SINK)]
    parts = [
        _MADE.format(source="sources/*.toml"),
        "# Connectors\n",
        "This page lists the values of `connector` in `WITH (…)`. "
        "Each connector has a page with its options, formats and columns.\n",
        "## Sources\n",
        *_connectors_table([file for file in files if file not in sinks]),
        "",
        "## Sinks\n",
        *_connectors_table(sinks),
    ]
    return "\n".join(parts) + "\n"


def _connectors_table(files: list[str]) -> list[str]:
    rows = ["| connector | what it does | formats |", "| --- | --- | --- |"]
    for file in files:
        spec = tomllib.loads(read_asset("sources", file))
        formats = "; ".join(f"{f}: {', '.join(encodes)}" for f, encodes in spec.get("formats", {}).items())
        page = f"sink-{spec['name']}" if file.endswith(_SINK) else spec["name"]
        rows.append(f"| [{spec['name']}](../connectors/{page}.md) | {spec['doc']} | {formats} |")
    return rows


def errors_page() -> str:
    """Returns the content of docs/reference/errors.md."""
    known = sorted(
        (code for code in vars(errors).values() if isinstance(code, errors.ErrorCode)), key=lambda code: code.code
    )
    parts = [
        _MADE.format(source="rw_sql/errors.py"),
        "# Error codes\n",
        "A code never changes its meaning and is never reused. `RW1xx` is syntax, `RW2xx` names and types, `RW3xx`",
        "refusals, `RW4xx` the upstream and the runtime. SQLSTATE values are PostgreSQL's.",
        "[Troubleshoot](../how-to/troubleshoot.md) lists solutions.\n",
        "| code | SQLSTATE | meaning |",
        "| --- | --- | --- |",
        *(f"| {code.code} | {code.sqlstate} | {code.title} |" for code in known),
    ]
    return "\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """Returns the name and the content of each generated page in docs/reference."""
    return {"language.md": language_page(), "connectors.md": connectors_page(), "errors.md": errors_page()}
