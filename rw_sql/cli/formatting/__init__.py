"""``rw-sql fmt``: the layout of statements and queries. Comments keep their places.

Imports: ``syntax``. Begin with ``statement.py``.
"""
