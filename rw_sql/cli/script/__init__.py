"""``rw-sql run``: scripts with variables, executed or in a dry run, and their reports.

Imports: ``session``, ``syntax``, ``plan/deploy``, ``interface``, ``terminal``. Begin with ``command``.
"""
