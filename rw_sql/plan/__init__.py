"""Plans statements. A plan is computed from a statement, the catalog and facts about the outside world.

Planning has no side effects and does not use Spark.

*Lowering* a statement means computing its plan. The module ``lower`` calls a function in ``statements``. This function
reads facts through an ``Inspector`` (``ports``), and returns a plan (``result``). The plan contains the steps, the
messages, and the preview that the user confirms.

From top to bottom, the packages and modules are: ``offline`` and ``deploy``, ``lower``, ``statements``, ``effects`` and
``queries``, ``checks`` and ``result``, ``ports``. Within ``plan``, each item of this list may import only the items
after it. From outside ``plan``, the items may import only ``model`` and the layers below ``model``. The package
``runtime`` imports all items. Begin with ``lower`` and ``statements/source/source.py``.
"""
