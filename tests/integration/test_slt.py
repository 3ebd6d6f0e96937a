"""Every script of ``slt/``, each on an empty warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.sqllogictest import ScriptRun, read_records, rewritten

if TYPE_CHECKING:
    from rw_sql.cli.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SCRIPTS = sorted((Path(__file__).parent / "slt").glob("*.slt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("quick_discovery")
def test_script(
    script: Path,
    session: AttachedSession,
    broker: BrokerInfo,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    text = script.read_text(encoding="utf-8")
    records = read_records(text)
    run = ScriptRun(session=session, bootstrap=broker.bootstrap, folder=tmp_path, name=script.stem)
    is_recording = bool(request.config.getoption("--record"))
    for record in records:
        run.run(record, is_recording=is_recording)
    if is_recording:
        script.write_text(rewritten(text, records, run.recorded), encoding="utf-8")
