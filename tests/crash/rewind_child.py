"""An owner's part in a REWIND, in a separate process that is killed in it.

Run as ``python -m tests.crash.rewind_child <warehouse>`` with the fault point in the environment. It needs no Spark,
because the jobs are stopped meanwhile.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runtime.mini_streams import MiniWarehouse


def main() -> None:
    """Carries out the REWIND in the catalog; killed on the way if a fault point is armed."""
    MiniWarehouse.opened(Path(sys.argv[1])).settle()
    print("done", flush=True)


if __name__ == "__main__":
    main()
