"""Implements ``rw-sql run``, which executes scripts with variables, or explains them in a dry run, and reports the
results.

This package imports mainly ``session``, ``syntax``, ``plan/deploy``, ``interface`` and ``terminal``. Begin with
``command``.
"""
