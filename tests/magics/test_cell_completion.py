"""Tab in ``%%rw`` cells and on ``%rw`` lines, and the colours of cells in a terminal's IPython."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from prompt_toolkit.document import Document

import rw_sql
from rw_sql.magics.completion import statement_at
from rw_sql.magics.highlighting import CellLexer, add_lexer

backend = importlib.import_module("rw_sql.cli.shell.backend")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(backend.CatalogNames, "objects", lambda _: {"orders": "source", "totals": "materialized_view"})
    monkeypatch.setattr(backend.CatalogNames, "columns", lambda _, relation: ("amount", "id") * (relation == "orders"))
    shell: Any = InteractiveShell.instance()
    rw_sql.load_ipython_extension(shell)
    rw_sql.load_ipython_extension(shell)  # Loading it twice completes once.
    return shell


def completed(shell: Any, text: str) -> dict[str, str]:
    """What Tab offers at the bar, and the text that each offer makes of what is before it."""
    before, _, after = text.partition("|")
    with provisionalcompleter():
        found = list(shell.Completer.completions(before + after, len(before)))
    return {offer.text: before[: offer.start] + offer.text for offer in found}


@pytest.mark.parametrize(
    ("text", "offered", "whole"),
    [
        ("%%rw\nPAUSE SOU|", "SOURCE", "%%rw\nPAUSE SOURCE"),
        ("%%rw --yes\nSHOW JOBS;\nPAUSE SOURCE or|;\nFLUSH", "orders", "%%rw --yes\nSHOW JOBS;\nPAUSE SOURCE orders"),
        ("%%rw totals <<\nSELECT am| FROM orders", "amount", "%%rw totals <<\nSELECT amount"),
        ("%%rw\nCREATE SOURCE s (a INT) WITH (connector = 'ka|", "kafka'", None),
        ("%rw SHOW CREATE MATERIALIZED VIEW to|", "totals", "%rw SHOW CREATE MATERIALIZED VIEW totals"),
        ("x = 1\nfound = %rw SELECT id FROM ord|", "orders", "x = 1\nfound = %rw SELECT id FROM orders"),
        ("%%rw --y|", "--yes", "%%rw --yes"),
        ("%%rw\nselect amo| from orders", "amount", "%%rw\nselect amount"),
    ],
)
def test_statements_are_completed(shell: Any, text: str, offered: str, whole: str | None) -> None:
    found = completed(shell, text)
    assert offered in found
    if whole is not None:
        assert found[offered] == whole
    assert "import" not in found


@pytest.mark.parametrize("text", ["impor|", "x = 'SOU|", "%%time\nimpor|"])
def test_python_is_left_alone(shell: Any, text: str) -> None:
    assert "SOURCE" not in completed(shell, text)
    if "impor" in text:
        assert "import" in completed(shell, text)


def test_places() -> None:
    assert statement_at("%%rw\nFLUSH", 7) == ("FLUSH", 2)
    assert statement_at("%%rw\nFLUSH", 3) is None
    assert statement_at("%rw x << SHOW JOBS", 13) == ("SHOW JOBS", 4)
    assert statement_at("%%rwx\nFLUSH", 8) is None


def test_a_cell_has_colours() -> None:
    line = CellLexer().lex_document(Document("%%rw\nSELECT 'a' -- b\nFROM t"))
    assert [line(0), line(1)[0], line(2)[0]] == [
        [("class:pygments.operator", "%%rw")],
        ("class:pygments.keyword", "SELECT"),
        ("class:pygments.keyword", "FROM"),
    ]
    assert {piece[0] for piece in line(1) if piece[0]} >= {"class:pygments.literal.string", "class:pygments.comment"}
    assert "".join(piece[1] for piece in line(1)) == "SELECT 'a' -- b"


def test_the_colours_are_those_of_a_terminals_ipython() -> None:
    from IPython.terminal.ptutils import IPythonPTLexer

    shell: Any = type("Shell", (), {})()
    add_lexer(shell)  # A kernel has no prompt.
    shell.pt_app = type("Prompt", (), {"lexer": IPythonPTLexer()})()
    add_lexer(shell)
    line = shell.pt_app.lexer.lex_document(Document("%%rw\nPAUSE SOURCE s"))
    assert line(1)[0] == ("class:pygments.keyword", "PAUSE")
