"""CREATE, ALTER and DROP SOURCE, PAUSE and RESUME, and rates.

Imports: ``common`` and the rooms of ``plan`` below ``statements``. Imported by: ``table`` and ``plan/lower.py``. Begin
with ``source``; ``plan/checks/sources.py`` has its checks.
"""
