"""One request for many topics: what is said about the others if one of them cannot be read."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pytest

from rw_sql.connectors.kafka.admin import BrokerAdmin, BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REFUSED, GONE, DOWN = (
    ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
    ck.KafkaError._TRANSPORT,
)


class Answering:
    """librdkafka's client on a cluster whose topics answer with these errors; the other topics have five records."""

    def __init__(self, errors: Mapping[str, int]) -> None:
        self.errors = errors

    def poll(self, _: float) -> None:
        """Nothing to report."""

    def _future(self, topic: str, answer: Any) -> Future[Any]:
        future: Future[Any] = Future()
        code = self.errors.get(topic)
        if code is None:
            future.set_result(answer)
        else:
            future.set_exception(ck.KafkaException(ck.KafkaError(code)))
        return future

    def list_offsets(self, asked: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {part: self._future(part.topic, SimpleNamespace(offset=5)) for part in asked}

    def list_topics(self, topic: str, **_: Any) -> None:
        assert topic in self.errors

    def describe_topics(self, asked: Any, **_: Any) -> dict[str, Future[Any]]:
        answer = SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(id=0)])
        return {topic: self._future(topic, answer) for topic in ("a", "b", "c")}


def admin_of(errors: Mapping[str, int]) -> BrokerAdmin:
    admin = BrokerAdmin({"bootstrap.servers": "127.0.0.1:1"}, timeout=60)
    admin._admin = Answering(errors)
    return admin


def test_a_topic_that_may_not_be_read_hides_no_other() -> None:
    admin = admin_of({"a": REFUSED, "b": GONE})
    ends, failed = admin.known_ends([("a", 0), ("b", 0), ("c", 0)])
    assert ends == {("c", 0): 5}
    assert failed.keys() == {("a", 0)}
    assert "authorization failed" in failed["a", 0].lower()
    topics, refused = admin.topic_views(["a", "b", "c"])
    assert topics.keys() == {"c"}
    assert refused.keys() == {"a"}
    # The reader's own check of its topics must not take a refused topic for a deleted one.
    with pytest.raises(BrokerError, match='topic "a"'):
        admin.topic_ids(["a", "b", "c"])


def test_only_a_cluster_that_does_not_answer_is_an_error() -> None:
    refused = admin_of(dict.fromkeys("abc", REFUSED))
    assert refused.known_ends([("a", 0)])[0] == {}
    assert refused.topic_views(["a"])[0] == {}
    down = admin_of(dict.fromkeys("abc", DOWN))
    with pytest.raises(BrokerError):
        down.known_ends([("a", 0), ("b", 0)])
    with pytest.raises(BrokerError):
        down.topic_views(["a", "b"])
