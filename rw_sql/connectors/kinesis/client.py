"""Makes requests to Kinesis. The module keeps clients open, retries requests, and turns errors into messages without
secrets."""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.support.messages import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

LIFE_SECONDS = 300.0
"""The maximum age of a client in seconds; the limit exists because host names and credentials may change."""

_CONNECTION_KEYS = (
    "aws.region",
    "endpoint",
    "aws.credentials.access_key_id",
    "aws.credentials.secret_access_key",
    "aws.credentials.session_token",
    "aws.credentials.role.arn",
    "aws.credentials.role.external_id",
    "kinesis.sdk.connect_timeout_ms",
    "kinesis.sdk.read_timeout_ms",
    "kinesis.sdk.max_retry_limit",
    "kinesis.sdk.init_backoff_ms",
    "kinesis.sdk.max_backoff_ms",
)
_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "KMSThrottlingException",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "InternalFailure",
        "InternalFailureException",
        "ServiceUnavailable",
    }
)
_CREDENTIALS = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "ExpiredTokenException",
    }
)
_REFUSED = _CREDENTIALS | {"AccessDeniedException", "AccessDenied"}
_SECRETS = ("aws.credentials.access_key_id", "aws.credentials.secret_access_key", "aws.credentials.session_token")
_DENIED = re.compile(r"not authorized to perform: ([a-zA-Z0-9:]+)")

Address = tuple[tuple[str, str], ...]
"""The options that determine a connection, sorted."""


class KinesisError(Exception):
    """Raised if the service does not respond or refuses a request. The message contains no secret."""


class StreamMissingError(KinesisError):
    """Raised if the stream or the shard does not exist."""


class IteratorExpiredError(KinesisError):
    """Raised if the shard iterator has expired because it is older than five minutes. The caller must then request a
    new iterator for the record at which the expired iterator was."""


class NotANumberError(KinesisError):
    """Raised if the service refuses a number because it is not the sequence number of a record."""


def address_of(options: Mapping[str, str]) -> Address:
    """The options of a source that determine its connection."""
    return tuple((key, options[key]) for key in _CONNECTION_KEYS if key in options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard as the stream lists it. No record of the shard has a sequence number below ``start``.

    ``is_open`` is True if the shard may get further records. ``parents`` are the shards that were split or merged into
    this shard. Records with hash keys from ``low`` to ``high``, both included, belong to the shard.
    """

    id: str
    start: int
    is_open: bool
    parents: tuple[str, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream. ``shards`` maps the id of each shard to the shard. ``created`` is the time of the stream's creation."""

    arn: str
    created: str
    created_ms: int
    retention_ms: int
    shards: Mapping[str, Shard]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """One record as Kinesis returns it. ``number`` is its sequence number, and ``at_us`` is its time of arrival in
    microseconds since 1970."""

    number: int
    key: str
    data: bytes
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The response to one request for records. ``next`` is the iterator for the next request; None at the end of a
    closed shard. ``behind_ms`` is the time in milliseconds between the last returned record and the shard's newest
    record."""

    records: tuple[RawRecord, ...]
    next: str | None
    behind_ms: int


class _Clients:
    """The clients of this process, one per address. Several threads can use a client at the same time."""

    def __init__(self) -> None:
        self._known: dict[Address, tuple[float, Any]] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def of(self, address: Address) -> Any:
        """The client of an address."""
        with self._lock:
            if self._pid != os.getpid():
                self._known, self._pid = {}, os.getpid()
            made, client = self._known.get(address, (0.0, None))
            if client is None or time.monotonic() - made > LIFE_SECONDS:
                client = _new_client(dict(address))
                self._known[address] = (time.monotonic(), client)
            return client

    def renew(self, address: Address) -> None:
        """Makes later calls of :meth:`of` use a new client."""
        with self._lock:
            self._known.pop(address, None)


CLIENTS = _Clients()


def _new_client(options: Mapping[str, str]) -> Any:
    from botocore.config import Config

    def seconds(key: str, default: int) -> float:
        return max(1, int(options.get(key, default))) / 1000

    config = Config(
        connect_timeout=seconds("kinesis.sdk.connect_timeout_ms", 10_000),
        read_timeout=seconds("kinesis.sdk.read_timeout_ms", 10_000),
        # This module retries requests itself, within the caller's time limit.
        retries={"total_max_attempts": 1, "mode": "standard"},
        user_agent_extra="rw_sql",
    )
    session = _session(options)
    if role := options.get("aws.credentials.role.arn"):
        session = _with_role(session, role, options)
    return session.create_client(
        "kinesis", region_name=options["aws.region"], endpoint_url=options.get("endpoint"), config=config
    )


@cache
def _loader() -> Any:
    """The loader that all sessions share. Without a shared loader, each new session would read the models of the
    services again."""
    from botocore.session import Session

    return Session().get_component("data_loader")


def _session(options: Mapping[str, str]) -> Any:
    """Returns a new session with the keys in the options. If the options contain no keys, the session uses the
    machine's credentials. A session reads the files with credentials only once. Therefore, each new client gets a new
    session."""
    from botocore.session import Session

    session = Session()
    session.register_component("data_loader", _loader())
    session.set_config_variable("region", options["aws.region"])
    key, secret = options.get("aws.credentials.access_key_id"), options.get("aws.credentials.secret_access_key")
    if key is not None and secret is not None:
        session.set_credentials(key, secret, options.get("aws.credentials.session_token"))
    return session


def _with_role(session: Any, role: str, options: Mapping[str, str]) -> Any:
    """Makes a session that assumes a role and renews its credentials. Raises KinesisError if ``session`` has no
    credentials."""
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    source = session.get_credentials()
    if source is None:
        raise KinesisError(f"this machine has no credentials with which the role {role} could be assumed")
    external_id = options.get("aws.credentials.role.external_id")
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=session.create_client,
        source_credentials=source,
        role_arn=role,
        extra_args={"ExternalId": external_id} if external_id else {},
    )
    made = _session({"aws.region": options["aws.region"]})
    made._credentials = DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)
    return made


def request(address: Address, name: str, timeout: float, **given: Any) -> dict[str, Any]:
    """Makes a request. Repeats it after a connection error, or if the service is busy or throttles it. Stops after
    ``kinesis.sdk.max_retry_limit`` retries, or when the next retry would begin after ``timeout`` seconds. Raises
    KinesisError."""
    from botocore.exceptions import BotoCoreError, ClientError

    options = dict(address)
    wait = int(options.get("kinesis.sdk.init_backoff_ms", 1000)) / 1000
    most = int(options.get("kinesis.sdk.max_backoff_ms", 20_000)) / 1000
    left = int(options.get("kinesis.sdk.max_retry_limit", 3))
    deadline = time.monotonic() + timeout
    while True:
        try:
            answer: dict[str, Any] = getattr(CLIENTS.of(address), name)(**given)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _CREDENTIALS:
                # The next request reads the machine's credentials again, which may have been replaced.
                CLIENTS.renew(address)
            if code not in _THROTTLED or left <= 0 or time.monotonic() + wait > deadline:
                raise _refused(code, error, options) from error
        except BotoCoreError as error:
            CLIENTS.renew(address)
            if left <= 0 or time.monotonic() + wait > deadline:
                raise KinesisError(_one_line(error, options)) from error
        else:
            return answer
        left -= 1
        time.sleep(wait)
        wait = min(2 * wait, most)


def _refused(code: str, error: Exception, options: Mapping[str, str]) -> KinesisError:
    line = _one_line(error, options)
    told = line.partition("operation: ")[2] or line
    if code == "ResourceNotFoundException":
        return StreamMissingError(told)
    if code == "ExpiredIteratorException":
        return IteratorExpiredError(told)
    if code == "InvalidArgumentException":
        return NotANumberError(told)
    if (denied := _DENIED.search(told)) is not None:
        return KinesisError(f"the user may not {denied[1]}: allow this action in the policy of the user or role")
    if code in _REFUSED:
        return KinesisError(f"authentication failed ({code})")
    return KinesisError(f"{code}: {told}" if code in _THROTTLED else told)


def _one_line(error: Exception, options: Mapping[str, str]) -> str:
    return " ".join((without_secrets(str(error), options, _SECRETS) or type(error).__name__).split())


def stream_of(address: Address, name: str, timeout: float) -> Stream:
    """Requests a stream and its shards. Raises StreamMissingError or KinesisError."""
    found = request(address, "describe_stream_summary", timeout, StreamName=name)["StreamDescriptionSummary"]
    shards: dict[str, Shard] = {}
    page = request(address, "list_shards", timeout, StreamName=name)
    while True:
        for listed in page["Shards"]:
            shard = _shard(listed)
            shards[shard.id] = shard
        if not (token := page.get("NextToken")):
            break
        page = request(address, "list_shards", timeout, NextToken=token)
    created = found["StreamCreationTimestamp"]
    return Stream(
        arn=str(found["StreamARN"]),
        created=_utc(created).isoformat().replace("+00:00", "Z"),
        created_ms=int(created.timestamp() * 1000),
        retention_ms=int(found["RetentionPeriodHours"]) * 3_600_000,
        shards=dict(sorted(shards.items())),
    )


def stream_names(address: Address, timeout: float) -> tuple[str, ...]:
    """The streams of the account in this region, sorted."""
    found: list[str] = []
    page = request(address, "list_streams", timeout)
    while True:
        found += page["StreamNames"]
        if not page.get("HasMoreStreams") or not page["StreamNames"]:
            return tuple(sorted(found))
        page = request(address, "list_streams", timeout, ExclusiveStartStreamName=found[-1])


def iterator(address: Address, stream: str, shard: str, kind: str, timeout: float, **given: Any) -> str:
    """Requests an iterator of a shard. ``kind`` is Kinesis's type of the iterator. Raises StreamMissingError,
    NotANumberError or KinesisError."""
    found = request(
        address,
        "get_shard_iterator",
        timeout,
        StreamName=stream,
        ShardId=shard,
        ShardIteratorType=kind,
        **given,
    )
    return str(found["ShardIterator"])


def iterator_at(address: Address, stream: str, shard: Shard, offset: int, timeout: float) -> str:
    """Returns an iterator that begins at the first record whose sequence number is at least ``offset``. If that record
    was removed, the iterator begins at a later record.

    ``offset`` must be the sequence number of a record, or the sequence number of a record plus one. Kinesis accepts
    only sequence numbers of records. If Kinesis refuses ``offset``, the iterator begins after the record ``offset -
    1``.
    """
    if offset <= shard.start:
        return iterator(address, stream, shard.id, "TRIM_HORIZON", timeout)
    try:
        return iterator(address, stream, shard.id, "AT_SEQUENCE_NUMBER", timeout, StartingSequenceNumber=str(offset))
    except NotANumberError:
        kind = "AFTER_SEQUENCE_NUMBER"
        return iterator(address, stream, shard.id, kind, timeout, StartingSequenceNumber=str(offset - 1))


def next_page(address: Address, at: str, limit: int, timeout: float) -> Page:
    """The next records of an iterator. Raises IteratorExpiredError or KinesisError."""
    found = request(address, "get_records", timeout, ShardIterator=at, Limit=limit)
    records = tuple(
        RawRecord(
            number=int(record["SequenceNumber"]),
            key=str(record["PartitionKey"]),
            data=record["Data"],
            at_us=_microseconds(record["ApproximateArrivalTimestamp"]),
        )
        for record in found["Records"]
    )
    behind = int(found.get("MillisBehindLatest") or 0)
    return Page(records=records, next=found.get("NextShardIterator") or None, behind_ms=behind)


def _shard(listed: Mapping[str, Any]) -> Shard:
    numbers, hashes = listed["SequenceNumberRange"], listed["HashKeyRange"]
    parents = (listed.get("ParentShardId"), listed.get("AdjacentParentShardId"))
    return Shard(
        id=str(listed["ShardId"]),
        start=int(numbers["StartingSequenceNumber"]),
        is_open=numbers.get("EndingSequenceNumber") is None,
        parents=tuple(parent for parent in parents if parent),
        low=int(hashes["StartingHashKey"]),
        high=int(hashes["EndingHashKey"]),
    )


def _utc(moment: datetime) -> datetime:
    from datetime import UTC

    return moment.astimezone(UTC)


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
