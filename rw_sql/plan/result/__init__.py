"""What a lowering returns: the plan, its steps, and the tables of its preview and of EXPLAIN.

What must be confirmed, what ``ALLOW`` permits and what happens outside of the catalog are part of it.

Imports: ``model``, ``requests``. Imported by: ``effects``, ``statements``, ``runtime``.
Begin with ``plan`` and ``steps``.
"""
