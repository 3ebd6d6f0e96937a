"""Spark's settings and packages for a warehouse in an object store.

The settings for S3 are derived from the environment variables that the AWS tools use. For Google's and Azure's stores,
the user provides the settings.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from rw_sql.errors import LIBRARY_MISSING, SqlError
from rw_sql.runtime.spark.jar_cache import spark_folder
from rw_sql.runtime.spark.jvm import hadoop_configuration, java_class
from rw_sql.runtime.support.store_environment import S3_SCHEMES, s3_endpoint, s3_region, scheme_of
from rw_sql.spark_jars import installed_jars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

_SDK_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client")
"""The modules of the AWS SDK that S3A uses.

Only these modules are loaded, because the SDK bundle on which hadoop-aws depends contains all services and is 680 MB in
size.
"""

EXCLUDED = "software.amazon.awssdk:bundle"
"""A dependency of :func:`store_packages` that Spark must not load."""

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


_GOOGLE = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
_AZURE = "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"
_OTHER_STORES = {"gs": _GOOGLE, "abfs": _AZURE, "abfss": _AZURE}
"""Hadoop's file systems for Google's and Azure's stores, by URI scheme. The user must add their jars."""

_HADOOP_PREFIX = "spark.hadoop."


def store_packages(uri: str) -> tuple[str, ...]:
    """The Maven coordinates that Spark needs for a warehouse at this URI, in addition to Delta's coordinates."""
    if scheme_of(uri) not in S3_SCHEMES:
        return ()
    jars = installed_jars()
    sdk = (f"software.amazon.awssdk:{module}:{jars.aws_sdk}" for module in _SDK_MODULES)
    return (f"org.apache.hadoop:hadoop-aws:{_hadoop_version() or jars.hadoop}", *sdk)


def store_settings(uri: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a warehouse at this URI.

    The settings contain no access keys, because Spark reads the keys from the environment.

    Requests to S3-compatible stores other than Amazon's have the bucket's name in the URL's path, as most of these
    stores require. If ``AWS_VIRTUAL_HOSTED_STYLE_REQUEST`` is true, the bucket's name is in the host name instead.
    Credentials may come from ``AWS_PROFILE`` or from a web identity (Kubernetes service accounts), and are refreshed
    when they expire.
    """
    if scheme_of(uri) not in S3_SCHEMES:
        return {}
    settings = {
        "spark.hadoop.fs.s3.impl": _S3A,
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    }
    region, endpoint = s3_region(environ), s3_endpoint(environ)
    if region is not None:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    if endpoint is not None:
        is_hosted = environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true"
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "false" if is_hosted else "true"
        settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    provider = _provider(environ)
    if provider is not None:
        settings["spark.hadoop.fs.s3a.aws.credentials.provider"] = provider
    return settings


def require_store(spark: SparkSession, uri: str) -> None:
    """Configures a session for a warehouse at this URI. Does nothing if rw_sql itself started the session, because the
    session then has the required settings.

    For S3, adds missing settings to the session's Hadoop configuration. If the session has no file system for the
    store, raises SqlError LIBRARY_MISSING with the packages needed to start Spark.
    """
    scheme = scheme_of(uri)
    if scheme in _OTHER_STORES:
        _require_file_system(spark, uri, scheme)
    if scheme not in S3_SCHEMES:
        return
    try:
        _load_class(spark, _S3A)
    except Py4JJavaError as error:
        packages = ",".join(store_packages(uri))
        raise SqlError(
            LIBRARY_MISSING,
            f"this Spark session cannot read {uri}: it was started without Hadoop's S3A",
            hint=f'start it with --packages "{packages}" --exclude-packages {EXCLUDED}, or by rw_sql.connect("{uri}")',
        ) from error
    configuration = hadoop_configuration(spark)
    for key, value in store_settings(uri, os.environ).items():
        name = key.removeprefix(_HADOOP_PREFIX)
        if name != key and not _is_set(configuration.getPropertySources(name)):
            configuration.set(name, value)


def _require_file_system(spark: SparkSession, uri: str, scheme: str) -> None:
    """Raises SqlError LIBRARY_MISSING if the session has no file system for a store of Google or Azure."""
    try:
        _load_class(spark, _OTHER_STORES[scheme])
    except Py4JJavaError:
        try:
            # The user may have configured another file system for the scheme.
            java_class(spark, "org.apache.hadoop.fs.FileSystem").getFileSystemClass(scheme, hadoop_configuration(spark))
        except Py4JJavaError as error:
            name, hint = _words_for_google(uri) if scheme == "gs" else _words_for_azure(uri)
            message = f"this Spark session cannot read {uri}: it was started without {name}"
            raise SqlError(LIBRARY_MISSING, message, hint=hint) from error


def _words_for_google(uri: str) -> tuple[str, str]:
    """Returns the name of the missing file system for Google's store, and the way to add it."""
    jar = "gcs-connector-VERSION-shaded.jar"
    return "Google's connector for Hadoop", (
        f"start it with the shaded jar of com.google.cloud.bigdataoss:gcs-connector, in a version for Hadoop 3: "
        f'--jars {jar}, or rw_sql.connect("{uri}", config={{"spark.jars": "{jar}"}})'
    )


def _words_for_azure(uri: str) -> tuple[str, str]:
    """Returns the name of the missing file system for Azure's store, and the way to add it."""
    package = f"org.apache.hadoop:hadoop-azure:{_hadoop_version() or installed_jars().hadoop}"
    return "Hadoop's ABFS", (
        f'start it with --packages {package}, or by rw_sql.connect("{uri}", '
        f'config={{"spark.jars.packages": "{package}"}})'
    )


def _load_class(spark: SparkSession, name: str) -> None:
    """Loads a Java class. Raises Py4JJavaError if the session's class path does not contain the class."""
    thread = java_class(spark, "java.lang.Thread").currentThread()
    java_class(spark, "java.lang.Class").forName(name, False, thread.getContextClassLoader())


def _is_set(sources: Sequence[str] | None) -> bool:
    """True if a Hadoop property has a value that does not come from Hadoop's defaults."""
    return sources is not None and set(sources) != {"core-default.xml"}


def _provider(environ: Mapping[str, str]) -> str | None:
    """The AWS SDK's credentials provider for credentials that S3A's default providers do not find; None if the default
    providers suffice."""
    if "AWS_ACCESS_KEY_ID" in environ:
        return None
    if "AWS_WEB_IDENTITY_TOKEN_FILE" in environ:
        return "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
    if "AWS_PROFILE" in environ:
        return "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
    return None


def _hadoop_version() -> str | None:
    """The version of Hadoop that the installed PySpark contains; None if PySpark contains no Hadoop."""
    for jar in spark_folder().glob("jars/hadoop-client-api-*.jar"):
        match = re.fullmatch(r"hadoop-client-api-([\d.]+)\.jar", jar.name)
        if match is not None:
            return match[1]
    return None
