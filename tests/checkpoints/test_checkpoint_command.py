"""``rw-sql checkpoint`` on handwritten checkpoints: its output, questions and refusals. No Spark, no broker."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.errors import SqlError
from rw_sql.model.offset_files import read_offsets
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import InjectCheckpointOffsets
from tests.checkpoints.made import delta, files, kafka, list_files, make_checkpoint, make_table, plan_batch, tree
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MOVE = ("--assume-stopped", "--yes", "--watch", "10ms")


def run(*arguments: object) -> str:
    """The output of the command. Raises the command's error."""
    done = CliRunner().invoke(app, ["checkpoint", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: object) -> SqlError:
    with pytest.raises(SqlError) as caught:
        run(*arguments)
    return caught.value


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A count over two partitions of one topic."""
    batches = ([kafka(words=[3, 2])], [kafka(words=[12, 9])])
    return make_checkpoint(tmp_path / "words", *batches, operators=["stateStoreSave"], watermark_ms=1_700_000_000_000)


@pytest.fixture
def in_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of this process is not UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_kolkata")
def test_show(job: Path) -> None:
    told = run("show", job)
    assert "batch 1 committed, offset log v1" in told
    assert "keeps the state of: aggregation" in told
    assert "watermark: 2023-11-14 22:13:20.000+00:00" in told
    assert "| words:0 |   12 |" in told
    plan_batch(job, 2, [kafka(words=[13, 9])])
    assert "batch 1 committed, batch 2 planned and not committed" in run("show", job)


def test_show_as_json(job: Path) -> None:
    told = json.loads(run("show", job, "--output", "json"))
    assert (told["batch"], told["planned"], told["watermark_ms"], told["state"]) == (
        1,
        1,
        1_700_000_000_000,
        ["aggregation"],
    )
    assert [(split["split"], split["next"]) for split in told["splits"]] == [("words:0", 12), ("words:1", 9)]


@pytest.mark.parametrize("form", ["map", "spark", "connect", "csv", "rpk"])
def test_what_is_exported_can_be_set(job: Path, tmp_path: Path, form: str) -> None:
    text = run("export", job, "--output", form)
    assert {entry.split: entry.state for entry in read_offsets(text, "out").entries} == {
        "words:0": "12",
        "words:1": "9",
    }
    file = tmp_path / "offsets"
    run("export", job, "--output", form, "--file", file)
    assert file.read_text(encoding="utf-8") == text
    run("set-offsets", job, "--to-offset", 1, "--allow", "duplicates", *MOVE)
    told = json.loads(run("set-offsets", job, "--file", file, "--allow", "gaps", "--output", "json", *MOVE))
    assert {split["split"]: split["new"] for split in told["splits"]} == {"words:0": 12, "words:1": 9}


def test_only_a_map_holds_a_version(tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path / "c", [delta(4)])
    assert json.loads(run("export", made)) == {"version": 4}
    assert "use --output map, which can hold every position" in str(refused("export", made, "--output", "spark"))


def test_move_show_and_undo(job: Path) -> None:
    before = tree(job)
    told = run("set-offsets", job, "--set", "words:0=5", "--allow", "duplicates", "--reason", "bad release", *MOVE)
    assert "INJECTED | words:0 at 5 (was 12)" in told
    assert "KEPT     | not named, position kept: words:1" in told
    assert f"To undo it: rw-sql checkpoint undo {job}" in told
    (rewritten,) = json.loads(run("show", job, "--output", "json"))["rewrites"]
    assert (rewritten["operation"], rewritten["state"], rewritten["batch"]) == (1, "done", 1)
    assert "bad release" in (job / "_rw_sql" / "000001.json").read_text(encoding="utf-8")
    told = run("undo", job, "--dry-run")
    assert "Nothing was changed" in told
    told = run("undo", job, *MOVE)
    assert "RESTORED | words:0 at 12 (was 5)" in told
    assert "To undo it" not in told
    assert tree(job) == before


def test_dry_run_changes_nothing(job: Path) -> None:
    before = tree(job)
    assert "Nothing was changed: --dry-run." in run("set-offsets", job, "--shift-by", -3, "--dry-run")
    told = json.loads(run("set-offsets", job, "--shift-by", -3, "--dry-run", "--output", "json"))
    assert not told["is_done"]
    assert [split["verdict"] for split in told["splits"]] == [
        "DUPLICATES at most 3 (no properties.bootstrap.server)"
    ] * 2
    assert tree(job) == before
    assert not (job / "_rw_sql").exists()


def test_each_command_is_a_statement(job: Path) -> None:
    text = run(
        *("set-offsets", job, "--set", "words:0=5", "--set", "words:1=null", "--allow", "gaps,clamp", "--last-seen"),
        *("--bootstrap", "b:9092", "--property", "security.protocol=sasl_ssl", "--secret", "sasl.password=KAFKA_PASS"),
        *("--table", "/lake/t", "--exactly", "--watch", "1min", "--reason", "it's late", "--assume-stopped"),
        "--show-sql",
    )
    statement = parse_statement(text.rstrip().removesuffix(";"))
    assert isinstance(statement, InjectCheckpointOffsets)
    assert statement.path == str(job)
    assert (statement.allow, statement.convention, statement.tables) == (("GAPS", "CLAMP"), "last_seen", ("/lake/t",))
    assert (statement.is_exactly, statement.is_assumed_stopped, statement.watch) == (True, True, "1min")
    assert statement.reason == "it's late"
    assert [option.key for option in statement.options] == [
        "properties.bootstrap.server",
        "properties.security.protocol",
        "properties.sasl.password",
    ]
    shown = run("show", job, "--bootstrap", "b:9092", "--show-sql")
    assert parse_statement(shown.rstrip().removesuffix(";"))


def test_a_file_source_in_named_sources(tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path / "c", [kafka(a=[1]), files(0)], names=["clicks", "arrivals"])
    (tmp_path / "0.json").write_text("{}", encoding="utf-8")
    list_files(made, 0, tmp_path / "0.json", source="arrivals")
    run("set-offsets", made, "--to-earliest", "--split", "list", "--allow", "duplicates", *MOVE)
    assert (made / "offsets" / "0").read_text(encoding="utf-8").splitlines()[2:] == [
        f"clicks:{kafka(a=[1])}",
        "arrivals:-",
    ]
    assert "| list" in run("show", made)


def test_a_delta_source(tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path / "c", [delta(3)])
    table = make_table(tmp_path / "t", 1, 2, 4)
    told = json.loads(run("set-offsets", made, "--set", "version=1", "--table", table, "--dry-run", "--output", "json"))
    assert told["splits"] == [{"split": "version", "old": 3, "new": 1, "verdict": "DUPLICATES 6"}]


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "exactly one option must give the new positions, found none"),
        (("--to-latest", "--shift-by", "1"), "found: --to-latest, --shift-by"),
        (("--set", "words:0"), "--set takes SPLIT=N"),
        (("--set", "words:0=²"), "is neither a number nor JSON"),
        (("--to-latest", "--property", "x"), "--property takes KEY=VALUE"),
        (("--to-latest", "--allow", "all"), "--allow takes gaps, duplicates and clamp"),
        (("--to-latest", "--output", "yaml"), "--output must be text, json, mermaid or svg"),
        (("--to-latest", "--watch", "soon"), "WATCH must be a time"),
        (("--set", "words:0=5"), "cannot ask whether the job is stopped, because this session is not interactive"),
        (
            ("--set", "words:0=5", "--yes"),
            "cannot ask whether the job is stopped, because this session is not interactive",
        ),
        (
            ("--set", "words:0=5", "--assume-stopped"),
            "to do what is shown above, add --yes --allow duplicates --assume-stopped",
        ),
        (("--set", "words:0=5", "--assume-stopped", "--yes"), "--yes --allow duplicates --assume-stopped"),
        (("--set", "words:0=15", "--assume-stopped", "--yes", "--allow", "duplicates"), "--yes --allow gaps"),
        (("--set", "words:0=5", "--bootstrap", "127.0.0.1:1", *MOVE), "the brokers do not answer"),
        (("--from-group", "g"), "name the brokers"),
        (("--file", "/nowhere/offsets.json"), "cannot read file"),
    ],
)
def test_refusals(job: Path, arguments: tuple[str, ...], message: str) -> None:
    before = tree(job)
    assert message in str(refused("set-offsets", job, *arguments))
    assert tree(job) == before
    assert not (job / "_rw_sql").exists()


@pytest.mark.long
def test_a_secret_is_read_from_the_environment_and_never_told(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = str(refused("show", job, "--bootstrap", "127.0.0.1:1", "--secret", "sasl.password=NO_SUCH_VARIABLE"))
    assert "properties.sasl.password" in told or "NO_SUCH_VARIABLE" in told
    monkeypatch.setenv("KAFKA_PASS", "hunter2")
    told = run(
        *("show", job, "--bootstrap", "127.0.0.1:1", "--property", "security.protocol=sasl_plaintext"),
        *(
            "--property",
            "sasl.mechanism=PLAIN",
            "--property",
            "sasl.username=u",
            "--secret",
            "sasl.password=KAFKA_PASS",
        ),
    )
    assert "hunter2" not in told
    assert "UNKNOWN" in told


@pytest.mark.parametrize(("form", "begins"), [("svg", "<svg "), ("mermaid", "flowchart LR\n")])
def test_the_picture_of_a_rewrite(job: Path, form: str, begins: str) -> None:
    before = tree(job)
    told = run("set-offsets", job, "--set", "words:0=5", "--dry-run", "-o", form)
    assert told.startswith(begins)
    assert "words:0" in told
    assert tree(job) == before
    assert "only a preview has a picture" in str(refused("set-offsets", job, "--set", "words:0=5", "-o", form))


@pytest.mark.long
def test_no_spark_is_loaded(job: Path) -> None:
    program = """
import sys
from rw_sql.cli.main import app
for words in (["show"], ["export"], ["set-offsets", "--to-offset", "1", "--dry-run"]):
    app(["checkpoint", words[0], sys.argv[1], *words[1:]], standalone_mode=False)
    assert "pyspark" not in sys.modules, words
print("all done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(job)], timeout=LAST_RESORT_SECONDS, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all done"]), done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("answers", "is_done"),
    [(["yes\n", "yes\n"], True), (["yes\n", "no\n"], False), (["no\n"], False), (["\x04"], False)],
)
def test_at_a_terminal(job: Path, answers: list[str], is_done: bool) -> None:
    """The command asks two questions: whether the job is stopped, and whether to proceed."""
    before = tree(job)
    outer, inner = pty.openpty()
    program = "from rw_sql.cli.main import app; app()"
    arguments = ["set-offsets", str(job), "--set", "words:0=5", "--watch", "10ms"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, "checkpoint", *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "200"},
    )
    os.close(inner)
    told = ""
    for answer in answers:
        while not told.endswith("Type yes: "):
            told += os.read(outer, 65536).decode()
        told += "\n"
        os.write(outer, answer.encode())
    assert process.wait(timeout=LAST_RESORT_SECONDS) == (0 if is_done else 3), told
    with suppress(OSError):  # the other end is closed: that is how a terminal ends
        while data := os.read(outer, 65536):
            told += data.decode()
    os.close(outer)
    assert "stopped? Type yes:" in told
    assert ("INJECTED" in told) == is_done
    assert (tree(job) != before) == is_done


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, *answers: Callable[[], bool]) -> Iterator[io.StringIO]:
    """Answers the command's questions in turn; yields what it prints at its terminal."""
    left = list(answers)
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr("rw_sql.cli.checkpoint.running._is_yes", lambda *_: left.pop(0)())
        patch.setattr("rw_sql.cli.checkpoint.running.console_for", lambda *_: Console(file=terminal, width=200))
        patch.setattr("rw_sql.cli.checkpoint.running.sys", SimpleNamespace(stdin=terminal, stdout=terminal))
        yield terminal
    assert not left


def yes() -> bool:
    return True


def test_a_rewrite_is_refused_if_its_files_are_gone_when_the_user_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_checkpoint(tmp_path / "c", [kafka(a=[1]), files(0)], names=["clicks", "arrivals"])
    listed = tmp_path / "0.json"
    listed.write_text("{}", encoding="utf-8")
    list_files(made, 0, listed, source="arrivals")
    before = tree(made)

    def goes_ahead() -> bool:
        listed.unlink()
        return True

    with answering(monkeypatch, yes, goes_ahead) as terminal:
        assert refused("set-offsets", made, "--to-earliest", "--split", "list").code == "RW402"
    assert "DUPLICATES" in terminal.getvalue()
    assert tree(made) == before


@pytest.mark.parametrize("options", [(), ("--yes", "--allow", "duplicates"), ("--assume-stopped",)])
def test_a_rewrite_whose_effect_has_changed_is_shown_and_asked_again(
    job: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads_on() -> bool:
        if not (job / "offsets" / "2").exists():
            plan_batch(job, 2, [kafka(words=[14, 9])])
            (job / "commits" / "2").write_text((job / "commits" / "1").read_text(encoding="utf-8"), encoding="utf-8")
        return True

    last = [reads_on, reads_on] if options else [yes, reads_on, yes, yes]
    with answering(monkeypatch, *last) as terminal:
        run("set-offsets", job, "--set", "words:0=5", "--watch", "10ms", *options)
    first, _, second = terminal.getvalue().partition("has changed since this preview. The new preview:")
    assert "batch 1" in first
    assert "batch 2" in second
    assert "INJECTED" in second
    assert "words:0 at 5 (was 14)" in second


def test_a_plan_that_is_still_current_is_asked_once(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, change in (
        (("set-offsets", job, "--set", "words:0=5"), "words:0 at 5 (was 12)"),
        (("undo", job), "words:0 at 12 (was 5)"),
    ):
        with answering(monkeypatch, yes, yes) as terminal:
            run(*arguments, "--watch", "10ms")
        assert "The new preview" not in terminal.getvalue()
        assert change in terminal.getvalue()


@pytest.mark.parametrize(
    ("second", "arguments", "change"),
    [
        (
            kafka(clicks=[3]),
            ("--set", "0/words_v2:0=5", "--set", "0/words_v2:1=5", "--exactly"),
            "0/words_v2:1 at 5 (new)",
        ),
        (kafka(clicks=[3]), ("--set", "0/words_v2:0=5"), "0/words_v2:0 at 5 (new)"),
        (kafka(clicks=[3]), ("--set", "0/clicks:5=5"), "0/clicks:5 at 5 (new)"),
        (kafka(clicks=[3]), ("--set", "0/clicks:0=5"), "0/clicks:0 at 5 (new)"),
        (kafka(clicks=[3]), ("--set", "clicks:5=5"), " clicks:5 at 5 (new)"),
        (kafka(words=[3]), ("--set", "1/words:1=5"), "1/words:1 at 5 (new)"),
    ],
)
def test_a_new_partition_of_one_of_several_sources_is_asked_about_once(
    second: str, arguments: tuple[str, ...], change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_checkpoint(tmp_path / "two", [kafka(words=[12, 9]), second])
    with answering(monkeypatch, yes, yes) as terminal:
        run("set-offsets", made, *arguments, "--watch", "10ms")
    assert "The new preview" not in terminal.getvalue()
    assert change in terminal.getvalue()


def test_a_new_plan_that_equals_the_shown_one_is_carried_out(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rw_sql.cli.checkpoint.running.is_rewrite_current", lambda *_: False)
    with answering(monkeypatch, yes, yes) as terminal:
        run("set-offsets", job, "--set", "words:0=5", "--watch", "10ms")
    assert "The new preview" not in terminal.getvalue()
    assert "words:0 at 5 (was 12)" in terminal.getvalue()


def test_an_undo_is_refused_if_the_rewrite_was_undone_when_the_user_answers(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("set-offsets", job, "--set", "words:0=5", "--allow", "duplicates", *MOVE)

    def undoes() -> bool:
        run("undo", job, *MOVE)
        return True

    with answering(monkeypatch, yes, undoes):
        assert refused("undo", job, "--watch", "10ms").code == "RW324"
