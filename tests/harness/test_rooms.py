"""The structure of the repository: each package documents its content and where to begin, and the tests have the same
folders as the package."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rw_sql"
ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
APART = {"crash", "fixtures", "harness", "integration", "notebooks", "support"}
"""Folders of tests that belong to no package."""


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_says_what_lives_there_and_where_to_begin(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    lines = [line for line in said.splitlines() if line]
    assert 2 <= len(lines) <= 9, said
    begin = re.search(r"Begin with (.*)", " ".join(said.split()))
    assert begin is not None, said
    first = re.search(r"``([\w/]+)(?:\.py)?``", begin[1])
    assert first is not None, begin[1]
    assert (room / f"{first[1]}.py").is_file(), begin[1]


def test_rooms_are_not_full() -> None:
    full = {str(room.relative_to(ROOT)): len(list(room.glob("*.py"))) for room in ROOMS}
    assert {name: number for name, number in full.items() if number > 24} == {}


def test_folders_of_tests_are_rooms() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    strange = [str(folder) for folder in folders if folder.parts and folder.parts[0] not in APART]
    assert [folder for folder in strange if not (PACKAGE / folder).is_dir()] == []


def test_the_architecture_page_shows_the_layers_that_are_enforced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    enforced = {
        container: [sorted(name.strip() for name in layer.split("|")) for layer in contract["layers"]]
        for contract in project["tool"]["importlinter"]["contracts"]
        for container in contract.get("containers", ())
    }
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    shown = {
        f"rw_sql.{package.replace('/', '.')}": [
            sorted(name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([\w/.]+)`", layer))
            for layer in layers.split(" · ")
        ]
        for package, layers in re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", page, re.MULTILINE)
        if " · " in layers
    }
    assert set(shown) >= set(enforced)
    assert {name: shown[name] for name in enforced} == enforced


PRIVATE = re.compile(
    r"\._(?:jvm|jsparkSession|jdf|jsc|jsq|jwrite|jreader|gateway|activeSession|active_spark_context)\b"
)


def test_the_private_parts_of_pyspark_are_used_in_one_place() -> None:
    """One exception is itself a DataFrame; the connectors are the others: they cannot import ``rw_sql.runtime``."""
    users = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "rw_sql").rglob("*.py")
        if PRIVATE.search(path.read_text(encoding="utf-8"))
    }
    assert users == {
        "rw_sql/runtime/spark/jvm.py",
        "rw_sql/runtime/spark/frames.py",
        "rw_sql/connectors/kafka/spark_reader.py",
        "rw_sql/connectors/support/data_sources.py",
        "rw_sql/connectors/support/local_frames.py",
        "rw_sql/connectors/support/records/range_stream.py",
    }


def test_frames_of_rows_need_no_python_on_the_executors() -> None:
    """``createDataFrame`` reads a list of rows with Python on the executors, which may have none. ``local_frame`` and
    ``empty_frame`` do not."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if ".createDataFrame(" in path.read_text(encoding="utf-8")
    }
    assert users == {
        "connectors/support/local_frames.py",
        "runtime/backfill/chunk_decoder.py",  # Only the plan of this frame is read.
        "session/connect_session.py",  # Spark Connect sends the rows to the server's JVM.
    }


def test_no_class_inherits_from_sqlglot() -> None:
    """``sqlglot[c]`` and ``sqlglot[rs]`` install compiled classes, which refuse to be the base of a class of Python."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "sqlglot" not in text:
            continue
        tree = ast.parse(text)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import)]
        theirs = {
            (name.asname or name.name).partition(".")[0]
            for node in imports
            for name in node.names
            if (node.module or "" if isinstance(node, ast.ImportFrom) else name.name).partition(".")[0] == "sqlglot"
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).partition(".")[0] for base in node.bases}
                found += [f"{path.relative_to(ROOT)}:{node.lineno}" for _ in bases & theirs]
    assert found == []


def test_a_class_of_the_jvm_is_named_whole() -> None:
    """``_jvm.org.apache.spark.X`` is five calls to the JVM, and in each Java looks for a class in every jar: several
    milliseconds, in a start of a job too. ``java_class`` and ``getattr`` take the whole name."""
    walked = re.compile(r"_jvm\.\w|\bjvm\.(org|java|scala|io|com)\b")
    found = {
        str(path.relative_to(ROOT)): walked.findall(text)
        for path in PACKAGE.rglob("*.py")
        if walked.search(text := re.sub(r'""".*?"""|``.*?``', "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    }
    assert found == {}
