"""Runs the commands of the light installation without the packages that it lacks, and prints the failures.

Run as ``python light_install.py`` in an environment with the light wheel. The tests run the module with ``--refuse`` in
their own environment. With this option, the module refuses to import the packages.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LACKING = frozenset({
    "arro3", "boto3", "confluent_kafka", "cryptography", "delta", "deltalake", "hvac", "IPython", "nats", "nkeys",
    "numpy", "paho", "pandas", "prometheus_client", "prompt_toolkit", "psycopg", "py4j", "pyarrow", "pyiceberg",
    "pyspark", "yaml",
})  # fmt: skip
"""The packages that only the extras install."""

SQL = """-- A source and a view.
create source s (id int, name varchar) with (connector = 'kafka', topic = 't',
  properties.bootstrap.server = 'b:9092') format plain encode json;
create source d (id int) with (connector = 'delta', delta.path = '/d');
create source g (id int) with (connector = 'datagen', fields.id.kind = 'sequence');
create materialized view v as select id, count(*) as n from s group by id;
create sink k from v with (connector = 'kafka', topic = 'o', properties.bootstrap.server = 'b:9092', type = 'upsert',
  primary_key = 'id') format upsert encode json;
create sink f from g with (connector = 'deltalake', location = '/f', type = 'append-only');
"""


EMPTY_CATALOG = '{"format": "rw_sql catalog", "version": 1, "epoch": 0, "objects": [], "splits": {}, "states": {}}'


class Refusing(MetaPathFinder):
    """Refuses to import the packages that a light installation lacks."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        """Raises ModuleNotFoundError for the packages in LACKING."""
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def told(*words: str) -> tuple[int, str, str]:
    """A command's status, output and errors."""
    from rw_sql.cli.main import app

    out, error, status = io.StringIO(), io.StringIO(), 0
    sys.argv = ["rw-sql", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            app(list(words))
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
    return status, out.getvalue(), error.getvalue()


def checkpoint(folder: Path) -> Path:
    """A checkpoint of Structured Streaming with one batch of one topic."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"35f20518-8d17-4f7d-a78f-14faf0c2d96c"}')
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {}}
    (folder / "offsets" / "0").write_text(f'v1\n{json.dumps(metadata)}\n{{"words":{{"0":12,"1":9}}}}')
    (folder / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def main() -> int:
    """Runs every command. Returns 1 if a command does not have the expected result."""
    folder = Path(tempfile.mkdtemp())
    script = folder / "sql" / "a.sql"
    script.parent.mkdir()
    script.write_text(SQL, encoding="utf-8")
    (folder / "a.slt").write_text("statement ok\nSELECT 1\n", encoding="utf-8")
    catalog = folder / "catalog.json"
    catalog.write_text(EMPTY_CATALOG, encoding="utf-8")
    job = str(checkpoint(folder / "words"))
    failures = []

    def expect(status: int, text: str, *words: str) -> None:
        found, out, error = told(*words)
        if found != status or text not in out + error:
            failures.append(f"{' '.join(words)}: status {found}, expected {status} and {text!r}: {out}{error}")

    expect(0, ": no errors", "check", str(script))
    expect(1, "CREATE SOURCE s", "fmt", "--check", str(script))
    expect(0, "", "fmt", str(script.parent))
    expect(0, ": no errors", "check", str(script.parent), "-o", "text")
    expect(0, "+ create source s", "diff", str(script.parent), "-w", str(folder / "none"))
    expect(0, "+ create source s", "diff", str(script.parent), "--catalog", str(catalog))
    expect(0, ": no errors", "check", str(script), "--catalog", str(catalog))
    expect(0, "words:0", "checkpoint", "show", job)
    expect(0, '"words"', "checkpoint", "export", job, "-o", "spark")
    expect(0, "Operation 1", "checkpoint", "set-offsets", job, "--set", "words:0=5", "--yes", "--assume-stopped",
           "--allow", "duplicates", "--watch", "10ms")  # fmt: skip
    expect(0, "words:0", "checkpoint", "undo", job, "--yes", "--assume-stopped", "--watch", "10ms")
    expect(2, "pip install 'rw-sql[kafka]'", "checkpoint", "show", job, "--bootstrap", "127.0.0.1:1")
    for words in (["status"], ["source", "list"], ["lineage"], ["check", str(script)]):
        expect(2, "pip install 'rw-sql[catalog]'", *words, "-w", str(folder))
    for words in (["run", str(script)], ["shell", "-c", "SHOW JOBS"], ["serve"], ["test", str(folder)]):
        expect(2, "pip install 'rw-sql[spark]'", *words)
    loaded = sorted(LACKING & set(sys.modules))
    sys.stderr.write("".join(f"{failure}\n" for failure in failures))
    sys.stdout.write(f"{len(failures)} failures; loaded of what is lacking: {loaded}\n")
    return 1 if failures or loaded else 0


if __name__ == "__main__":
    if "--refuse" in sys.argv:
        sys.meta_path.insert(0, Refusing())
    raise SystemExit(main())
