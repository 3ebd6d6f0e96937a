"""Lowers CREATE, DROP, PAUSE and RESUME SINK.

Imports: ``common`` and the packages of ``plan`` below ``statements``. Begin with ``sink``. The checks are in
``plan/checks/sinks.py``.
"""
