"""Every script of ``slt/``, each on an empty warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.testing.slt_file import read_records, rewritten, topics_of
from rw_sql.cli.testing.slt_run import SltRun

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SCRIPTS = sorted((Path(__file__).parent / "slt").glob("*.slt"))

# These run with every commit, the others are drawn.
_ALWAYS = {"operator_workflow", "pause_resume", "parameters"}


@pytest.mark.parametrize(
    "script",
    [pytest.param(path, id=path.stem, marks=[] if path.stem in _ALWAYS else [pytest.mark.long]) for path in SCRIPTS],
)
@pytest.mark.usefixtures("quick_discovery")
def test_script(
    script: Path,
    session: AttachedSession,
    broker: BrokerInfo,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    text = script.read_text(encoding="utf-8")
    records = read_records(text, str(script))
    # All scripts share one broker, so each uses topics with its own prefix.
    assert [topic for topic in topics_of(records) if not topic.startswith(script.stem)] == []
    names = {"bootstrap": broker.bootstrap, "dir": str(tmp_path), "warehouse": session.warehouse}
    is_recording = bool(request.config.getoption("--record"))
    run = SltRun(
        attached=session.attached,
        folder=tmp_path,
        file=str(script),
        names=names,
        bootstrap=broker.bootstrap,
        is_recording=is_recording,
    )
    for record in records:
        run.run(record)
    assert run.notes == []
    if is_recording:
        script.write_text(rewritten(text, str(script), records, run.found), encoding="utf-8")
