"""Analyzes a query without Spark. The analysis covers the query's names, functions, groups and output columns.

Every error that this package finds is also an error for Spark's analyzer. The package does not check constructs that it
does not recognize. Each of the following modules may import only the modules before it in this list: ``findings`` (the
results), ``data_types``, ``functions`` (Spark's, read from ``spark_functions``), ``reading`` (text to tree), ``frames``
(the columns of FROM), ``names``, ``expressions``, ``grouping``, ``relations``, ``selects``, ``storing``.

From outside this package, the modules may import only ``errors``, ``spark_jars`` and ``syntax``.
Begin with ``analyze``.
"""
