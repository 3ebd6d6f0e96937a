"""Lowers CREATE, ALTER and DROP SOURCE, PAUSE and RESUME, and rate limits.

From ``plan``, this package imports ``statements/common`` and the packages in the layers below ``statements``. Begin
with ``source``. The checks are in ``plan/checks/sources.py``.
"""
