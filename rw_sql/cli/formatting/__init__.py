"""``rw-sql fmt``: the layout of statements and queries. Comments keep their places.

Imports: ``syntax``, ``interface``, ``terminal``. Begin with ``command``, then ``statement``.
"""
