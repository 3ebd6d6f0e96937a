"""Topics of an MQTT broker as sources. The broker stores no positions; it sends unacknowledged messages again.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``; ``session`` receives messages and
acknowledges them by a client of ``client``. All code outside this folder uses paho-mqtt only through these modules.
"""
