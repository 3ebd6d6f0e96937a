"""Observing running jobs: lags, metrics, FLUSH and WAIT.

Imports: ``direct``, ``positions``, ``jobs``, ``delta`` and below. Begin with ``metrics`` (every metric with its
meaning) or ``lag``.
"""
