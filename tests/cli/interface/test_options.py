"""All commands: one name for one meaning, old names, examples, help, exit statuses, completion."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from rw_sql import errors
from rw_sql.cli.interface.examples import EXAMPLES
from rw_sql.cli.interface.exit_codes import MEANINGS, exit_status
from rw_sql.cli.main import app
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def commands(path: str = "", command: Any = None) -> Iterator[tuple[str, Any]]:
    command = command or get_command(app)
    nested = getattr(command, "commands", None)
    if nested is None:
        yield path, command
        return
    for name, found in nested.items():
        yield from commands(f"{path} {name}".strip(), found)


COMMANDS = dict(commands())
SILENT = {"shell", "serve", "pyspark", "export-catalog"}
"""Commands that print no result of their own: a shell, a server with its log, a file."""


def options(path: str) -> dict[str, Any]:
    return {param.opts[0]: param for param in COMMANDS[path].params if param.param_type_name == "option"}


def test_offsets_are_set_by_the_same_options() -> None:
    source, checkpoint = options("source inject-offsets"), options("checkpoint set-offsets")
    alike = [flag for flag in source if flag in checkpoint]
    assert len(alike) >= 17
    for flag in alike:
        for attribute in ("opts", "metavar", "help", "default", "multiple"):
            mine, others = getattr(source[flag], attribute), getattr(checkpoint[flag], attribute)
            assert mine == others, (flag, attribute)
    own = {flag for flag, found in source.items() if flag not in checkpoint and not found.hidden}
    assert own == {"--source", "--from-source", "--confirm", "--warehouse"}
    own = {flag for flag, found in checkpoint.items() if flag not in source}
    # How to reach the upstream, and that nothing else runs: a warehouse knows both.
    assert own == {"--bootstrap", "--property", "--secret", "--table", "--exactly", "--watch", "--assume-stopped"}


def test_an_option_means_the_same_everywhere() -> None:
    seen: dict[str, dict[str, set[Any]]] = {}
    for path in COMMANDS:
        for flag, found in options(path).items():
            if not found.hidden:
                seen.setdefault(flag, {}).setdefault("opts", set()).add(tuple(found.opts))
                seen[flag].setdefault("env", set()).add(found.envvar)
    for flag, facts in seen.items():
        if flag == "--set":
            continue
        assert len(facts["opts"]) == 1, (flag, facts)
    assert seen["--warehouse"]["opts"] == {("--warehouse", "-w")}
    # check reads no catalog unless it is named.
    assert seen["--warehouse"]["env"] == {"RW_SQL_WAREHOUSE", None}
    assert [
        path for path in COMMANDS if "--warehouse" in options(path) and not options(path)["--warehouse"].envvar
    ] == ["check"]


def test_results_are_printed_in_the_form_of_output() -> None:
    for path in COMMANDS:
        if path not in SILENT:
            assert options(path)["--output"].opts == ["--output", "-o"], path
            assert "json" in options(path)["--output"].metavar or "export" in path, path


def test_every_command_has_examples_that_parse() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    for path, examples in EXAMPLES.items():
        for example in examples:
            words = shlex.split(example)
            assert words[: 1 + len(path.split())] == ["rw-sql", *path.split()]
            context = COMMANDS[path].make_context(path, words[1 + len(path.split()) :])
            if path != "pyspark":
                assert not context.args, example


@pytest.mark.parametrize("path", [path for path in COMMANDS if path != "pyspark"])
def test_help(path: str) -> None:
    told = CliRunner().invoke(app, [*path.split(), "-h"], env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert EXAMPLES[path][0] in " ".join(told.stdout.split())
    assert told.stdout == CliRunner().invoke(app, [*path.split(), "--help"], env={"COLUMNS": "200"}).stdout


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (["--group", "g"], ["--from-group", "g"]),
        (["--checkpoint", "/c"], ["--from-checkpoint", "/c"]),
        (["--to", "earliest"], ["--to-earliest"]),
        (["--to", "LATEST"], ["--to-latest"]),
        (["--shift", "-5"], ["--shift-by", "-5"]),
        (["--to-latest", "--convention", "last_seen"], ["--to-latest", "--last-seen"]),
        (["--to-latest", "--skip-validate"], ["--to-latest", "--no-validate"]),
        (["--to-latest", "--allow", "gaps,clamp"], ["--to-latest", "--allow", "gaps", "--allow", "clamp"]),
    ],
)
def test_an_old_name_leads_to_the_new_one(words: list[str], new: list[str]) -> None:
    command = ["source", "inject-offsets", "-s", "s", "--show-sql"]
    old_result, new_result = CliRunner().invoke(app, [*command, *words]), CliRunner().invoke(app, [*command, *new])
    assert (old_result.exit_code, new_result.exit_code, new_result.stderr) == (0, 0, "")
    assert old_result.stdout == new_result.stdout
    old = next((word for word in reversed(words) if word.startswith("--")), "")
    if old != "--allow":
        assert old_result.stderr.startswith(f"{old} is now --")


def test_an_old_name_and_the_new_one_are_two_targets() -> None:
    told = CliRunner().invoke(app, ["source", "inject-offsets", "-s", "s", "--shift", "1", "--shift-by", "2"])
    assert isinstance(told.exception, SqlError)
    assert "exactly one place" in told.exception.message


def test_old_forms_still_work(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("FLUSH;")
    told = CliRunner().invoke(app, ["check", str(script), "--format", "json"])
    assert (told.exit_code, told.stderr) == (0, "--format is now --output\n")
    for words, flag in ((["lineage"], "--format"), (["diff", "f"], "--format"), (["diff", "f"], "--out")):
        assert "old name" in options(words[0])[flag].help
        assert options(words[0])[flag].hidden


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (errors.SYNTAX_ERROR, 1),
        (errors.UNDEFINED_OBJECT, 1),
        (errors.INVALID_OPTION, 2),
        (errors.FILE_UNREADABLE, 2),
        (errors.PACKAGE_MISSING, 2),
        (errors.CONFIRMATION_NEEDED, 3),
        (errors.UNSAFE_OPERATIONS_OFF, 3),
        (errors.UPSTREAM_UNREACHABLE, 4),
        (errors.NOT_APPLIED_YET, 4),
    ],
)
def test_exit_statuses(code: errors.ErrorCode, status: int) -> None:
    assert exit_status(SqlError(code, "it failed")) == status
    assert status in MEANINGS


@pytest.mark.long
def test_the_statuses_of_processes(tmp_path: Path) -> None:
    program = "from rw_sql.cli.main import app; app()"
    for words, status in (
        (["source", "list", "-o", "xml"], 2),
        (["nothing"], 2),
        (["source", "list", "-w", str(tmp_path / "none")], 1),
        (["diff", str(tmp_path / "none"), "--exit-code"], 1),
        (["diff", str(tmp_path / "none")], 2),
    ):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == status, (words, done.stderr)


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish")])
def test_completion_is_installed(shell: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for words, name in ((["--install-completion", shell], "/bin/sh"), (["--install-completion"], f"/usr/bin/{shell}")):
        monkeypatch.setenv("SHELL", name)
        told = CliRunner().invoke(app, words)
        assert told.exit_code == 0, told.output
        assert told.stdout.startswith(f"completion for {shell} is in ")
        assert (tmp_path / file).exists()
    assert "_RW_SQL_COMPLETE=complete_" + shell in CliRunner().invoke(app, ["--show-completion", shell]).stdout


def test_a_shell_without_completion_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    for words in (["--install-completion", "tcsh"], ["--show-completion"]):
        told = CliRunner().invoke(app, words)
        assert isinstance(told.exception, SqlError) or told.exit_code == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rw-sql che", {"check", "checkpoint"}),
        ("rw-sql source inject-offsets --to", {"--to-earliest", "--to-latest", "--to-offset", "--to-timestamp"}),
        ("rw-sql lineage -o ", {"text", "mermaid", "json", "svg"}),
        ("rw-sql source inject-offsets --allow gaps,d", {"gaps,duplicates"}),
    ],
)
def test_words_are_completed_by_the_parser(line: str, expected: set[str]) -> None:
    words = line.split(" ")
    environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_RW_SQL_COMPLETE": "complete_bash"}
    program = "from rw_sql.cli.main import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment | {"PATH": ""}
    )
    assert set(done.stdout.split()) == expected, done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("source show orders", "source show -s orders"),
        ("source show orders json", "source show -s orders -o json"),
        ("source pause -w w orders --reason 'a b'", "source pause -w w -s orders --reason 'a b'"),
        ("source resume 'my orders'", "source resume -s 'my orders'"),
        ("source alter orders topic=b --dry-run", "source alter -s orders --set topic=b --dry-run"),
        ("source reset-splits orders orders:3", "source reset-splits -s orders --split orders:3"),
        (
            "source inject-offsets orders orders:0=4 orders:1=5 --yes",
            "source inject-offsets -s orders --set orders:0=4 --set orders:1=5 --yes",
        ),
        ("source export-offsets orders csv", "source export-offsets -s orders -o csv"),
        ("source undo 12", "source undo --operation 12"),
        ("source continuity orders", "source continuity -s orders"),
        ("source list 'ord*'", "source list --like 'ord*'"),
        ("lineage totals -o svg", "lineage --of totals -o svg"),
        ("checkpoint set-offsets /jobs/a a:0=5", "checkpoint set-offsets /jobs/a --set a:0=5"),
        ("status /srv/rw", "status -w /srv/rw"),
        ("status s3://lake/rw json", "status -w s3://lake/rw -o json"),
        ("doctor ./rw", "doctor -w ./rw"),
        ("serve /srv/rw", "serve -w /srv/rw"),
        ("takeover /srv/rw nightly", "takeover -w /srv/rw --resource-group nightly"),
        ("export-catalog catalog.json", "export-catalog -f catalog.json"),
        ("shell report.sql", "shell -f report.sql"),
        ("shell 'SHOW JOBS'", "shell -c 'SHOW JOBS'"),
        ("dev kafka start 9092", "dev kafka start -p 9092"),
        ("dev kafka topics orders", "dev kafka topics --create orders"),
    ],
)
def test_a_word_without_its_option(typed: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["rw-sql", *shlex.split(typed)])
    found = CliRunner().invoke(app, shlex.split(typed), prog_name="rw-sql")
    assert isinstance(found.exception, SqlError), found.output
    assert found.exception.hint == f"rw-sql {meant}"
    assert exit_status(found.exception) == 2
    # The hint is a command line that the options accept.
    path = next(path for path in COMMANDS if meant.startswith(f"{path} "))
    COMMANDS[path].make_context(path, shlex.split(meant.removeprefix(path)), resilient_parsing=True)


@pytest.mark.parametrize("typed", ["source show", "status --watch 3", "source shw orders", "source show orders a b"])
def test_words_whose_option_is_not_clear(typed: str) -> None:
    assert CliRunner().invoke(app, shlex.split(typed), prog_name="rw-sql").exit_code == 2


def test_every_command_that_takes_a_source_finds_its_name() -> None:
    for path, command in COMMANDS.items():
        if "--source" in options(path):
            found = CliRunner().invoke(app, [*path.split(), "orders"], prog_name="rw-sql")
            assert isinstance(found.exception, SqlError), path
            assert found.exception.hint == f"rw-sql {path} -s orders"
            assert command.params
