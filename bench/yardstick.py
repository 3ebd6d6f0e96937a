"""A fixed piece of work that a bare time is held against: how fast is this machine in this minute?

A figure without a peer follows the machine, which may be half as fast again a minute later. Whether it stays from round
to round is told by its ratio to this, measured beside it, as a ratio to a peer is.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

_RECORDS = [{"id": number, "name": f"record {number}", "positions": list(range(20))} for number in range(200)]
_TIMES = 10
TIMED = frozenset({"µs", "ms", "s"})
"""The units of bare times, by which a figure follows the machine; bytes do not."""


def yardstick() -> float:
    """Seconds that Python takes for what a statement is made of: JSON, digests and small files."""
    with TemporaryDirectory(prefix="rw_sql_bench_") as folder:
        started = perf_counter()
        for number in range(_TIMES):
            text = json.dumps(_RECORDS)
            file = Path(folder, sha256(text.encode()).hexdigest()[: 8 + number])
            file.write_text(text, encoding="utf-8")
            assert json.loads(file.read_text(encoding="utf-8")) == _RECORDS
            file.unlink()
        return perf_counter() - started
