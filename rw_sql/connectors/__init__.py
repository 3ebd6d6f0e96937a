"""Connectors: sources (options, split ids and states, upstream metadata, readers) and sinks (options, writers).

The modules ``base``, ``plain``, ``ranged``, ``snapshots``, ``spec``, ``sink``, ``formats`` and ``registry`` are public:
third-party connectors may import them.

A family is a folder with connectors, such as ``kafka`` or ``files``. From this package, a family may import the modules
of this folder, ``schemas`` and ``support``, but no other family. From the rest of rw_sql, this package imports
``assets``, ``errors``, ``format_words``, ``masking``, ``object_stores``, ``packages``, ``spark_jars`` and ``version``.

Begin with ``base``, then ``datagen/source.py``. The options of a source are in ``sources/<connector>.toml``, and the
options of a sink are in ``sources/<connector>.sink.toml``. ``registry`` lists the built-in connectors. ``sink_base``
exists only for programs that import ``sink`` under its old name.
"""
