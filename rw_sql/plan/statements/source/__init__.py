"""CREATE, ALTER and DROP SOURCE, PAUSE and RESUME, and rates.


Imports: the rooms beside ``statements``. Imported by: its sibling rooms and ``plan/lower.py``.
Begin with ``source``; ``plan/checks/sources.py`` has its checks.
"""
