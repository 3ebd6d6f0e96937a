"""The workflow typed into a plain pyspark shell that attaches by itself; its own ``sql`` accepts rw_sql's statements
too. Questions and the status line of ``rw-sql pyspark``, whose startup file attaches before there is a prompt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.session.attach import delta_options
from tests.integration.attached import produce_json
from tests.integration.processes import PROGRAM, Terminal, at_a_terminal
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = pytest.mark.spark

HOME = Path(pyspark.__file__).parent
ENDLESS = "SELECT id FROM range(1000000000000)"


@pytest.mark.kafka
@pytest.mark.long
def test_the_workflow(broker: BrokerInfo, topic_name: str, tmp_path: Path) -> None:
    old, new = f"{topic_name}.old", f"{topic_name}.new"
    for topic in (old, new):
        create_topic(broker.bootstrap, topic, 1)
    produce_json(broker.bootstrap, old, [{"id": id_} for id_ in range(10)])
    produce_json(broker.bootstrap, new, [{"id": id_} for id_ in range(8, 20)])
    command = [str(HOME / "bin" / "pyspark"), *delta_options(), "--master", "local[2]", "--driver-memory", "1g"]
    environment = {
        "SPARK_HOME": str(HOME),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHON_BASIC_REPL": "1",
    }
    with at_a_terminal(command, tmp_path, environment) as shell:
        shell.read_until(">>> ")
        answer(shell, "import rw_sql; print(rw_sql.attach(spark, 'warehouse').is_owner)", "True")
        answer(shell, "sql('SELECT 40 + 2 AS x').collect()", "[Row(x=42)]")
        create = (
            f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{old}', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
        )
        answer(shell, f'sql("{create}").first().change', "'CREATED'")
        answer(shell, "sql('CREATE MATERIALIZED VIEW m AS SELECT id, count(*) AS n FROM s GROUP BY id').count()", "1")
        answer(shell, "_ = sql('FLUSH'); sql('SELECT count(*) AS c, sum(n) AS s FROM m').collect()", "Row(c=10, s=10)")
        answer(shell, "spark.sql('ALTER SYSTEM SET enable_unsafe_ops = true').first().detail", "'true'")
        answer(shell, "sql('PAUSE SOURCE s').first().change", "'PAUSED'")
        shell.type_line(f"""sql("ALTER SOURCE s UNSAFE SET (topic = '{new}')").first().change""")
        preview = shell.read_until("Go ahead? Type yes: ")
        assert "materialized view m" in preview
        answer(shell, "yes", "'ALTERED'")
        shell.type_line("sql('RESET SOURCE SPLITS s').count()")
        shell.read_until("Go ahead? Type yes: ")
        answer(shell, "no", "RW304: the operation was not confirmed")
        answer(shell, "_ = sql(\"SET unsafe_confirmation = 'yes'\"); sql('RESET SOURCE SPLITS s').count()", "2")
        shell.type_line(f"sql(\"INJECT SOURCE OFFSETS s VALUES ('{new}:0' = 1)\").first().change")
        shell.read_until("Go ahead? Type yes: ")
        answer(shell, "yes", "'INJECTED'")
        answer(shell, "sql('RESUME SOURCE s').first().change", "'RESUMED'")
        answer(shell, "_ = sql('FLUSH'); sql('SELECT count(*) AS c, sum(n) AS s FROM m').collect()", "Row(c=20, s=21)")
        shell.type_line("print('be' 'gun'); sql('SELECT sum(id) FROM range(1000000000000)').collect()")
        shell.read_until("begun")
        shell.interrupt()
        answer_after(shell, "KeyboardInterrupt")
        answer(
            shell,
            "[(row.state, row.restarts) for row in sql('SHOW JOBS').collect()]",
            "[('RUNNING', 0), ('RUNNING', 0)]",
        )
        answer(shell, "sql('SHOW SOURCE SPLITS nothing')", 'RW203: source "nothing" does not exist')
        answer(shell, "rw_sql.detach(spark)", "")
        answer(shell, "sql('SHOW SOURCES')", "PARSE_SYNTAX_ERROR")
        shell.type_line("exit()")
        assert shell.process.wait(timeout=LAST_RESORT_SECONDS) == 0


@pytest.mark.long
def test_the_shell_that_attaches_at_its_start_asks_and_shows_the_status(tmp_path: Path) -> None:
    command = [*PROGRAM, "pyspark", "--master", "local[2]", "--driver-memory", "1g"]
    create = "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20', paused = 'true')"
    with at_a_terminal(command, tmp_path, {"PYTHON_BASIC_REPL": "1"}) as shell:
        shell.read_until("rw_sql is attached")
        shell.read_until(">>> ")
        answer(shell, f'sql("{create}").first().change', "'CREATED'")
        answer(shell, "sql('ALTER SYSTEM SET enable_unsafe_ops = true').first().detail", "'true'")
        for reply, wanted in (("no", "RW304: the operation was not confirmed"), ("yes", "'INJECTED'")):
            shell.type_line("sql('INJECT SOURCE OFFSETS s TO LATEST ALLOW GAPS').first().change")
            assert "GAP 20" in shell.read_until("Go ahead? Type yes: ")
            answer(shell, reply, wanted)
        shell.type_line(f"sql(\"INSERT OVERWRITE LOCAL DIRECTORY '{tmp_path}/rows' USING json {ENDLESS}\")")
        shell.read_until("running for ")
        shell.interrupt()
        answer_after(shell, "KeyboardInterrupt")
        shell.type_line("exit()")
        assert shell.process.wait(timeout=LAST_RESORT_SECONDS) == 0


def answer_after(shell: Terminal, wanted: str) -> None:
    """Asserts that the output before the next prompt contains the text."""
    assert wanted in shell.read_until("\n>>> ")


def answer(shell: Terminal, line: str, wanted: str) -> None:
    """Types a line; asserts that the output before the next prompt contains the text."""
    shell.type_line(line)
    shown = shell.read_until("\n>>> ").replace("\r", "")
    printed = shown.partition("\n")[2]
    assert wanted in printed, f"{line}\nprinted\n{printed}"
