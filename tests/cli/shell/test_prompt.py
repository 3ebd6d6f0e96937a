"""The prompt: complete texts, the stored history, and colours."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from rw_sql.cli.shell.loop import prompt_of
from rw_sql.cli.shell.prompt import StatementHistory, is_complete, make_prompt, prompt_for, styled
from rw_sql.masking import masked
from rw_sql.plan.checks.literal_secrets import _specs

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

_RUNNERS = ("/asyncio/runners.py",)
_LIBRARIES = ("/asyncio/", "/prompt_toolkit/application/application.py", "/prompt_toolkit/patch_stdout.py")
_LINES = [*((_RUNNERS, number) for number in range(1, 46)), *((_LIBRARIES, number) for number in range(1, 320, 16))]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "SHOW SOURCES;",
        "SELECT ';' ; -- done",
        "SELECT 1; SELECT 2;",
        "exit",
        "\\q",
        "\\d orders",
        "SHOW JOBS \\watch 2",
        "\\set a it's\nSHOW SOURCES;",
        "SELECT 1;\n\\x",
    ],
)
def test_complete(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text",
    [
        "SHOW SOURCES",
        "SELECT ';",
        "SELECT 1 -- ;",
        "/* ; ",
        "SELECT $$;",
        "SELECT 1; SELECT",
        'SELECT ";',
        "\\x\nSELECT 1",
        "SELECT '\\d",
    ],
)
def test_not_complete(text: str) -> None:
    assert not is_complete(text)


def test_history_keeps_no_secret_and_is_its_users_alone(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.touch(mode=0o644)
    history = StatementHistory(file)
    history.append_string("SHOW SOURCES;")
    history.append_string("CREATE SECRET s WITH (backend = 'meta') AS 'hunter2';")
    history.append_string("CREATE SOURCE s WITH (properties.sasl.password = 'hunter2');")
    kept = file.read_text()
    assert "SHOW SOURCES;" in kept
    assert "hunter2" not in kept
    assert file.stat().st_mode & 0o777 == 0o600


def _secret_names() -> list[str]:
    """The names of all secret options of all connectors, also those under which other products know them."""
    options = [option for spec in _specs() for option in spec.options.values() if option.is_secret]
    return sorted({name for option in options for name in (option.key, *option.also)})


@pytest.mark.parametrize("name", _secret_names())
def test_history_and_errors_know_every_secret_option(tmp_path: Path, name: str) -> None:
    history = StatementHistory(tmp_path / "history")
    for text in (f"ALTER SOURCE s UNSAFE SET ({name} = 'hunter2');", f"WITH (a = 'b', {name} = E'hunter2', topc)"):
        history.append_string(text)
        assert "hunter2" not in masked(text)
    if name != "seed":  # also a name of datagen's option, which is no secret
        history.append_string(f"\\set {name.replace('.', '_')} hunter2")
    assert not (tmp_path / "history").exists() or "hunter2" not in (tmp_path / "history").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SOURCE s WITH (connector = 'rabbitmq', url = 'amqp://ann:hunter2@host:5552');",
        "CREATE TABLE t WITH (jdbc.url = 'jdbc:postgresql://host/d?user=ann&passwd=hunter2');",
    ],
)
def test_history_keeps_no_address_with_a_password(tmp_path: Path, text: str) -> None:
    StatementHistory(tmp_path / "history").append_string(text)
    assert not (tmp_path / "history").exists()


def test_enter_runs_a_complete_statement_and_begins_a_line_otherwise(tmp_path: Path) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = make_prompt(None, tmp_path / "state" / "history")
        keys.send_text("SELECT 1\nFROM range(1);\n")
        assert prompt.prompt("> ") == "SELECT 1\nFROM range(1);"
    assert (tmp_path / "state" / "history").stat().st_mode & 0o777 == 0o600


def test_a_pasted_script_is_one_text(tmp_path: Path) -> None:
    script = "SHOW SOURCES;\n\\x\nSELECT 1;"
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = make_prompt(None, tmp_path / "history")
        keys.send_text(f"\x1b[200~{script}\x1b[201~\n")
        assert prompt.prompt("> ") == script


@pytest.mark.parametrize(("files", "number"), _LINES)
def test_ctrl_c_beside_a_prompt_only_clears_it(tmp_path: Path, files: tuple[str, ...], number: int) -> None:
    """At each line of asyncio's runner, which installs a handler before it resets its count, and before keys are
    read."""
    where = _Interrupt(files, number)
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = make_prompt(None, tmp_path / "history")
        before, output = signal.getsignal(signal.SIGINT), sys.stdout
        keys.send_text("SHOW SOURCES;\n")
        sys.settrace(where.trace)
        try:
            with pytest.raises(KeyboardInterrupt):
                prompt_for(prompt, "> ")
        finally:
            sys.settrace(None)
        assert where.is_sent
        assert signal.getsignal(signal.SIGINT) is before
        assert sys.stdout is output
        keys.send_text("SHOW JOBS;\n")
        assert prompt_for(prompt, "> ") in {"SHOW SOURCES;", "SHOW JOBS;"}


class _Interrupt:
    """Sends SIGINT at one line of some files, counted from the start of the trace."""

    def __init__(self, files: tuple[str, ...], number: int) -> None:
        self._files, self._lines_left = files, number
        self.is_sent = False

    def trace(self, frame: FrameType, event: str, _argument: object) -> _Interrupt | None:
        return self if any(part in frame.f_code.co_filename for part in self._files) else None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> _Interrupt:
        self._lines_left -= event == "line"
        if not self._lines_left and not self.is_sent:
            self.is_sent = True
            signal.raise_signal(signal.SIGINT)
        return self


@pytest.mark.parametrize(("block", "prompt"), [(None, "rw_sql> "), ("open", "rw_sql*> "), ("aborted", "rw_sql!> ")])
def test_the_prompt_shows_a_block(block: str | None, prompt: str) -> None:
    assert prompt_of(block) == prompt


@pytest.mark.parametrize(
    ("text", "colours"),
    [
        ("INJECT SOURCE OFFSETS", ["keyword", "", "keyword", "", "keyword"]),
        ("select 'it''s' -- x", ["keyword", "", "string", "", "comment"]),
        ("\\watch 2\nSHOW", ["command", "", "keyword"]),
        ("SELECT 12 AS a", ["keyword", "", "number", "", "keyword", "", ""]),
    ],
)
def test_statements_are_coloured_by_their_tokens(text: str, colours: list[str]) -> None:
    pieces = styled(text)
    assert "".join(piece for _, piece in pieces) == text
    assert [style.removeprefix("class:sql.") for style, _ in pieces] == colours


@pytest.mark.parametrize("text", ["", "\\", "'", "$$ a", "/* a", "SELECT '\\'", "\\d \n\n'", "a;b;\\x\n;"])
def test_colours_lose_no_character(text: str) -> None:
    assert "".join(piece for _, piece in styled(text)) == text
