"""Statements on connections and secrets, and the ``SET`` of connectors that restarts what uses them.


Imports: ``sink``, ``source`` and the rooms beside ``statements``. Imported by: ``move`` and ``plan/lower.py``.
Begin with ``connection``.
"""
