"""The NATS connector with fakes: keys that are no seeds, and consumers on copies that lag behind. No server runs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.nats import client as nats_client
from rw_sql.connectors.nats import reader
from rw_sql.connectors.nats.source import NatsConnector
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    "seed",
    ["SUAMK2FGXXXX", "not a seed", "-----BEGIN USER NKEY SEED-----\nSUAM", "ü", "", "SUAM" * 40],
)
def test_a_look_names_the_option_whose_value_is_not_a_seed(seed: str) -> None:
    options = {"server_url": "nats://127.0.0.1:1", "stream": "s", "subject": "a", "connect_mode": "credential"}
    seen = NatsConnector().look({**options, "jwt": "e.y.z", "nkey": seed}, timeout=2)
    assert (seen.error, seen.refused_key) == ('property "nkey" is not the seed of a key', "nkey")
    assert "begins with SU" in (seen.hint or "")


class LaggingPull(reader._Pull):
    """A consumer of a server older than 2.11 whose copy lagged behind when the consumer was created: it begins before
    the wanted message, and has caught up since."""

    first: int = 97

    async def open(self, config: Mapping[str, Any]) -> None:
        self._next, self.left = self.first, 4

    async def next(self, count: int, most_bytes: int | None) -> int:
        taken = 0
        while taken < count and self.left:
            taken, self.left = taken + 1, self.left - 1
            at = (1_700_000_000 + self._next) * SECOND
            reply = f"$JS.ACK.S.C.1.{self._next}.{self._delivered + 1}.{at}.{self.left}"
            message: Any = SimpleNamespace(reply=reply, subject="a.x", data=b"%d" % self._next, headers=None)
            await self._take(message)
            self._next += 1
        return taken

    async def require_none_left(self, start: int, end: int) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.fixture
def _lagging(monkeypatch: pytest.MonkeyPatch) -> None:
    async def info_of(*_: Any) -> Any:
        return SimpleNamespace(created="c", first=1, end=110, is_copy=False, subjects=("a.*", "b"))

    monkeypatch.setattr(reader, "_Pull", LaggingPull)
    monkeypatch.setattr(reader, "info_of", info_of)


@pytest.mark.usefixtures("_lagging")
def test_messages_before_the_range_are_not_returned() -> None:
    wanted = reader.StreamRange(stream="S", start=100, end=110, created="c")
    found = reader._Found(wanted=wanted, subjects=("a.x",), with_headers=False, most_bytes=None)
    nobody: Any = None
    asyncio.run(found.read(nobody))
    assert found.table().column("_rw_offset").to_pylist() == [100]


@pytest.mark.usefixtures("_lagging")
def test_a_message_before_the_wanted_time_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def run(self, ask: Any, timeout: float) -> Any:
            return asyncio.run(ask(None))

    monkeypatch.setattr(nats_client.POOL, "use", lambda address, ask: ask(Client()))
    assert reader.first_at((), "S", (1_700_000_000 + 97) * 1000, 1.0) == 97
    with pytest.raises(reader.CopyBehindError, match="lags behind"):
        reader.first_at((), "S", (1_700_000_000 + 100) * 1000, 0.3)


def test_the_group_of_a_stream_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(address: Any, ask: Any) -> Any:
        raise nats_client.StreamMissingError("stream not found")

    monkeypatch.setattr(nats_client.POOL, "use", missing)
    with pytest.raises(SqlError, match="the stream does not exist: stream not found"):
        NatsConnector().group_offsets({"server_url": "h", "stream": "s", "subject": "a"}, "g", ["s"])
