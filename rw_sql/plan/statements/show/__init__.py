"""SHOW and DESCRIBE: the columns of every listing, and how their values are computed.

Imports: ``view``, ``move`` and the rooms of ``plan`` below ``statements``. Begin with ``objects``; ``jobs``,
``splits`` and ``continuity`` list the rest.
"""
