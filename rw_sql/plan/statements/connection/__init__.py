"""Statements on connections and secrets, and the ``SET`` of connectors that restarts what uses them.


Imports: ``common`` and the rooms beside ``statements``. Imported by: ``move`` and ``plan/lower.py``.
Begin with ``connection``.
"""
