"""The shell's parts that need no Spark: when a text is complete, what is completed, what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from rw_sql.cli.shell import StatementCompleter, StatementHistory, is_complete, make_prompt, prompt_of


@pytest.mark.parametrize(
    "text", ["", "  \n", "SHOW SOURCES;", "SELECT ';' ; -- done", "SELECT 1; SELECT 2;", "exit", "\\q"]
)
def test_complete(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text", ["SHOW SOURCES", "SELECT ';", "SELECT 1 -- ;", "/* ; ", "SELECT $$;", "SELECT 1; SELECT", 'SELECT ";']
)
def test_not_complete(text: str) -> None:
    assert not is_complete(text)


def completions(completer: StatementCompleter, text: str) -> list[str]:
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]


def test_names_and_keywords_are_completed() -> None:
    completer = StatementCompleter(lambda: ["orders", "orders_by_day", "flights"])
    assert completions(completer, "pause so") == ["SOURCE", "SOURCES"]
    assert completions(completer, "PAUSE SOURCE or") == ["orders", "orders_by_day", "ORDER"]
    assert completions(completer, "PAUSE SOURCE ") == []


def test_names_are_asked_for_again_when_they_are_old() -> None:
    names: list[str] = []
    completer = StatementCompleter(lambda: names, seconds_to_keep=0.0)
    assert completions(completer, "fl") == ["FLUSH"]
    names.append("flights")
    assert completions(completer, "fl") == ["flights", "FLUSH"]


def test_names_are_not_asked_for_at_every_key() -> None:
    asked: list[int] = []

    def names() -> list[str]:
        asked.append(1)
        return ["a"]

    completer = StatementCompleter(names, seconds_to_keep=60.0)
    for text in ("s", "so", "sou"):
        completions(completer, text)
    assert len(asked) == 1


def test_history_keeps_no_secret(tmp_path: Path) -> None:
    history = StatementHistory(tmp_path / "history")
    history.append_string("SHOW SOURCES;")
    history.append_string("CREATE SECRET s WITH (backend = 'meta') AS 'hunter2';")
    history.append_string("CREATE SOURCE s WITH (properties.sasl.password = 'hunter2');")
    kept = (tmp_path / "history").read_text()
    assert "SHOW SOURCES;" in kept
    assert "hunter2" not in kept


def test_enter_runs_a_complete_statement_and_begins_a_line_otherwise(tmp_path: Path) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = make_prompt(list, tmp_path / "state" / "history")
        keys.send_text("SELECT 1\nFROM range(1);\n")
        assert prompt.prompt("> ") == "SELECT 1\nFROM range(1);"


@pytest.mark.parametrize(("block", "prompt"), [(None, "rw_sql> "), ("open", "rw_sql*> "), ("aborted", "rw_sql!> ")])
def test_the_prompt_tells_of_a_block(block: str | None, prompt: str) -> None:
    assert prompt_of(block) == prompt
