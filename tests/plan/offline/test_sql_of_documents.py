"""The SQL in documents, examples and end-to-end tests has no errors: the check finds none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rw_sql.plan.offline.script import ScriptChecker

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
# The language's page shows single clauses. Decisions and proofs describe their own time.
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "language.md" and not {"decisions", "proof"} & set(path.relative_to(ROOT).parts)
]
SCRIPTS = sorted((ROOT / "examples").glob("*.sql"))
SLT = sorted((ROOT / "tests" / "integration" / "slt").glob("*.slt"))

_OF_ANOTHER_BLOCK = "RW203"
"""A page continues from block to block, and describes in prose the objects before the first block."""


def errors(text: str, name: str) -> list[str]:
    checker = ScriptChecker()
    checker.announce(text, name)
    return [f"{e.code} {e.render()}" for checked in checker.check(text, name) for e in checked.errors]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pages(page: Path) -> None:
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        found = [error for error in errors(block, page.name) if not error.startswith(_OF_ANOTHER_BLOCK)]
        if page.name == "write-a-connector.md":
            found = [error for error in found if 'connector "sqlite" is not supported' not in error]
        assert not found, block


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_examples(script: Path) -> None:
    assert errors(script.read_text(encoding="utf-8"), script.name) == []


@pytest.mark.parametrize("script", SLT, ids=lambda path: path.stem)
def test_end_to_end_scripts(script: Path) -> None:
    """Without the records that expect an error."""
    statements = []
    for record in re.split(r"\n\s*\n", script.read_text(encoding="utf-8")):
        lines = "\n".join(line for line in record.splitlines() if not line.startswith("#")).strip()
        found = re.match(r"(?:statement|query)\s+(?!error)[^\n]*\n(.*?)(?:\n----|\Z)", lines, re.DOTALL)
        if found is not None:
            statements.append(found[1].strip().rstrip(";").replace("${bootstrap}", "127.0.0.1:9092"))
    assert statements
    assert errors(";\n".join(statements), script.name) == []
