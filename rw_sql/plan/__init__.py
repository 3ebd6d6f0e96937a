"""Plans statements: computes a plan from a statement, the catalog and facts about the outside world.

Planning has no side effects and does not use Spark.

*Lowering* a statement means computing its plan. ``lower`` dispatches to a function in ``statements``, which reads facts
through an ``Inspector`` (``ports``) and returns a plan (``result``): steps, messages, and the preview for the operator.

Each of these packages and modules imports only the ones after it in this list: ``offline`` and ``deploy``, ``lower``,
``statements``, ``effects`` and ``queries``, ``checks`` and ``result``, ``ports``. All of them may import ``model``, and
``runtime`` imports them. Begin with ``lower``, then ``statements/source/source.py``.
"""
