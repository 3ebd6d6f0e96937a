"""The notebooks run from top to bottom, on their own broker and Spark, without a user at the keyboard."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from rw_sql.cli.servers.kafka_broker import stop_broker
from tests.support.java import java_options

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("notebook", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_notebook(notebook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    # With Spark's own settings, as on a user's machine.
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", java_options())
    document = nbformat.read(FOLDER / notebook, as_version=4)
    client = NotebookClient(document, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    try:
        client.execute()
    finally:
        # A notebook that failed half-way has not stopped its broker, which outlives it.
        for folder in tmp_path.glob("*/kafka"):
            stop_broker(folder)
    outputs = [output for cell in document.cells for output in cell.get("outputs", [])]

    assert any("<table>" in output.get("data", {}).get("text/html", "") for output in outputs)
    refusals = ["\n".join(output["traceback"]) for output in outputs if output["output_type"] == "error"]
    assert refusals, "the quick start shows what a refusal looks like"
    for refusal in refusals:
        assert refusal.startswith("RW304")
        assert "Traceback" not in refusal


def test_notebooks_are_kept_without_outputs() -> None:
    for path in FOLDER.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None
