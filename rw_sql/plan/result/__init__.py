"""Defines the result of a lowering: the plan with its steps, and the tables for the preview and for EXPLAIN.

The package also contains confirmations, the effect of ``ALLOW``, and actions outside the catalog.

Imports: ``model``, ``ports``. Begin with ``plan`` and ``steps``.
"""
