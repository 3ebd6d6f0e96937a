"""Connectors as text, for Spark's Python processes, which need not have their package on their path."""

from __future__ import annotations

import base64
import sys
from typing import Any

_OURS = "rw_sql"


def frozen(connector: object) -> str:
    """A connector as text; one of another package goes with its package by value."""
    from pyspark import cloudpickle

    package = type(connector).__module__.partition(".")[0]
    if package != _OURS and package in sys.modules:
        by_value: Any = cloudpickle.register_pickle_by_value
        by_value(sys.modules[package])
    dumped: Any = cloudpickle.dumps
    return base64.b64encode(dumped(connector)).decode("ascii")


def thawed(text: str) -> Any:
    """The connector behind a text of this process's own making."""
    from pyspark import cloudpickle

    return cloudpickle.loads(base64.b64decode(text))
