"""Serializes connectors for Spark's Python processes, which may not have the connectors' packages on their path."""

from __future__ import annotations

import base64
import sys
from typing import Any

_OURS = "rw_sql"


def frozen(connector: object) -> str:
    """Serializes a connector. A third-party connector is serialized together with its package."""
    from pyspark import cloudpickle

    package = type(connector).__module__.partition(".")[0]
    if package != _OURS and package in sys.modules:
        by_value: Any = cloudpickle.register_pickle_by_value
        by_value(sys.modules[package])
    dumped: Any = cloudpickle.dumps
    return base64.b64encode(dumped(connector)).decode("ascii")


def thawed(text: str) -> Any:
    """Deserializes a connector from a text that the driver of this Spark process has written."""
    from pyspark import cloudpickle

    return cloudpickle.loads(base64.b64decode(text))
