"""Completes the environment variables of a process whose warehouse is in an object store. A user thus sets each setting
only once, although the libraries read it from different variables.

The libraries are delta-rs, botocore (used by fsspec) and Hadoop. The variables in this module are those of the AWS SDKs
(https://docs.aws.amazon.com/sdkref/latest/guide/environment-variables.html) and of delta-rs's object store
(https://docs.rs/object_store).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

S3_SCHEMES = ("s3", "s3a")


def scheme_of(uri: str) -> str:
    """The scheme of a URI in lower case; empty for a path without a scheme."""
    scheme, separator, _ = uri.partition("://")
    return scheme.lower() if separator else ""


def s3_endpoint(environ: Mapping[str, str]) -> str | None:
    """The address of the S3 service. None if no variable names an address; the libraries then use Amazon's own
    service."""
    return environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or environ.get("AWS_ENDPOINT")


def s3_region(environ: Mapping[str, str]) -> str | None:
    """The region, from ``AWS_REGION`` or, if that is not set, from ``AWS_DEFAULT_REGION``; None if neither is set."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")


def complete_environment(uri: str, environ: MutableMapping[str, str]) -> None:
    """If variables for the region or the endpoint are missing, sets them to the values of corresponding variables that
    are set. Does nothing if ``uri`` is not in S3.

    Does not change variables that are already set.
    """
    if scheme_of(uri) not in S3_SCHEMES:
        return
    region, endpoint = s3_region(environ), s3_endpoint(environ)
    if region is not None:
        environ.setdefault("AWS_REGION", region)
        environ.setdefault("AWS_DEFAULT_REGION", region)
    if endpoint is not None:
        # delta-rs reads AWS_ENDPOINT, botocore AWS_ENDPOINT_URL or AWS_ENDPOINT_URL_S3. AWS_ENDPOINT_URL would redirect
        # other services too.
        environ.setdefault("AWS_ENDPOINT", endpoint)
        if "AWS_ENDPOINT_URL" not in environ:
            environ.setdefault("AWS_ENDPOINT_URL_S3", endpoint)
        if endpoint.startswith("http://"):
            environ.setdefault("AWS_ALLOW_HTTP", "true")
