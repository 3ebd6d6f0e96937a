"""CREATE, ALTER and DROP SINK.


Imports: ``source``, ``view`` and the rooms beside ``statements``. Imported by: ``connection``, ``move``,
``plan/lower.py``.
Begin with ``sink``; ``plan/checks/sinks.py`` has its checks.
"""
