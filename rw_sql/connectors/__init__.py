"""Connectors: sources (options, split ids and states, a look at the upstream, readers) and sinks (options, writers).

Public, for third-party connectors: ``base``, ``plain``, ``ranged``, ``spec``, ``sink``, ``formats``, ``registry``.

A family (``kafka``, ``files``, ``delta``, ``jdbc``, ``datagen``) imports these and ``support``, never another family.
Imports: ``assets``, ``errors``. Imported by: ``model``, ``plan``, ``runtime``. Begin with ``base``, then
``datagen/source.py``; options are in ``sources/<connector>.toml``.
"""
