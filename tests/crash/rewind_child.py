"""An owner's part of a REWIND, in a separate process that is killed during the REWIND.

Run as ``python -m tests.crash.rewind_child <warehouse>`` with the fault point in the environment. The process needs no
Spark, because the jobs are stopped during a REWIND.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runtime.mini_streams import MiniWarehouse


def main() -> None:
    """Carries out the REWIND that is in the catalog. If a fault point is armed, the process is killed at this point."""
    MiniWarehouse.opened(Path(sys.argv[1])).settle()
    print("done", flush=True)


if __name__ == "__main__":
    main()
