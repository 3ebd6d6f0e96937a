"""Code that several connectors share. Examples are readers of records (``records``), conversions of a sink's values,
and files that contain secrets.

This package may import ``base``, ``formats``, ``sink``, ``spec``, ``object_stores`` and ``packages``. Read
``typed_records`` first.
"""
