"""Topics of an MQTT broker as sources. The broker stores no positions. Instead, the broker sends unacknowledged
messages again after a reconnect.

From ``rw_sql.connectors``, this package may import only ``support`` and the modules beside the families, except
``registry``, ``docs`` and ``connection_types``. Begin with ``source``. The module ``session`` receives and acknowledges
messages through the client class in ``client``. Code outside this folder must not use paho-mqtt directly, only through
these modules.
"""
