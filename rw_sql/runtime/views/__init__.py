"""Contains the job of a materialized view, and the strategies for keeping the view's table up to date (one module per
strategy).

The module ``swap`` replaces a view's table with a rebuilt table. ``own_rows`` delays the batches of a table of a
captured database while only other tables change.

Imports: the packages that serve jobs, and the packages below these. Begin with ``job`` and ``strategy``.
"""
