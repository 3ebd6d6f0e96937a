"""The connectors' pages match their specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.checking.check import check_script
from rw_sql.connectors.docs import main, page, stale_pages
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.connectors.spec import find_option_errors
from rw_sql.errors import UNDEFINED_OBJECT
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSink, CreateSource, CreateTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.connectors.spec import ConnectorSpec

PAGES = Path(__file__).parents[2] / "docs" / "connectors"


def test_pages_are_up_to_date() -> None:
    assert stale_pages(PAGES) == []


@pytest.mark.parametrize("name", connector_names())
def test_every_option_is_on_its_page_with_its_meaning(name: str) -> None:
    lines = page(connector(name).spec).splitlines()
    for option in connector(name).spec.options.values():
        line, *_ = _starting(lines, f"| `{option.key}` |")
        assert option.doc.replace("|", "\\|") in line
        assert ("secret" in line.split("|")[4]) is option.is_secret


@pytest.mark.parametrize(
    "spec",
    [
        *(connector(name).spec for name in connector_names()),
        *(sink_connector(name).spec for name in sink_connector_names()),
    ],
    ids=lambda spec: spec.name,
)
def test_a_page_s_example_is_right(spec: ConnectorSpec) -> None:
    checked = list(check_script(spec.example, spec.name))
    assert checked
    # A sink's page does not create the view that the sink reads.
    errors = [found.error for found in checked if found.error is not None]
    assert [error for error in errors if error.kind is not UNDEFINED_OBJECT] == []
    statements = [parse_statement(text) for text in spec.example.split(";") if text.strip()]
    options = [
        {
            option.key: getattr(option.value, "text", "x")
            for option in statement.options
            if option.key not in ("connector", "refresh_mode")
        }
        for statement in statements
        if isinstance(statement, CreateSource | CreateSink | CreateTable)
    ]
    assert len(options) == 1
    assert find_option_errors(spec, options[0]) == ()


def test_a_stale_page_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--folder", str(tmp_path)]) == 0
    assert main(["--folder", str(tmp_path), "--check"]) == 0
    (tmp_path / "kafka.md").write_text("old")
    assert main(["--folder", str(tmp_path), "--check"]) == 1
    assert "kafka.md is stale" in capsys.readouterr().err


def _starting(lines: list[str], begin: str) -> Iterator[str]:
    return (line for line in lines if line.startswith(begin))
