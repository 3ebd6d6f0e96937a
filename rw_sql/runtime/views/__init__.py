"""The job of a materialized view, and the strategies for keeping its table up to date (one module per strategy).

``idle`` decides when a view's query is suspended, ``swap`` replaces a view's table by a rebuilt one.

Imports: the rooms that serve jobs, and those below. Begin with ``job``, then ``strategy``.
"""
