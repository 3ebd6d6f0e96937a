"""Lowers CREATE, ALTER and DROP SOURCE, PAUSE and RESUME, and rate limits.

Imports: ``common`` and the packages of ``plan`` below ``statements``. Begin with ``source``. The checks are in
``plan/checks/sources.py``.
"""
