"""``rw-sql run``: scripts with variables, run or foreseen, and how that is reported.


Imports: ``session``, ``syntax``, ``cli``'s output. Imported by: ``cli.main``.
Begin with ``command``.
"""
