"""The job of a materialized view, and its strategies: how a view's table is kept up to date, one module each.

``idle`` says when a view may stand still, ``swap`` puts a rebuilt table into its place.

Imports: the rooms that serve jobs, and those below. Imported by: ``control``.
Begin with ``job``, then ``strategy``.
"""
