"""Every command of ``rw-sql source`` is one statement, and prints it on demand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.interface.exit_codes import REFUSED
from rw_sql.cli.main import app
from rw_sql.cli.source.running import offsets_of
from rw_sql.errors import CONFIRMATION_NEEDED, SqlError
from rw_sql.metastore import Metastore
from rw_sql.model.offset_files import read_offsets
from rw_sql.session.sparkless import answer, sparkless
from rw_sql.syntax import parse_statement, render
from tests.support.waits import LIFE_SECONDS
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "from rw_sql.cli.main import app; app()"]

# The commands run one after the other in one process, each with its own Spark; only the JVM is not restarted.
COMMANDS = """
import contextlib, io, json, sys
from rw_sql.cli.main import app

told = []
for words in json.loads(sys.argv[1]):
    out, error, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            app(words)
        except SystemExit as ended:
            status = ended.code or 0
    told.append([status, out.getvalue(), error.getvalue()])
print(json.dumps(told))
"""


def told(*words: str) -> str:
    """The output of ``--show-sql``."""
    result = CliRunner().invoke(app, ["source", *words, "--show-sql"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


@pytest.mark.parametrize(
    ("words", "statement"),
    [
        (["list"], "SHOW SOURCES"),
        (["list", "--like", "a%"], "SHOW SOURCES LIKE 'a%'"),
        (["show", "--source", "orders"], "SHOW SOURCE SPLITS orders"),
        (["show", "-s", "public.Orders"], 'SHOW SOURCE SPLITS public."Orders"'),
        (["pause", "-s", "s", "--reason", "it's late"], "PAUSE SOURCE s REASON 'it''s late'"),
        (["resume", "-s", "s", "--dry-run"], "EXPLAIN RESUME SOURCE s"),
        (["pause", "-s", "s", "--dry-run", "-o", "svg"], "EXPLAIN (FORMAT SVG) PAUSE SOURCE s"),
        (
            ["alter", "-s", "s", "--set", "topic=a=b", "--set-secret", "properties.sasl.password=pw", "--unset", "k"],
            "ALTER SOURCE s UNSAFE SET (topic = 'a=b', properties.sasl.password = SECRET pw), UNSET (k)",
        ),
        (
            ["alter", "-s", "s", "--unset", "k", "--skip-validate"],
            "ALTER SOURCE s UNSAFE UNSET (k) WITH (VALIDATE = false)",
        ),
        (["reset-splits", "-s", "s"], "RESET SOURCE SPLITS s"),
        (
            ["reset-splits", "-s", "s", "--split", "0", "--forget-offsets", "--no-rediscover"],
            "RESET SOURCE SPLITS s FOR SPLITS ('0') WITH (REDISCOVER = false, FORGET_OFFSETS = true)",
        ),
        (
            ["inject-offsets", "-s", "s", "--set", "0=42", "--set", "t:1=null", "--set", '2={"offset":1}'],
            "INJECT SOURCE OFFSETS s VALUES ('0' = 42, 't:1' = NULL, '2' = '{\"offset\":1}')",
        ),
        (
            ["inject-offsets", "-s", "s", "--file", "f.csv", "--convention", "last_seen", "--split", "0"],
            "INJECT SOURCE OFFSETS s FROM FILE 'f.csv' FOR SPLITS ('0') WITH (CONVENTION = 'last_seen')",
        ),
        (["inject-offsets", "-s", "s", "--group", "g"], "INJECT SOURCE OFFSETS s FROM GROUP 'g'"),
        (["inject-offsets", "-s", "s", "--checkpoint", "/c"], "INJECT SOURCE OFFSETS s FROM CHECKPOINT '/c'"),
        (["inject-offsets", "-s", "s", "--from-source", "t"], "INJECT SOURCE OFFSETS s FROM SOURCE t"),
        (["inject-offsets", "-s", "s", "--to", "latest"], "INJECT SOURCE OFFSETS s TO LATEST"),
        (["inject-offsets", "-s", "s", "--to-offset", "7"], "INJECT SOURCE OFFSETS s TO OFFSET 7"),
        (
            ["inject-offsets", "-s", "s", "--to-timestamp", "2026-01-31 08:00:00Z"],
            "INJECT SOURCE OFFSETS s TO TIMESTAMP '2026-01-31 08:00:00Z'",
        ),
        (
            ["inject-offsets", "-s", "s", "--shift", "-5", "--allow", "duplicates", "--allow", "clamp"],
            "INJECT SOURCE OFFSETS s TO SHIFT -5 ALLOW DUPLICATES, CLAMP",
        ),
        (["inject-offsets", "-s", "s", "--back-by", "1 hour"], "INJECT SOURCE OFFSETS s BACK BY INTERVAL '1 hour'"),
        (["export-offsets", "-s", "s"], "SHOW SOURCE SPLITS s"),
        (
            ["alter", "-s", "s", "--set", "topic=t2", "--allow", "gaps", "--allow", "duplicates"],
            "ALTER SOURCE s UNSAFE SET (topic = 't2') ALLOW GAPS, DUPLICATES",
        ),
        (
            ["reset-splits", "-s", "s", "--forget-offsets", "--allow", "duplicates"],
            "RESET SOURCE SPLITS s ALLOW DUPLICATES WITH (FORGET_OFFSETS = true)",
        ),
        (["undo", "--operation", "17", "--allow", "duplicates"], "UNDO OPERATION 17 ALLOW DUPLICATES"),
        (["undo", "--operation", "17", "--reason", "wrong topic"], "UNDO OPERATION 17 REASON 'wrong topic'"),
        (["continuity", "-s", "s"], "SHOW SOURCE CONTINUITY s"),
    ],
)
def test_each_command_is_its_statement(words: list[str], statement: str) -> None:
    shown = told(*words)
    assert shown.endswith(";")
    assert parse_statement(shown[:-1]) == parse_statement(statement)
    assert shown[:-1] == render(parse_statement(statement))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["alter", "-s", "s"], "nothing to alter"),
        (["alter", "-s", "s", "--set", "topic"], "takes key=value"),
        (["inject-offsets", "-s", "s"], "no offsets are given"),
        (["inject-offsets", "-s", "s", "--to", "latest", "--shift", "1"], "from exactly one place"),
        (["inject-offsets", "-s", "s", "--to", "last"], "--to must be earliest or latest"),
        (["inject-offsets", "-s", "s", "--to", "latest", "--allow", "gap"], "--allow must be gaps"),
        (["reset-splits", "-s", "s", "--allow", "clamp"], "--allow must be gaps or duplicates, but is 'clamp'"),
        (["undo", "--operation", "17", "--allow", "gap"], "--allow must be gaps or duplicates"),
        (["alter", "-s", "s", "--set", "topic=t2", "--allow", "all"], "--allow must be gaps or duplicates"),
        (["inject-offsets", "-s", "s", "--to", "latest", "--convention", "x"], "--convention must be next"),
        (["export-offsets", "-s", "s", "--form", "xml"], "--output must be map, connect, csv, rpk or spark"),
        (["export-offsets", "-s", "s", "--group", "g"], "--group is for --output csv"),
        (["list", "--output", "yaml"], "--output must be text or json"),
        (["list", "--output", "svg"], "--output must be text or json"),
        (["pause", "-s", "s", "-o", "svg"], "--output svg requires --dry-run"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(words: list[str], says: str) -> None:
    with pytest.raises(SqlError) as caught:
        told(*words)
    assert says in caught.value.message
    assert caught.value.hint


def row(split: str, next_: int | None, *, status: str = "OK", fragment: str = "ingest-1") -> dict[str, object]:
    return {"split": split, "next": next_, "status": status, "fragment": fragment}


def test_what_is_exported() -> None:
    rows = [row("t:0", 7), row("t:1", None, status="NEW"), row("old:0", 3, status="ORPHAN")]
    assert offsets_of(rows, "s", None) == ({"t:0": 7}, ())
    lost = offsets_of([row("t:0", 7, status="RECREATED")], "s", None)
    assert lost == ({"t:0": 7}, ("t:0 is RECREATED: 7 is not an offset of it",))
    with pytest.raises(SqlError, match="has no position yet"):
        offsets_of([row("t:1", None, status="NEW")], "s", None)


def test_readers_with_different_positions_are_not_mixed() -> None:
    rows = [row("t:0", 7, fragment="mv-2:1"), row("t:0", 9, fragment="mv-3:1")]
    with pytest.raises(SqlError, match="has no single position: mv-2:1, mv-3:1 read it") as caught:
        offsets_of(rows, "s", None)
    assert (caught.value.code, caught.value.hint) == ("RW310", "--fragment mv-2:1")
    assert offsets_of(rows, "s", "mv-3:1") == ({"t:0": 9}, ())
    assert offsets_of([rows[0], row("t:0", 7, fragment="mv-3:1")], "s", None) == ({"t:0": 7}, ())
    with pytest.raises(SqlError, match="--fragment must be mv-2:1 or mv-3:1"):
        offsets_of(rows, "s", "mv-4:1")


def test_a_secret_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(SqlError) as caught:
        told("alter", "-s", "s", "--set", "properties.sasl.password=hunter2")
    assert caught.value.code == "RW208"
    assert "hunter2" not in str(caught.value)


@pytest.mark.long
@pytest.mark.spark
def test_an_operator_moves_a_source_from_the_shell(tmp_path: Path) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIFE_SECONDS,
            stdin=subprocess.DEVNULL,
        )

    inject = ["inject-offsets", "-s", "s", "--to-offset", "4"]
    commands = [
        [*inject, "--yes", "--output", "json"],
        [*inject, "--allow", "duplicates", "--yes", "--output", "json"],
        ["export-offsets", "-s", "s"],
    ]
    (tmp_path / "make.sql").write_text(
        "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20', datagen.split.num = '2');\n"
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s;\n"
        "FLUSH;\nALTER SYSTEM SET enable_unsafe_ops = true;\nPAUSE SOURCE s;\n",
        encoding="utf-8",
    )
    made = run(*PROGRAM, "run", "make.sql", "--warehouse", "w")
    assert made.returncode == 0, made.stderr
    words = [["source", *command, "--warehouse", "w"] for command in commands]
    ran = run(sys.executable, "-c", COMMANDS, json.dumps(words))
    assert ran.returncode == 0, ran.stderr
    refused, done, exported = json.loads(ran.stdout)
    assert (refused[0], json.loads(refused[1])["error"]["code"]) == (REFUSED, CONFIRMATION_NEEDED.code)
    assert "DUPLICATES 12" in refused[2]
    assert "--yes needs --allow duplicates" in refused[2]
    assert done[0] == 0, done[2]
    assert [(row["change"], row["detail"]) for row in json.loads(done[1])] == [
        ("INJECTED", "2-0 at 4 (was 10)"),
        ("INJECTED", "2-1 at 4 (was 10)"),
    ]
    assert exported[0] == 0, exported[2]
    assert [(entry.split, entry.state) for entry in read_offsets(exported[1], "-").entries] == [
        ("2-0", "4"),
        ("2-1", "4"),
    ]


def test_a_missing_confirmation_names_the_options_of_the_command(tmp_path: Path) -> None:
    warehouse = str(tmp_path / "w")
    Metastore.open(warehouse).flush(with_upkeep=True)
    with sparkless(warehouse) as context:
        for text in (
            "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '100')",
            "ALTER SYSTEM SET enable_unsafe_ops = true",
            "PAUSE SOURCE s",
        ):
            answer(context, parse_statement(text))

    def hint(*more: str) -> str | None:
        words = ["source", "inject-offsets", "-s", "s", "-w", warehouse, "--to-offset", "9", *more]
        error = CliRunner().invoke(app, words).exception
        assert error is None or isinstance(error, SqlError)
        return error.hint if error is not None else None

    for more in ((), ("--yes",)):
        refused = hint(*more)
        assert refused is not None
        found = re.fullmatch(
            "this statement changed nothing; to run it with exactly this preview, add --confirm ([0-9a-f]{12}) to the "
            "same command; --yes needs --allow gaps",
            refused,
        )
        assert found is not None, refused
    assert found is not None
    assert hint("--confirm", found[1]) is None
    assert hint("--yes", "--allow", "gaps") is None


def test_a_statement_without_a_process_that_runs_the_jobs_names_the_command(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(1, "orders"), written.view(2, "totals", 1))
    result = CliRunner().invoke(app, ["source", "pause", "-s", "orders", "-w", written.uri, "-o", "json"])
    assert [row["detail"] for row in json.loads(result.stdout)][1:] == [
        "committed, not yet applied",
        f"no process runs the jobs: rw-sql serve --warehouse {written.uri} applies the statement",
    ]
