"""The documents: links lead to existing places, statements parse, commands and targets exist."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import rw_sql
from rw_sql import errors
from rw_sql.cli.main import app
from rw_sql.syntax import could_be_ours, split_script

ROOT = Path(__file__).parents[2]
_LISTED = subprocess.run(["git", "ls-files", "*.md", "*.sql"], cwd=ROOT, capture_output=True, text=True, check=True)
DOCUMENTS = sorted(ROOT / name for name in _LISTED.stdout.split() if name.endswith(".md"))
# The reference is generated from the grammar, whose own tests parse its examples; it also shows single clauses.
PROSE = [path for path in DOCUMENTS if path != ROOT / "docs" / "reference" / "language.md"]
SCRIPTS = sorted((ROOT / "examples").glob("*.sql"))

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SQL_BLOCK = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)


HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FOLDERS = (
    "rw_sql|cli|connectors|magics|metastore|model|plan|runtime|session|syntax|positions|support|"
    "bench|catalog|docs|examples|grammar|notebooks|ops|proof|requirements|sources|tests"
)
PATH = re.compile(rf"`((?:{FOLDERS})/[a-z0-9_/]*(?:[a-z0-9_]\.[a-z.]+|/|(?<=/)))`")
"""A file or, ending in a slash, a folder between backquotes."""

SEARCHED = (ROOT, ROOT / "rw_sql", ROOT / "rw_sql" / "runtime", ROOT / "rw_sql" / "connectors")
PYTHON = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
)
# Decisions and the changelog describe the state at the time of writing.
CURRENT = [path for path in DOCUMENTS if "decisions" not in path.parts and path.name != "CHANGELOG.md"]
CATALOG = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "catalog").glob("*.sql")))


@cache
def variables() -> set[str]:
    """The environment variables that the code reads. Not a constant, because every worker imports this module, and one
    worker runs its tests."""
    texts = (path.read_text(encoding="utf-8") for path in PYTHON)
    return {found for text in texts for found in re.findall(r"\bRW_SQL_[A-Z_]*[A-Z]\b", text)}


def anchors(text: str) -> set[str]:
    """The anchor of a heading on GitHub."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text)}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:|#", target):
            path, _, anchor = target.partition("#")
            assert (document.parent / path).exists(), f"{name(document)} links to {target}"
            if anchor and not path.endswith(".png"):  # a picture's anchor names the theme that it is for
                there = anchors((document.parent / path).read_text(encoding="utf-8"))
                assert anchor in there, f"{name(document)} links to {target}"


def missing_paths(text: str) -> set[str]:
    """The paths of the repository that a text names between backquotes but that do not exist."""
    return {path for path in PATH.findall(text) if not any((folder / path).exists() for folder in SEARCHED)}


def test_the_search_for_paths_finds_them() -> None:
    wrong = "`rw_sql/plan/no.py`, `tests/nowhere/`, `catalog/0001_no.sql`, ``runtime/views/gone.py``"
    assert len(missing_paths(wrong)) == 4
    assert (
        missing_paths("`rw_sql/plan/lower.py`, `ops/`, `catalog/NNNN_*.sql`, `sources/<name>.toml`, `sources/0/0`")
        == set()
    )


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=name)
def test_paths_that_are_named_exist(document: Path) -> None:
    assert missing_paths(document.read_text(encoding="utf-8")) == set()


def test_paths_that_python_files_name_exist() -> None:
    own = Path(__file__)
    found = {name(path): missing_paths(path.read_text(encoding="utf-8")) for path in PYTHON if path != own}
    assert {file: paths for file, paths in found.items() if paths} == {}


@pytest.mark.parametrize("document", CURRENT, ids=name)
def test_make_targets_modules_and_variables_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) <= targets
    for module in re.findall(r"python -m ((?:rw_sql|bench|proof|tests)[.\w]*)", text):
        path = ROOT / module.rstrip(".").replace(".", "/")
        assert path.with_suffix(".py").exists() or path.is_dir(), f"{name(document)} runs {module}"
    assert set(re.findall(r"\bRW_SQL_[A-Z_]*[A-Z]\b", text)) <= variables()


@pytest.mark.parametrize("document", CURRENT, ids=name)
def test_codes_and_views_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, errors.ErrorCode)}
    assert set(re.findall(r"\bRW\d{3}\b", text)) <= codes
    views = set(re.findall(r"CREATE VIEW rw_catalog\.(\w+)", CATALOG))
    assert set(re.findall(r"\brw_catalog\.(rw_\w+)", text)) <= views


def test_the_catalogs_page_names_every_table_and_view() -> None:
    page = (ROOT / "docs" / "reference" / "catalog.md").read_text(encoding="utf-8")
    views = set(re.findall(r"CREATE VIEW rw_catalog\.(\w+)", CATALOG))
    assert {found for found in views if f"| `{found}` |" not in page} == set()
    tables = set(re.findall(r"CREATE TABLE rw_catalog\.(\w+)", CATALOG))
    assert {found for found in tables if f"\n## {found}\n" not in page} == set()


def test_every_decision_and_proof_is_on_its_folders_page() -> None:
    for folder in ("decisions", "proof"):
        listed = (ROOT / "docs" / folder / "README.md").read_text(encoding="utf-8")
        pages = {path.name for path in (ROOT / "docs" / folder).glob("*.md")} - {"README.md"}
        assert {page for page in pages if f"]({page})" not in listed} == set()


@pytest.mark.parametrize("document", [*PROSE, *SCRIPTS], ids=name)
def test_statements_parse(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for script in [text] if document.suffix == ".sql" else SQL_BLOCK.findall(text):
        for statement in split_script(script):
            if could_be_ours(statement.text):
                rw_sql.parse(statement.text)


@cache
def _root_command() -> Any:
    return get_command(app)


@pytest.mark.parametrize("document", CURRENT, ids=name)
def test_commands_and_their_options_exist(document: Path) -> None:
    root = _root_command()
    for line in re.findall(r"\brw-sql ([a-z][^\n`|]*)", document.read_text(encoding="utf-8")):
        command: Any = root
        words = line.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert command is not root, f"rw-sql {line}"
        options = {option for found in command.params for option in found.opts}
        given = {word.strip("[]().,;:").partition("=")[0] for word in words if word.startswith(("--", "[--"))}
        assert command.name == "pyspark" or given <= options, f"rw-sql {line}"


def test_where_to_change_what_names_what_is_there() -> None:
    """Each name in a row of CONTRIBUTING's table occurs in a file that the row names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("### Where to change what")[2].partition("\n\n**")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for row in rows:
        named = re.findall(r"`([^`]+)`", row)
        files = [ROOT / name for name in named if "/" in name and (ROOT / name).is_file()]
        files += [file for name in named if name.endswith("/") for file in (ROOT / name).glob("*.sql")]
        known = "\n".join(file.read_text(encoding="utf-8") for file in files)
        names = [name for name in named if re.fullmatch(r"_?[A-Za-z][A-Za-z_.]*[A-Za-z]", name) and "/" not in name]
        words = [name.rpartition(".")[2] for name in names if not name.endswith((".json", ".py"))]
        assert [word for word in words if word not in known] == [], row
