"""Pulsar topics as sources in a live session: what is read, and partitions that are added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.pulsar.ids import offset_from_text
from rw_sql.errors import SqlError
from tests.integration.attached import wait_until
from tests.support.pulsar_server import new_name

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.support.pulsar_server import PulsarServer

pytestmark = [pytest.mark.spark, pytest.mark.pulsar, pytest.mark.usefixtures("quick_discovery")]


def test_a_topic_that_grows(session: AttachedSession, pulsar_server: PulsarServer) -> None:
    session.allow_unsafe()
    topic = new_name()
    first, second = f"{topic}-partition-0", f"{topic}-partition-1"
    pulsar_server.create(topic, 1)
    with_options = f"connector = 'pulsar', service.url = '{pulsar_server.url}'"
    with pytest.raises(SqlError) as missing:
        session.sql(f"CREATE SOURCE c (id INT) WITH ({with_options}, topic = 'no/such/t') FORMAT PLAIN ENCODE JSON")
    assert 'the upstream of source "c" has no topic "no/such/t"' in missing.value.render()
    session.run(
        "CREATE SOURCE c (id INT) INCLUDE key AS key INCLUDE partition AS part INCLUDE offset AS seq "
        "INCLUDE payload AS payload INCLUDE header 'app' AS app INCLUDE message_id_data AS data "
        f"WITH ({with_options}, topic = '{topic}', subscription.name = 's-{topic}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id, seq, part, CAST(key AS STRING) AS key, payload, "
        "CAST(app AS STRING) AS app FROM c",
    )
    sent = pulsar_server.send(
        first, [b'{"id": 1}', b"not JSON", b'{"id": 3}'], key="k", batch=3, properties={"app": "a"}
    )
    ids = [text.replace(":-1:", ":0:") for text in sent]
    wait_until(lambda: len(session.rows_of("v")) == 2, "they are read")
    assert session.flushed_rows_of("v") == [
        (1, ids[0], first, "k", '{"id": 1}', "a"),
        (3, ids[2], first, "k", '{"id": 3}', "a"),
    ]
    offsets = [offset_from_text(text) or 0 for text in sent]
    assert session.sql("SELECT offset, reason IS NOT NULL FROM `c$errors`")[0] == (str(offsets[1]), True)
    assert session.sql("SELECT count(*) FROM c WHERE data IS NOT NULL")[0][0] == 2
    assert {split: str(at) for split, at in session.positions("c").items()} == {first: str(offsets[2] + 1)}
    (shown,) = session.sql("SHOW SOURCE SPLITS c")
    assert (shown.next, shown.log_end, shown.lag, shown.status) == (str(offsets[2] + 1), str(offsets[2] + 1), 0, "OK")

    # A partition is added while the source runs, and read from its first message.
    pulsar_server.grow(topic, 2)
    pulsar_server.send(second, [b'{"id": %d}' % number for number in range(10, 30)], batch=7)
    wait_until(lambda: session.sql("SELECT count(*) FROM v")[0][0] == 22, "the new partition is read")
    assert session.sql("SELECT count(DISTINCT seq) FROM v")[0][0] == 22
    session.sql("DROP SOURCE c CASCADE")
