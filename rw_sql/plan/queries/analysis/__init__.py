"""Analyzes a query without Spark. The analysis covers the query's names, functions, groups and output columns.

Spark's analyzer reports each finding as an error too. Constructs that this package does not recognize are not checked.
The modules are, from the lowest to the highest: ``findings`` (the results), ``data_types``, ``functions`` (Spark's,
read from ``functions.json``), ``reading`` (text to tree), ``frames`` (the columns of FROM), ``names``, ``expressions``,
``grouping``, ``relations``, ``selects``, ``storing``.

Imports: ``errors``, ``syntax``. Begin with ``analyze``.
"""
