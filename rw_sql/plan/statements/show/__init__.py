"""SHOW and DESCRIBE: defines the columns of every listing, and computes their values.

Imports: ``view``, ``move``, ``session`` and the packages of ``plan`` below ``statements``. Begin with ``objects``;
``jobs``, ``splits`` and ``continuity`` list the rest.
"""
