"""The shell as a separate process: at terminals of several widths, in a pipe, with ``-c`` and ``-f``. No JVM starts
here: statements that only read the catalog need none, and Java is not on the path."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.integration.processes import PROGRAM, Terminal, at_a_terminal
from tests.support.waits import LAST_RESORT_SECONDS
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(1, "orders"), written.view(2, "totals", 1))
    written.status("ingest-1", "RUNNING")
    return written


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "JAVA_HOME": str(tmp_path / "no-java"),
        "PROMPT_TOOLKIT_NO_CPR": "1",
        **more,
    }


def typed(shell: Terminal, line: str, wanted: str) -> str:
    shell.type_line(line)
    return shell.read_until(wanted) + shell.read_until("rw_sql> ")


def rw_sql(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "shell", *words],
        cwd=folder,
        env={**os.environ, **environment(folder)},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_at_a_terminal_before_and_without_spark(tmp_path: Path, written: WrittenWarehouse) -> None:
    paged = tmp_path / "paged"
    more = {"COLUMNS": "80", "EDITOR": "cp edited.sql", "NO_COLOR": "1"}
    (tmp_path / "edited.sql").write_text("SHOW JOBS;\n", encoding="utf-8")
    with at_a_terminal([*PROGRAM, "shell", "-w", "w"], tmp_path, environment(tmp_path, **more)) as shell:
        shell.read_until("rw_sql> ")
        shell.interrupt()  # idle
        shell.read_until("rw_sql> ")
        shell.type_text("SHOW JOBS")  # typing
        shell.read_until("SHOW JOBS")
        shell.interrupt()
        shell.read_until("rw_sql> ")
        said = typed(shell, "SHOW MATERIALIZED VIEWS;", "ms")
        assert "totals" in said
        said += typed(shell, "\\d", "(2 rows)")
        said += typed(shell, "\\d+ orders", "CREATE SOURCE")
        assert "JSON;" in said.rpartition("CREATE SOURCE")[2]
        jobs = typed(shell, "\\dj", "ingest-1")
        assert "\\x shows all columns" in jobs
        assert "last_error" not in jobs
        said += jobs
        said += typed(shell, "SHOW SOURCES; \\x", "Expanded display is on.")
        # A pasted script is run as one text.
        shell.type_text("\x1b[200~\\x auto\n\\set which '%tals'\nSHOW MATERIALIZED VIEWS LIKE :'which';\x1b[201~")
        said += typed(shell, "", "(1 row)")
        said += typed(shell, "SHOW JOBS \\watch nothing", "is not a number of seconds")
        shell.type_line("SHOW JOBS \\watch 0.1")
        said += shell.read_until("(every 0.1 s)") + shell.read_until("(every 0.1 s)")
        shell.interrupt()
        shell.read_until("rw_sql> ")
        said += typed(shell, f"\\o {paged}", f"\\o {paged}")
        said += typed(shell, "SHOW SOURCES;", "ms")
        said += typed(shell, "\\o", "\\o")
        assert "orders" in paged.read_text(encoding="utf-8")
        said += typed(shell, "\\! echo $((40 + 2))", "42")
        shell.type_line("\\e")
        shell.read_until("rw_sql> ")  # with the text, for Enter to run it
        said += typed(shell, "", "ingest-1")
        said += typed(shell, "SELECT 1;", "RW404")  # this one needs Spark, and the shell lives on
        said += typed(shell, "SHOW SOURCES;", "orders")
        assert "\x1b[3" not in said  # no colour
        shell.type_line("\\q")
        assert shell.process.wait(timeout=LAST_RESORT_SECONDS) == 0
    assert (tmp_path / "state" / "rw-sql" / "history").stat().st_mode & 0o777 == 0o600


def test_ctrl_c_where_the_parent_ignores_it(tmp_path: Path, written: WrittenWarehouse) -> None:
    """A shell that a script starts in its background ignores Ctrl-C, as its children do."""
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *PROGRAM, "shell", "-w", "w"]
    with at_a_terminal(ignoring, tmp_path, environment(tmp_path)) as shell:
        shell.read_until("rw_sql> ")
        shell.interrupt()  # The terminal is not in raw mode yet, so that this is a signal.
        shell.read_until("rw_sql> ")
        shell.type_line("SHOW JOBS \\watch 0.1")
        shell.read_until("(every 0.1 s)")
        shell.interrupt()
        shell.read_until("rw_sql> ")
        shell.type_line("\\q")
        assert shell.process.wait(timeout=LAST_RESORT_SECONDS) == 0


@pytest.mark.long
@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_by_width(tmp_path: Path, written: WrittenWarehouse, width: int) -> None:
    with at_a_terminal(
        [*PROGRAM, "shell", "-w", "w", "-c", "SHOW SOURCES; SHOW JOBS"],
        tmp_path,
        environment(tmp_path, COLUMNS=str(width)),
    ) as shell:
        lines = shell.read_until("(1 row)").splitlines() + shell.read_until(" rows)").splitlines()
        if width < 200:
            lines += shell.read_until("\\x shows all columns").splitlines()
    assert max(map(len, lines)) <= width
    assert any("decode_errors" in line for line in lines)
    assert any("last_error" in line for line in lines) == (width == 200)
    assert any("│ job " in line for line in lines)


@pytest.mark.long
def test_pipes_commands_and_files(tmp_path: Path, written: WrittenWarehouse) -> None:
    (tmp_path / "a.sql").write_text("SHOW SOURCES LIKE 'ord%';\n\\echo between\nSHOW CREATE SOURCE orders;\n")
    piped = rw_sql(tmp_path, "-w", "w", given="SHOW SOURCES;\n\\dj\nSHOW CREATE SOURCE nothing;\nSHOW SINKS;\n")
    assert (piped.returncode, piped.stdout.count(" row")) == (1, 2), piped.stderr
    assert 'RW203: source "nothing" does not exist' in piped.stderr
    assert "LINE 3: SHOW CREATE SOURCE nothing" in piped.stderr
    assert "rw_sql>" not in piped.stdout
    said = rw_sql(tmp_path, "-w", "w", "-c", "\\d orders", "-f", "a.sql")
    assert said.returncode == 0, said.stderr
    assert said.stdout.index("id") < said.stdout.index("between") < said.stdout.index("CREATE SOURCE orders")
    assert said.stdout.endswith(";\n")
    drawn = rw_sql(tmp_path, "-w", "w", "-c", "\\o a.svg", "-c", "EXPLAIN (FORMAT SVG) SHOW LINEAGE")
    assert (drawn.returncode, drawn.stdout) == (0, ""), drawn.stderr
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
