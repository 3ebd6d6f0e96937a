"""Plans statements: a statement, the catalog and facts about the outside world become a plan. No effects, no Spark.

``lower`` dispatches to a function in ``statements``. That function reads the outside world through an ``Inspector``
(``ports``). It returns a plan of ``result``: steps, messages, and the preview for the operator.

Rooms, each importing only those after it: ``statements``, ``effects``, ``queries``, ``checks``, ``result``,
``ports``. All import ``model``; ``runtime`` imports them. Begin with ``lower``, then
``statements/source/source.py``.
"""
