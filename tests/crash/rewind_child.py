"""An owner's part in a REWIND, in a process of its own, in which it is killed.

Run as ``python -m tests.crash.rewind_child <warehouse>`` with the fault point in the environment. It needs no Spark:
the jobs stand still meanwhile.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runtime.mini_streams import MiniWarehouse


def main() -> None:
    """Carries out what the catalog wants; killed on the way if a fault point is armed."""
    MiniWarehouse.opened(Path(sys.argv[1])).settle()
    print("done", flush=True)


if __name__ == "__main__":
    main()
