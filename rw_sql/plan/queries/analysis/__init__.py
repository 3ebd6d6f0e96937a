"""Analyzes a query without Spark. The analysis covers the query's names, functions, groups and output columns.

Every error that this package finds is also an error for Spark's analyzer. The package does not check constructs that it
does not recognize. The modules, each of which may import only modules before it, are: ``findings`` (the results),
``data_types``, ``functions`` (Spark's, read from ``functions.json``), ``reading`` (text to tree), ``frames`` (the
columns of FROM), ``names``, ``expressions``, ``grouping``, ``relations``, ``selects``, ``storing``.

Outside this package, the modules may import only ``errors`` and ``syntax``. Begin with ``analyze``.
"""
