"""A fixed piece of work whose duration shows how fast the machine is at the moment.

A time without a peer depends on the machine, which may be 50 % faster or slower a minute later. The ratio of such a
time to this yardstick, measured in the same run, shows whether the time is stable from round to round.
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
"""The units of times. Figures in these units depend on the speed of the machine; numbers of bytes do not."""


def yardstick() -> float:
    """The seconds that Python takes for the kind of work that a statement needs: JSON, digests and small files."""
    with TemporaryDirectory(prefix="rw_sql_bench_") as folder:
        started = perf_counter()
        for number in range(_TIMES):
            text = json.dumps(_RECORDS)
            file = Path(folder, sha256(text.encode()).hexdigest()[: 8 + number])
            file.write_text(text, encoding="utf-8")
            assert json.loads(file.read_text(encoding="utf-8")) == _RECORDS
            file.unlink()
        return perf_counter() - started
