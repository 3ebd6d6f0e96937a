"""Options, names of splits and messages of the Kinesis connector, without a server."""

from __future__ import annotations

import pytest

from rw_sql.connectors.kinesis import client as kinesis_client
from rw_sql.connectors.kinesis.source import KinesisConnector
from rw_sql.errors import SqlError

KINESIS = KinesisConnector()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"stream": "a b"}, "names 'a b', which is not a stream"),
        ({"aws.credentials.secret_access_key": None}, 'missing property "aws.credentials.secret_access_key"'),
        ({"scan.startup.mode": "timestamp"}, 'missing property "scan.startup.timestamp.millis"'),
        ({"scan.startup.timestamp.millis": "5"}, "has no meaning with scan.startup.mode = 'earliest'"),
        ({"scan.startup.mode": "oldest"}, "must be one of earliest, latest, timestamp"),
    ],
)
def test_options_that_do_not_fit(change: dict[str, str | None], told: str) -> None:
    given = {
        "stream": "s",
        "aws.region": "r",
        "aws.credentials.access_key_id": "a",
        "aws.credentials.secret_access_key": "b",
        **change,
    }
    with pytest.raises(SqlError, match=told):
        KINESIS.check_options({key: value for key, value in given.items() if value is not None})


def test_names_of_splits() -> None:
    assert KINESIS.resolve_split({}, "0") == "shardId-000000000000"
    assert KINESIS.resolve_split({}, "shardId-000000000012") == "shardId-000000000012"
    with pytest.raises(SqlError, match="not a split"):
        KINESIS.resolve_split({}, "orders:0")


def test_a_denied_action_is_named() -> None:
    said = (
        "An error occurred (AccessDeniedException) when calling the ListShards operation: User: arn:aws:iam::1:u is "
        "not authorized to perform: kinesis:ListShards on resource: arn:aws:kinesis:eu-central-1:1:stream/s"
    )
    denied = kinesis_client._refused("AccessDeniedException", Exception(said), {})
    assert str(denied) == "the user may not kinesis:ListShards: allow this action in the policy of the user or role"
    other = kinesis_client._refused("InvalidSignatureException", Exception("x operation: the key AKIA… is wrong"), {})
    assert str(other) == "authentication failed (InvalidSignatureException)"
