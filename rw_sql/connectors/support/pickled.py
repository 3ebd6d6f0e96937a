"""Serializes connectors for Spark's Python processes, on whose path the connectors' packages are not necessarily
installed."""

from __future__ import annotations

import base64
import sys
from typing import Any

_OURS = "rw_sql"


def frozen(connector: object) -> str:
    """Serializes a connector. The result of a third-party connector includes the code of the connector's package."""
    from pyspark import cloudpickle

    package = type(connector).__module__.partition(".")[0]
    if package != _OURS and package in sys.modules:
        by_value: Any = cloudpickle.register_pickle_by_value
        by_value(sys.modules[package])
    dumped: Any = cloudpickle.dumps
    return base64.b64encode(dumped(connector)).decode("ascii")


def thawed(text: str) -> Any:
    """Deserializes the result of :func:`frozen`, which must come from this Spark application's driver: untrusted
    text could run any code."""
    from pyspark import cloudpickle

    return cloudpickle.loads(base64.b64decode(text))
