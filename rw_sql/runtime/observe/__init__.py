"""Measures the lags and metrics of running jobs, and implements FLUSH and WAIT.

The module ``upstream_watcher`` checks the sources at rest for new records and new splits. This module also defines the
default interval at which readers check for new splits.

From ``runtime``, this package may import only ``direct`` and those below it, such as ``positions``,
``jobs`` and ``delta``. Begin with ``metrics`` (every metric with its meaning) or ``lag``.
"""
