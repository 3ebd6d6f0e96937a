"""Connectors: sources (options, split ids and states, upstream metadata, readers) and sinks (options, writers).

The public modules, for third-party connectors, are ``base``, ``plain``, ``ranged``, ``snapshots``, ``spec``, ``sink``,
``formats``, ``registry``.

Each family (a folder such as ``kafka`` or ``files``) imports only the modules of this folder, ``schemas`` and
``support``, never another family. Imports: ``assets``, ``errors``, ``object_stores``, ``packages``, ``spark_jars``,
``version``. Begin with ``base``, then ``datagen/source.py``. The options of a source are in
``sources/<connector>.toml``, and the options of a sink are in ``sources/<connector>.sink.toml``; ``registry`` lists the
built-in connectors. ``sink_base`` only keeps an old import path of ``sink``.
"""
