"""Generates a documentation page per connector from its spec: ``python -m rw_sql.connectors.docs [--check]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.connectors.formats import NOT_HERE, SPECS, instead_of
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.connectors.spec import load_spec, number_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.connectors.spec import ConnectorSpec, OptionSpec

FOLDER = Path("docs/connectors")


def page(spec: ConnectorSpec) -> str:
    """A source connector's page as Markdown."""
    blocks = [
        f"<!-- Made from sources/{spec.name}.toml by python -m rw_sql.connectors.docs: change that file. -->",
        f"# {spec.name}",
        spec.doc,
        *_example(spec),
        *([spec.notes.strip()] if spec.notes.strip() else []),
        _readers(spec),
        "## Formats",
        _table(("FORMAT", "ENCODE"), [(name, ", ".join(encodes)) for name, encodes in spec.formats.items()]),
        *([_default_format(*spec.default_format)] if spec.default_format else []),
        *(_included(spec) if spec.include else []),
        "## Options",
        _BATCH_OPTIONS if spec.is_batch else _OPTIONS,
        _table(("option", "value", "default", "", "meaning"), [_row(option) for option in spec.options.values()]),
        *_names(spec),
    ]
    return "\n\n".join(blocks) + "\n"


_OPTIONS = (
    "`ALTER SOURCE … UNSAFE SET` can change every option except `connector` and `shared`. "
    "`ALTER SOURCE … CONNECTOR WITH (…)` changes options marked *safe* without a confirmation, because these options "
    "neither move the source to another upstream nor affect its positions. You can set options marked *connection* in "
    "a [connection](../reference/connections.md) instead of in the source."
)
_BATCH_OPTIONS = (
    "You can set options marked *connection* in a [connection](../reference/connections.md) instead of in the table. "
    "The table also has the options `refresh_mode` and `refresh_interval_sec`: see [refresh](../reference/refresh.md)."
)


def _readers(spec: ConnectorSpec) -> str:
    if spec.is_batch:
        return "Only `REFRESH TABLE` reads this upstream, and each refresh reads the whole upstream."
    if spec.is_shareable:
        return (
            "One reader serves all materialized views of a source. If the source is "
            "[not shared](../reference/shared-sources.md), each view reads the upstream by itself."
        )
    return "Each materialized view reads the upstream by itself."


def _included(spec: ConnectorSpec) -> list[str]:
    rows = [
        (kind, f"`{spec.include_name(kind)}`", f"`{column.type}`", column.doc) for kind, column in spec.include.items()
    ]
    return ["## Columns to include", _table(("INCLUDE", "name without AS", "type", "content"), rows)]


def sink_page(spec: ConnectorSpec) -> str:
    """A sink connector's page as Markdown."""
    formats = [(name, ", ".join(encodes)) for name, encodes in spec.formats.items()]
    blocks = [
        f"<!-- Made from sources/{spec.name}.sink.toml by python -m rw_sql.connectors.docs: change that file. -->",
        f"# {spec.name} (sink)",
        spec.doc,
        *_example(spec),
        spec.notes.strip(),
        *(["## Formats", _table(("FORMAT", "ENCODE"), formats)] if formats else []),
        "## Options",
        "You can change options marked *safe* while the sink runs. These options do not change the sink's target. "
        + (
            "If an option is marked *safe after `?`*, only the part of its value after `?` is safe. "
            if any(option.is_address for option in spec.options.values())
            else ""
        )
        + "[Sinks](../reference/sinks.md) describes the behaviour that all sinks share.",
        _table(("option", "value", "default", "", "meaning"), [_row(option) for option in spec.options.values()]),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def formats_page() -> str:
    """The page of FORMAT … ENCODE …: the supported pairs, the connectors that accept each pair, and the options of each
    pair."""
    specs = [connector(name).spec for name in connector_names()]
    pairs = [
        (pair.format, pair.encode, ", ".join(s.name for s in specs if pair.encode in s.formats.get(pair.format, ())))
        for pair in SPECS.values()
    ]
    blocks = [
        "<!-- Made from rw_sql/connectors/formats.py by python -m rw_sql.connectors.docs: change that file. -->",
        "# FORMAT and ENCODE",
        "[Formats](../reference/formats.md) explains FORMAT and ENCODE, and how records become rows. `CREATE SOURCE` "
        "and `CREATE TABLE` refuse all pairs of FORMAT and ENCODE that are not on this page, and all options that "
        "would have no effect.",
        _table(("FORMAT", "ENCODE", "connectors"), pairs),
        "## Formats of RisingWave that rw_sql does not read",
        _table(
            ("FORMAT", "ENCODE", "instead"),
            [(format, encode, instead_of(format, encode) or "") for format, encode in NOT_HERE],
        ),
    ]
    for pair in SPECS.values():
        taken = (
            "Only `CREATE TABLE` supports this format."
            if pair.has_changes
            else "`CREATE SOURCE` and `CREATE TABLE` support this format."
        )
        blocks += [f"## FORMAT {pair.format} ENCODE {pair.encode}", f"{pair.doc} {taken}"]
        if pair.options:
            blocks.append(
                _table(
                    ("option", "value", "default", "meaning"),
                    [
                        (
                            f"`{option.key}`",
                            ", ".join(f"`{choice}`" for choice in option.choices) or "text",
                            "" if option.default is None else f"`{option.default}`",
                            option.doc,
                        )
                        for option in pair.options
                        if not option.key.startswith("_rw_")
                    ],
                )
            )
    return "\n\n".join(blocks) + "\n"


def registry_page(spec: ConnectorSpec) -> str:
    """The page of schema registries."""
    blocks = [
        f"<!-- Made from sources/{spec.name}.toml by python -m rw_sql.connectors.docs: change that file. -->",
        "# Schema registries",
        spec.doc,
        *_example(spec),
        spec.notes.strip(),
        "## Options",
        "Set options marked *connection* either in a [connection](../reference/connections.md) of this type, or in "
        "FORMAT … ENCODE … of a source or sink. Set all other options in FORMAT … ENCODE ….",
        _table(("option", "value", "default", "", "meaning"), [_row(option) for option in spec.options.values()]),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def all_pages() -> dict[str, str]:
    """Maps the file name of each page to the page's text."""
    pages = {f"{name}.md": page(connector(name).spec) for name in connector_names()}
    pages["formats.md"] = formats_page()
    pages["schema_registry.md"] = registry_page(load_spec("schema_registry"))
    return pages | {f"sink-{name}.md": sink_page(sink_connector(name).spec) for name in sink_connector_names()}


def write_pages(folder: Path) -> list[Path]:
    """Writes the pages whose text has changed, and returns their paths."""
    changed = []
    for name, text in all_pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def stale_pages(folder: Path) -> list[Path]:
    """The paths of the pages that are missing in the folder, or whose text differs from the generated text."""
    paths = [(folder / name, text) for name, text in all_pages().items()]
    return [path for path, text in paths if not path.exists() or path.read_text(encoding="utf-8") != text]


def _example(spec: ConnectorSpec) -> list[str]:
    return [f"```sql\n{spec.example.strip()}\n```"] if spec.example.strip() else []


def _default_format(format: str, encode: str) -> str:
    return f"The default is `FORMAT {format} ENCODE {encode}`."


def _row(option: OptionSpec) -> tuple[str, ...]:
    marks = [
        *(["**required**"] if option.is_required else []),
        *(["secret"] if option.is_secret else []),
        *(["safe after `?`" if option.is_address else "safe"] if option.is_alterable else []),
        *(["connection"] if option.is_of_connection else []),
        *([f"connection, as `{option.connection_key}`"] if option.connection_key else []),
    ]
    default = "" if option.default is None else f"`{option.default}`"
    return f"`{option.key}`", _values(option), default, ", ".join(marks), option.doc


def _names(spec: ConnectorSpec) -> list[str]:
    rows = [
        (f"`{option.key}`", _code(option.client), _code(java))
        for option in spec.options.values()
        if (java := option.java or (option.spark or "").removeprefix("kafka.")) or option.client
    ]
    if not any(java for _, _, java in rows):
        return []
    return [
        "## Names in the clients",
        "rw_sql uses two Kafka clients. librdkafka lists splits, checks properties and reads small batches of records. "
        "The Java client inside Spark reads large batches. The following table shows the name of each option in both "
        "clients.",
        _table(("option", "librdkafka", "Java client"), rows),
    ]


def _code(name: str | None) -> str:
    return f"`{name}`" if name else ""


def _values(option: OptionSpec) -> str:
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    kind = {"integer": "whole number"}.get(option.type, option.type)
    low, high = option.minimum, option.maximum
    if low is not None and high is not None:
        return f"{kind}, {number_text(low)} to {number_text(high)}"
    if low is not None:
        return f"{kind}, at least {number_text(low)}"
    return kind if high is None else f"{kind}, at most {number_text(high)}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main(arguments: list[str] | None = None) -> int:
    """Writes the pages. With ``--check``, only lists the stale pages. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rw_sql.connectors.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is stale")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the folder of the pages (docs/connectors)")
    given = parser.parse_args(arguments)
    if given.check:
        stale = stale_pages(given.folder)
        sys.stderr.writelines(f"{path} is stale: run python -m rw_sql.connectors.docs\n" for path in stale)
        return 1 if stale else 0
    sys.stdout.writelines(f"{path}\n" for path in write_pages(given.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
