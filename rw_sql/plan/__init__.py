"""Plans statements. A plan is computed from a statement, the catalog and facts about the outside world.

Planning has no side effects and does not use Spark.

*Lowering* a statement means computing its plan. The module ``lower`` calls a function in ``statements``. This function
reads facts through an ``Inspector`` (``ports``) and returns a plan (``result``), which contains steps, messages, and
the preview for the operator.

The following list contains packages and modules. Each of them imports only packages that come after it in the list:
``offline`` and ``deploy``, ``lower``, ``statements``, ``effects`` and ``queries``, ``checks`` and ``result``,
``ports``. All packages of the list may import ``model``. ``runtime`` imports the packages of the list. Begin with
``lower`` and ``statements/source/source.py``.
"""
