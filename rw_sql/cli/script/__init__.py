"""``rw-sql run``: scripts with variables, executed or in a dry run, and their reports.

Imports: ``session``, ``syntax``, ``cli``'s output. Begin with ``command``.
"""
