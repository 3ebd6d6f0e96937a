"""Options, names of splits and messages of the Kinesis connector, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from rw_sql.connectors.kinesis import client as kinesis_client
from rw_sql.connectors.kinesis.source import KinesisConnector
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from pathlib import Path

KINESIS = KinesisConnector()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"stream": "a b"}, "names 'a b', which is not a stream"),
        ({"aws.credentials.secret_access_key": None}, 'missing property "aws.credentials.secret_access_key"'),
        ({"scan.startup.mode": "timestamp"}, 'missing property "scan.startup.timestamp.millis"'),
        ({"scan.startup.timestamp.millis": "5"}, "has no meaning with scan.startup.mode = 'earliest'"),
        ({"scan.startup.mode": "oldest"}, "must be earliest, latest or timestamp"),
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


@pytest.fixture
def credentials_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the machine's credentials; the machine has no other credentials."""
    file = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return file


def written_keys(file: Path, key: str) -> None:
    file.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=x\naws_session_token=t\n")


def key_of(address: kinesis_client.Address) -> str:
    key: str = kinesis_client.CLIENTS.of(address)._get_credentials().access_key
    return key


def test_replaced_credentials_of_the_machine_are_read_again(credentials_file: Path) -> None:
    written_keys(credentials_file, "OLD")
    address = kinesis_client.address_of({"aws.region": "r-replaced"})
    assert key_of(address) == "OLD"
    written_keys(credentials_file, "NEW")
    KINESIS.reconnect(dict(address))
    assert key_of(address) == "NEW"


def test_a_request_after_refused_credentials_reads_them_again(
    credentials_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_keys(credentials_file, "OLD")
    address = kinesis_client.address_of({"aws.region": "r-refused"})
    used = []

    def refuse(self: Any, name: str, parameters: Any) -> Any:
        used.append(self._get_credentials().access_key)
        raise ClientError({"Error": {"Code": "ExpiredTokenException", "Message": "expired"}}, name)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    for key in ("NEW", "NEWER"):
        with pytest.raises(kinesis_client.KinesisError, match="authentication failed \\(ExpiredTokenException\\)"):
            kinesis_client.request(address, "list_streams", 1.0)
        written_keys(credentials_file, key)
    assert used == ["OLD", "NEW"]


def test_the_keys_in_the_options_come_before_those_of_the_machine(credentials_file: Path) -> None:
    written_keys(credentials_file, "OLD")
    own = {"aws.credentials.access_key_id": "OWN", "aws.credentials.secret_access_key": "x"}
    assert key_of(kinesis_client.address_of({"aws.region": "r-own", **own})) == "OWN"


def test_a_role_needs_credentials_of_the_machine(credentials_file: Path) -> None:
    role = {"aws.region": "r", "aws.credentials.role.arn": "arn:aws:iam::1:role/reader"}
    seen = KINESIS.look({**role, "stream": "orders"}, timeout=2)
    assert seen.error is not None
    assert "no credentials with which the role arn:aws:iam::1:role/reader could be assumed" in seen.error
