"""MQTT brokers for tests marked ``mqtt``: mosquitto, with a folder of its own. Import it by ``pytest_plugins``.

If mosquitto is not installed, those tests are left out, and the summary names them.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.missing_servers import register
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(slots=True, kw_only=True)
class MqttBroker:
    """A broker on a fixed port, which can be stopped and started again."""

    home: Path
    port: int
    is_persistent: bool = True
    config: str = ""
    login: tuple[str, str] | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        """The broker's address as a value of ``url``."""
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the broker."""
        found = program()
        assert found is not None, "tests that use it are marked mqtt"
        file = self.home / "mosquitto.conf"
        file.write_text(
            f"listener {self.port} 127.0.0.1\npersistence {'true' if self.is_persistent else 'false'}\n"
            f"persistence_location {self.home}/\nmax_inflight_messages 1000\nmax_queued_messages 100000\n"
            f"allow_anonymous {'false' if self.login else 'true'}\nuser root\n{self.config}\n"
        )
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen([found, "-c", str(file)], stdout=log, stderr=subprocess.STDOUT)
        never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.home / "log").read_text(errors="replace")
            assert time.monotonic() < deadline, (self.home / "log").read_text(errors="replace")
            never.wait(0.02)

    def stop(self) -> None:
        """Ends the broker. A persistent broker writes its sessions to its file when it ends."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False

    def publish(self, topic: str, messages: Sequence[bytes], *, qos: int = 1, retain: bool = False) -> None:
        """Publishes messages in order, and waits until the broker has them."""
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        client: Any = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.max_inflight_messages_set(1000)
        client.max_queued_messages_set(0)
        if self.login:
            client.username_pw_set(*self.login)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            for info in [client.publish(topic, message, qos=qos, retain=retain) for message in messages]:
                info.wait_for_publish(LAST_RESORT_SECONDS)
        finally:
            client.disconnect()
            client.loop_stop()


def program() -> str | None:
    """The broker's program; None if the program is not installed."""
    return shutil.which("mosquitto") or next((path for path in ("/usr/sbin/mosquitto",) if Path(path).exists()), None)


def pytest_configure(config: pytest.Config) -> None:
    """Omits the tests of this server if it is not installed."""
    register(
        config,
        "mqtt",
        "mosquitto is not installed (apt-get install mosquitto)",
        lambda item: item.get_closest_marker("mqtt") is not None and program() is None,
    )


@contextmanager
def mqtt_running(
    *, is_persistent: bool = True, config: str = "", login: tuple[str, str] | None = None
) -> Iterator[MqttBroker]:
    """A broker on a free port. ``config`` is text that is added to its configuration."""
    home = Path(tempfile.mkdtemp(prefix="rw_sql-mqtt-"))
    try:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        if login:
            subprocess.run(
                ["mosquitto_passwd", "-c", "-b", str(home / "users"), *login], check=True, capture_output=True
            )
            config += f"\npassword_file {home / 'users'}"
        broker = MqttBroker(home=home, port=port, is_persistent=is_persistent, config=config, login=login)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def mqtt_broker() -> Iterator[MqttBroker]:
    """A running broker without authentication."""
    with mqtt_running() as running:
        yield running
