"""Observes running jobs. The package contains lags, metrics, FLUSH and WAIT.

The module ``upstream_watcher`` checks the sources at rest for new records and new splits, and defines the default
interval at which any source is checked for new splits.

Imports: ``direct``, ``positions``, ``jobs``, ``delta`` and below. Begin with ``metrics`` (every metric with its
meaning) or ``lag``.
"""
