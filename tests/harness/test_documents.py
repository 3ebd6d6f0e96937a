"""What the documents promise: links lead somewhere, statements parse, commands and targets exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import rw_sql
from rw_sql.cli.main import app
from rw_sql.syntax import could_be_ours, split_script

ROOT = Path(__file__).parents[2]
_LISTED = subprocess.run(["git", "ls-files", "*.md", "*.sql"], cwd=ROOT, capture_output=True, text=True, check=True)
DOCUMENTS = sorted(ROOT / name for name in _LISTED.stdout.split() if name.endswith(".md"))
# The reference is made from the grammar, whose own tests parse its examples; clauses stand there by themselves.
PROSE = [path for path in DOCUMENTS if "reference" not in path.parts]
SCRIPTS = sorted((ROOT / "examples").glob("*.sql"))

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SQL_BLOCK = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:|#", target):
            assert (document.parent / target.split("#")[0]).exists(), f"{name(document)} links to {target}"


@pytest.mark.parametrize("document", [*PROSE, *SCRIPTS], ids=name)
def test_statements_parse(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for script in [text] if document.suffix == ".sql" else SQL_BLOCK.findall(text):
        for statement in split_script(script):
            if could_be_ours(statement.text):
                rw_sql.parse(statement.text)


def test_readme_names_targets_and_commands_that_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)", readme, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {group.name for group in app.registered_groups if group.name}
    for command in re.findall(r"\brw-sql ([a-z]+)", readme):
        assert command in known, f"rw-sql {command}"
