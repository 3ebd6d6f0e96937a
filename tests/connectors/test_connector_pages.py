"""The connectors' pages say what their specs say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.pages import main, page, stale_pages
from rw_sql.connectors.registry import connector, connector_names

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = Path(__file__).parents[2] / "docs" / "connectors"


def test_pages_are_up_to_date() -> None:
    assert stale_pages(PAGES) == []


@pytest.mark.parametrize("name", connector_names())
def test_every_option_stands_on_its_page_with_its_meaning(name: str) -> None:
    lines = page(connector(name).spec).splitlines()
    for option in connector(name).spec.options.values():
        line, *_ = _starting(lines, f"| `{option.key}` |")
        assert option.doc.replace("|", "\\|") in line
        assert ("secret" in line.split("|")[4]) is option.is_secret


def test_a_stale_page_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--folder", str(tmp_path)]) == 0
    assert main(["--folder", str(tmp_path), "--check"]) == 0
    (tmp_path / "kafka.md").write_text("old")
    assert main(["--folder", str(tmp_path), "--check"]) == 1
    assert "kafka.md is stale" in capsys.readouterr().err


def _starting(lines: list[str], begin: str) -> Iterator[str]:
    return (line for line in lines if line.startswith(begin))
