"""SHOW and DESCRIBE: the columns of every listing and where they come from.


Imports: ``view``, ``move`` and the rooms beside ``statements``. Imported by: ``plan/lower.py``.
Begin with ``objects``; splits and CONTINUITY have modules of their own.
"""
