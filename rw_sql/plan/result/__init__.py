"""Defines the result of lowering a statement: the plan with its steps, the preview, and the rows of EXPLAIN.

The package also contains the requests for confirmation, the evaluation of ``ALLOW``, and the actions outside the
catalog.

Of the packages of ``plan``, this package imports only ``ports``. Begin with ``plan`` and ``steps``.
"""
