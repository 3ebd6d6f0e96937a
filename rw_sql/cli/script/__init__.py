"""``rw-sql run``: scripts with variables, executed or in a dry run, and their reports.

Imports: ``session``, ``syntax``, ``cli``'s output. Imported by: ``cli.main``. Begin with ``command``.
"""
