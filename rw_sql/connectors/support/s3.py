"""Checks whether an S3-compatible store responds and accepts the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rw_sql.connectors.sink import SinkLook
from rw_sql.object_stores import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANSWERED = ("ACCESS_DENIED", "AccessDenied", "HTTP status 403 (Forbidden)")
"""The errors of a request to list buckets that show that the keys are valid, but lack the permission to list
buckets."""

_UNKNOWN_KEYS = ("InvalidAccessKeyId", "INVALID_ACCESS_KEY_ID", "SignatureDoesNotMatch", "SIGNATURE_DOES_NOT_MATCH")


def look_at_store(options: Mapping[str, str], *, timeout: float) -> SinkLook:
    """Checks the keys by listing the buckets.

    Valid keys that lack the permission to list buckets also pass the check. Errors are returned, never raised.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, FileSelector, S3FileSystem

    endpoint = urlsplit(options.get("s3.endpoint", ""))
    made = {
        "access_key": options.get("s3.access.key"),
        "secret_key": options.get("s3.secret.key"),
        "region": options.get("s3.region"),
        "endpoint_override": endpoint.netloc or None,
        "scheme": endpoint.scheme or None,
    }
    where = options.get("s3.endpoint", "s3")
    try:
        store = S3FileSystem(
            **{key: value for key, value in made.items() if value is not None},
            connect_timeout=timeout,
            request_timeout=timeout,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
        )
        store.get_file_info(FileSelector(""))
    except (OSError, ValueError) as error:
        text = str(error)
        if any(word in text for word in _UNKNOWN_KEYS):
            return SinkLook(error=f"{where}: it rejects the access key or the secret key")
        if any(word in text for word in _ANSWERED):
            return SinkLook()
        return SinkLook(error=f"{where}: {one_line(text)}")
    return SinkLook()
