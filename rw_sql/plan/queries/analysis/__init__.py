"""Analyzes a query without Spark: its names, functions, groups, and its output columns.

Spark's analyzer refuses whatever is reported here; what this room does not understand it leaves unchecked. From below:
``findings`` (the results), ``data_types``, ``functions`` (Spark's, read from ``functions.json``), ``reading`` (text to
tree), ``frames`` (the columns of FROM), ``names``, ``expressions``, ``grouping``, ``relations``, ``selects``,
``storing``.

Imports: ``errors``, ``syntax``. Imported by: the rest of ``queries``, and whatever checks SQL before Spark does.
Begin with ``analyze``.
"""
