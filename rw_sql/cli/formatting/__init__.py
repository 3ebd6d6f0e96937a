"""``rw-sql fmt``: the layout of statements and queries. Comments keep their places.

Imports: ``syntax``. Imported by: ``cli/fmt.py``. Begin with ``statement.py``.
"""
