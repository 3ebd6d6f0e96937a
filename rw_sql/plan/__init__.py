"""Plans statements. A plan is computed from a statement, the catalog and facts about the outside world.

Planning has no side effects and does not use Spark.

*Lowering* a statement means computing its plan. The module ``lower`` calls a function in ``statements``. This function
reads facts through an ``Inspector`` (``ports``) and returns a plan (``result``), which contains steps, messages, and
the preview for the operator.

From top to bottom, the packages and modules are: ``offline`` and ``deploy``, ``lower``, ``statements``, ``effects`` and
``queries``, ``checks`` and ``result``, ``ports``. Each of them imports only those that come after it in this list, and
may import ``model``. ``runtime`` imports all of them. Begin with ``lower`` and ``statements/source/source.py``.
"""
