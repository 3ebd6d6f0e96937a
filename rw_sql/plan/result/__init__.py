"""The result of a lowering: the plan, its steps, and the tables of its preview and of EXPLAIN.

The package also contains confirmations, the effect of ``ALLOW``, and actions outside the catalog.

Imports: ``model``, ``ports``. Begin with ``plan`` and ``steps``.
"""
