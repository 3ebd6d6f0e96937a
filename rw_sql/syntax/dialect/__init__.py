"""Translates queries from RisingWave's SQL to Spark's, and finds the names that a Spark statement would change.

Imports: ``query``, ``parsing``, ``routing``, ``lexing``. Begin with ``to_spark``.
"""
