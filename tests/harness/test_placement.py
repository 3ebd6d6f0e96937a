"""Which worker runs which file: a light worker starts no JVM, and a server starts in one worker where possible."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.placement import needs_of, next_file

ROOT = Path(__file__).parents[2]

NEEDS = {
    "plain": frozenset[str](),
    "sql": frozenset({"spark"}),
    "live": frozenset({"spark", "kafka"}),
    "live_pulsar": frozenset({"spark", "pulsar"}),
    "pulsar": frozenset({"pulsar"}),
    "kills": frozenset({"crash"}),
}
NOTHING = frozenset[str]()


def order(*, is_light: bool, own: frozenset[str] = NOTHING, others: frozenset[str] = NOTHING) -> list[str]:
    """The files that a worker would run if it were alone."""
    waiting, found = list(NEEDS), []
    while (file := next_file(waiting, NEEDS, is_light=is_light, own=own, others=others)) is not None:
        waiting.remove(file)
        found.append(file)
        own |= NEEDS[file]
    return found


def test_a_light_worker_runs_only_files_without_jvms_of_spark_and_kafka() -> None:
    assert order(is_light=True) == ["plain", "pulsar"]


def test_the_others_run_every_file_and_begin_with_spark() -> None:
    assert order(is_light=False) == ["sql", "live", "live_pulsar", "kills", "plain", "pulsar"]


def test_a_server_that_another_worker_has_is_left_to_it_as_long_as_there_is_other_work() -> None:
    others = frozenset({"pulsar", "spark", "kafka"})
    assert order(is_light=False, others=others) == ["sql", "live", "kills", "live_pulsar", "plain", "pulsar"]
    assert order(is_light=False, own=frozenset({"pulsar"}), others=others)[:3] == ["sql", "live", "live_pulsar"]
    assert order(is_light=True, others=others) == ["plain", "pulsar"]


def test_needs_are_found_by_marks_and_fixtures() -> None:
    tests = ROOT / "tests"
    assert needs_of(tests / "integration" / "test_live_pulsar.py") == {"spark", "pulsar"}
    assert needs_of(tests / "integration" / "test_live_connections.py") >= {
        "spark",
        "kafka",
        "second_broker",
        "secured",
    }
    assert needs_of(tests / "connectors" / "kinesis" / "test_kinesis_source.py") == {"kinesis_server"}
    assert needs_of(tests / "plan" / "statements" / "move" / "test_block.py") == NOTHING


FILES = {
    "test_a.py": "def test_a(): pass\n" * 3,
    "test_b.py": "import pytest\n@pytest.mark.spark\ndef test_b(): pass\n",
    "test_c.py": "def test_c(): pass\ndef test_d(): pass\n",
    "test_d.py": "import pytest\n@pytest.mark.kafka\ndef test_d(): pass\n",
    "test_e.py": "import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test_e(n): pass\n",
}


@pytest.mark.parametrize("light", [1, *(pytest.param(number, marks=pytest.mark.long) for number in (0, 2, 3))])
def test_each_test_runs_once_and_a_light_worker_starts_no_spark_unless_all_are_light(
    tmp_path: Path, light: int
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    spark\n    kafka\n")
    told = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-v", "-p", "xdist", "-p", "tests.support.placement"),
            *("--rootdir", str(tmp_path), "-p", "no:cacheprovider"),
            *("--numprocesses", "3", "--dist", "loadfile", "--no-loadscope-reorder", "--light", str(light)),
            str(tmp_path),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    ran = re.findall(r"\[gw(\d)\] \[ *\d+%\] PASSED (?:\S*/)?(test_\w\.py)::(\S+)", told)
    assert len(ran) == len({(file, test) for _, file, test in ran}) == 14, told
    assert "14 passed" in told
    workers = {file: {int(number) for number, of, _ in ran if of == file} for file in FILES}
    assert all(len(numbers) == 1 for numbers in workers.values()), workers
    if light < 3:
        assert max(workers["test_b.py"] | workers["test_d.py"]) < 3 - light, workers
