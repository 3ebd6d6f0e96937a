"""Defines a subclass of paho's client. Invalid properties of a message do not end the thread of this client. If an
error ends the thread, the client reports the error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.client import Client
    from paho.mqtt.enums import MQTTErrorCode


@cache
def client_class() -> type[Client]:
    """A subclass of paho's client that does not read the properties of messages.

    Brokers forward a message's properties without checking them completely. A property may be invalid, for example
    because it contains the character U+FEFF. For a message with an invalid property, paho's own client raises an error
    in its thread. The thread ends, the connection stays open, and no callback is called. The broker sends the message
    again to each later connection.

    If an error still ends the thread, the subclass calls ``on_failed`` with the error.
    """
    from paho.mqtt.client import Client

    class AnyPropertiesClient(Client):
        on_failed: Callable[[Exception], None]

        def _handle_publish(self) -> MQTTErrorCode:
            qos = (self._in_packet["command"] & 0x06) >> 1
            self._in_packet["packet"] = without_properties(self._in_packet["packet"], qos)
            return super()._handle_publish()

        def _thread_main(self) -> None:
            try:
                super()._thread_main()
            except Exception as error:  # noqa: BLE001 - reported; in a thread, nothing else would catch it
                self.on_failed(error)

    return AnyPropertiesClient


def without_properties(packet: bytearray, qos: int) -> bytearray:
    """The content of a PUBLISH packet, with its properties replaced by an empty list. Raises ValueError if the packet
    ends before its properties end."""
    from paho.mqtt.properties import VariableByteIntegers

    start = 2 + int.from_bytes(packet[:2]) + (2 if qos else 0)
    try:
        size, digits = VariableByteIntegers.decode(packet[start : start + 4])  # type: ignore[no-untyped-call]
    except IndexError:
        size, digits = len(packet), 0
    end = start + digits + size
    if end > len(packet):
        raise ValueError("a message ends before its properties")
    return packet if not size else packet[:start] + b"\0" + packet[end:]
