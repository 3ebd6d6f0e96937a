"""Lowers SHOW and DESCRIBE. The package defines the columns of every listing, and computes the values of these columns.

Imports: ``view``, ``move``, ``session`` and the packages of ``plan`` below ``statements``. Begin with ``objects``. The
modules ``jobs``, ``splits`` and ``continuity`` contain further listings.
"""
