"""The settings of a warehouse in S3 follow from the variables that the AWS tools read; another scheme needs none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JJavaError

from rw_sql.errors import SqlError
from rw_sql.runtime.support.store_environment import complete_environment
from rw_sql.session import attach as attach_module
from rw_sql.session import store_settings as store_settings_module
from rw_sql.session.spark_settings import session_settings
from rw_sql.session.store_settings import _OTHER_STORES, EXCLUDED, require_store, store_packages, store_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URI = "s3://bucket/warehouse"
_S3A = "spark.hadoop.fs.s3a."


@pytest.mark.parametrize("uri", ["/data/warehouse", "file:///data/warehouse", "gs://bucket/warehouse"])
def test_nothing_is_set_for_other_warehouses(uri: str) -> None:
    environ = {"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://store:9000"}
    assert store_settings(uri, environ) == {}
    assert store_packages(uri) == ()
    before = dict(environ)
    complete_environment(uri, environ)
    assert environ == before


def test_amazons_own_store_needs_the_region_only() -> None:
    assert store_settings(URI, {"AWS_DEFAULT_REGION": "eu-central-1"}) == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        f"{_S3A}endpoint.region": "eu-central-1",
    }


@pytest.mark.parametrize(
    ("environ", "endpoint", "has_path_style", "has_tls"),
    [
        ({"AWS_ENDPOINT_URL": "http://store:9000"}, "http://store:9000", "true", "false"),
        ({"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "https://b"}, "https://b", "true", "true"),
        (
            {"AWS_ENDPOINT_URL": "https://b", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"},
            "https://b",
            "false",
            "true",
        ),
    ],
)
def test_another_store_is_found_at_its_address(
    environ: dict[str, str], endpoint: str, has_path_style: str, has_tls: str
) -> None:
    settings = store_settings("s3a://bucket", environ)
    assert settings[f"{_S3A}endpoint"] == endpoint
    assert settings[f"{_S3A}path.style.access"] == has_path_style
    assert settings[f"{_S3A}connection.ssl.enabled"] == has_tls


def test_keys_that_expire_are_read_again_by_the_sdk_and_never_written_into_settings() -> None:
    key = f"{_S3A}aws.credentials.provider"
    secret = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "hidden too"}
    assert key not in store_settings(URI, {**secret, "AWS_PROFILE": "work"})
    assert not {"AKIA", "hidden", "hidden too"} & set(store_settings(URI, secret).values())
    assert store_settings(URI, {"AWS_PROFILE": "work"})[key].endswith(".ProfileCredentialsProvider")
    token = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/x"}
    assert store_settings(URI, token)[key].endswith(".WebIdentityTokenFileCredentialsProvider")


def test_each_library_finds_the_variable_that_it_reads() -> None:
    environ = {"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL_S3": "http://store:9000"}
    complete_environment(URI, environ)
    assert environ["AWS_DEFAULT_REGION"] == "eu-central-1"
    assert environ["AWS_ENDPOINT"] == "http://store:9000"
    assert environ["AWS_ALLOW_HTTP"] == "true"
    chosen = {"AWS_DEFAULT_REGION": "x", "AWS_REGION": "y", "AWS_ALLOW_HTTP": "false", "AWS_ENDPOINT": "http://z"}
    kept = dict(chosen)
    complete_environment(URI, kept)
    assert kept == {**chosen, "AWS_ENDPOINT_URL_S3": "http://z"}
    general = {"AWS_ENDPOINT_URL": "http://z"}
    complete_environment(URI, general)
    assert general == {"AWS_ENDPOINT_URL": "http://z", "AWS_ENDPOINT": "http://z", "AWS_ALLOW_HTTP": "true"}


def test_the_callers_settings_win_and_packages_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER", raising=False)
    packages = ",".join(store_packages(URI))
    assert packages.startswith("org.apache.hadoop:hadoop-aws:")
    given = {f"{_S3A}endpoint": "http://mine", "spark.jars.packages": "org:own:1", "spark.jars.excludes": "org:not"}
    needed = {"spark.jars.packages": packages, "spark.jars.excludes": EXCLUDED}
    defaults = store_settings(URI, {"AWS_ENDPOINT_URL": "http://store:9000"})
    settings = session_settings(needed, given, warehouse_dir=None, defaults=defaults)
    assert settings[f"{_S3A}endpoint"] == "http://mine"
    assert settings[f"{_S3A}path.style.access"] == "true"
    assert settings["spark.jars.packages"] == f"org:own:1,{packages}"
    assert settings["spark.jars.excludes"] == f"org:not,{EXCLUDED}"


class Jvm:
    """The Java classes of a session that has some file systems on its class path, and some in its configuration."""

    def __init__(self, *classes: str, configured: tuple[str, ...] = ()) -> None:
        self.classes, self.configured = classes, configured
        self.set_options: list[str] = []
        self.asked: list[str] = []

    def java_class(self, spark: object, name: str) -> object:
        if name == "java.lang.Thread":
            thread = SimpleNamespace(getContextClassLoader=lambda: None)
            return SimpleNamespace(currentThread=lambda: thread)
        return self

    def hadoop_configuration(self, spark: object) -> object:
        return SimpleNamespace(
            getPropertySources=lambda name: None, set=lambda name, value: self.set_options.append(name)
        )

    def forName(self, name: str, initialize: bool, loader: object) -> None:  # noqa: N802 - Java's name
        self.asked.append(name)
        if name not in self.classes:
            raise self.missing

    def getFileSystemClass(self, scheme: str, configuration: object) -> None:  # noqa: N802 - Java's name
        if scheme not in self.configured:
            raise self.missing

    @property
    def missing(self) -> Py4JJavaError:
        return Py4JJavaError("the class is not there", SimpleNamespace(_target_id="o1", _gateway_client=None))


def require(monkeypatch: pytest.MonkeyPatch, jvm: Jvm, uri: str) -> None:
    monkeypatch.setattr(store_settings_module, "java_class", jvm.java_class)
    monkeypatch.setattr(store_settings_module, "hadoop_configuration", jvm.hadoop_configuration)
    require_store(cast("Any", None), uri)


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("gs://bucket/w", ("without Google's connector for Hadoop", "com.google.cloud.bigdataoss:gcs-connector")),
        ("abfs://c@a.dfs.core.windows.net/w", ("without Hadoop's ABFS", "--packages org.apache.hadoop:hadoop-azure:")),
        ("ABFSS://c@a.dfs.core.windows.net/w", ("without Hadoop's ABFS", "org.apache.hadoop:hadoop-azure:")),
        ("s3://bucket/w", ("without Hadoop's S3A", "org.apache.hadoop:hadoop-aws:")),
    ],
)
def test_a_session_without_the_file_system_of_the_store_is_told_what_to_add(
    monkeypatch: pytest.MonkeyPatch, uri: str, named: tuple[str, str]
) -> None:
    with pytest.raises(SqlError) as refused:
        require(monkeypatch, Jvm(), uri)
    assert refused.value.code == "RW414"
    assert refused.value.message == f"this Spark session cannot read {uri}: it was started {named[0]}"
    assert refused.value.hint is not None
    assert named[1] in refused.value.hint
    assert f'rw_sql.connect("{uri}"' in refused.value.hint


@pytest.mark.parametrize("uri", ["gs://bucket/w", "abfs://c@a/w", "abfss://c@a/w"])
def test_a_session_with_the_jar_of_the_store_or_with_another_file_system_is_accepted(
    monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    for jvm in (Jvm(*_OTHER_STORES.values()), Jvm(configured=(uri.partition(":")[0],))):
        require(monkeypatch, jvm, uri)
        assert jvm.set_options == []


@pytest.mark.parametrize("uri", ["/data/w", "file:///data/w", "hdfs://host/w"])
def test_a_session_is_not_asked_about_a_warehouse_elsewhere(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    jvm = Jvm()
    require(monkeypatch, jvm, uri)
    assert jvm.asked == []


@pytest.mark.spark
@pytest.mark.parametrize("uri", ["gs://bucket/w", "abfss://c@a.dfs.core.windows.net/w"])
def test_attach_refuses_a_warehouse_whose_store_spark_cannot_read_and_touches_nothing(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach_module, "_open", lambda *given: pytest.fail("the warehouse is opened"))
    with pytest.raises(SqlError, match=f"this Spark session cannot read {uri}: it was started without") as refused:
        attach_module.attach(spark, uri)
    assert refused.value.code == "RW414"
    assert attach_module.attached_to(spark) is None
