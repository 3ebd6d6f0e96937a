"""Prepares the environment of a process whose warehouse is in an object store, so that one set of variables suffices
for all libraries.

The libraries delta-rs, botocore (used by fsspec) and Hadoop read the same settings from variables with different names.
The names in this module are the names of the AWS SDKs
(https://docs.aws.amazon.com/sdkref/latest/guide/environment-variables.html) and of delta-rs's object store
(https://docs.rs/object_store).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

S3_SCHEMES = ("s3", "s3a")


def scheme_of(uri: str) -> str:
    """The scheme of a URI in lower case; empty for a path."""
    scheme, separator, _ = uri.partition("://")
    return scheme.lower() if separator else ""


def s3_endpoint(environ: Mapping[str, str]) -> str | None:
    """The address of the S3 service, if it is not Amazon's own."""
    return environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or environ.get("AWS_ENDPOINT")


def s3_region(environ: Mapping[str, str]) -> str | None:
    """The region, from the first of the two environment variables that is set."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")


def complete_environment(uri: str, environ: MutableMapping[str, str]) -> None:
    """Sets the variables that only one of the libraries reads, derived from the variables that are set.

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
