"""Lowers SHOW and DESCRIBE. This package defines the columns of every listing and computes their values.

From ``plan``, this package imports the neighbours ``view``, ``move`` and ``session``, and the packages in the layers
below ``statements``. Begin with ``objects``. The modules ``jobs``, ``splits`` and ``continuity`` contain further
listings.
"""
