"""Statements on connections and secrets, and changes of connector options, which restart the objects that use them.

Imports: ``common`` and the rooms beside ``statements``. Imported by: ``move`` and ``plan/lower.py``. Begin with
``connection``.
"""
