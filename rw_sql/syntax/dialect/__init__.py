"""Translates queries from RisingWave's SQL to Spark's SQL. Also finds the names of the objects that a Spark statement
would change.

The module ``to_spark`` translates the constructs and functions that ``lists`` contains, and refuses all other
constructs and functions. ``equivalents`` contains Spark's equivalents of refused constructs, for hints.

From ``syntax``, this package imports ``near_statements``, ``parsing``, ``query``, ``sql_reader``, ``statements`` and
``lexing``. Begin with ``to_spark``.
"""
