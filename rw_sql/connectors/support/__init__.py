"""Code that several connectors share. Examples are readers of records (``records``), conversions of a sink's values,
and files that contain secrets.

This package may import ``base``, ``formats``, ``sink`` and ``spec``, and outside ``connectors`` ``errors``,
``masking``, ``object_stores`` and ``packages``. Begin with ``typed_records``.
"""
