"""``rw-sql fmt``: the layout of statements and queries, with their comments where they are.

Imports: ``syntax``. Imported by: ``cli/fmt.py``. Begin with ``statement.py``.
"""
