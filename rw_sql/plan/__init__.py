"""What a statement will do: statement + catalog + what the world answers → a plan. No effects, no Spark.

``lower`` dispatches to a function in ``statements``; it yields ``requests``, which the runtime answers, and
returns a plan of ``result``: steps, messages, and what an operator is shown first.

Rooms, each importing only those after it: ``statements``, ``effects``, ``queries``, ``checks``, ``result``,
``requests``. All import ``model``; ``runtime`` imports them.
Begin with ``lower``, then ``statements/source/source.py``.
"""
