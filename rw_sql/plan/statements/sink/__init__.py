"""CREATE, ALTER and DROP SINK.

Imports: ``common`` and the rooms of ``plan`` below ``statements``. Imported by: ``plan/lower.py``. Begin with ``sink``;
``plan/checks/sinks.py`` has its checks.
"""
