"""Translates queries from RisingWave's SQL to Spark's, and finds the names that a Spark statement would change.

Imports: ``near_statements``, ``parsing``, ``query``, ``sql_reader``, ``statements``, ``lexing``. Begin with
``to_spark``.
"""
