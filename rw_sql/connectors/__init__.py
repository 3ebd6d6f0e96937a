"""Connectors: sources (options, split ids and states, upstream metadata, readers) and sinks (options, writers).

Public modules for other connectors: ``base``, ``plain``, ``ranged``, ``snapshots``, ``spec``, ``sink``, ``formats`` and
``registry``, which lists the built-in connectors.

A family is a folder with connectors, such as ``kafka`` or ``files``. From this package, a family may import
``schemas``, ``support`` and the modules of this folder, except ``registry``, ``docs`` and ``connection_types``. It may
import no other family. From the rest of rw_sql, this package may import only packages that read no catalog, such as
``errors`` and ``masking``.

Begin with ``base``, then ``datagen/source.py``. The options of a source are in ``sources/<connector>.toml``, and the
options of a sink are in ``sources/<connector>.sink.toml``.
"""
