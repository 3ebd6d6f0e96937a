"""The settings of a warehouse in S3 follow from the variables that the AWS tools read; another scheme needs none."""

from __future__ import annotations

import pytest

from rw_sql.runtime.support.store_environment import complete_environment
from rw_sql.session.spark_settings import session_settings
from rw_sql.session.store_settings import EXCLUDED, store_packages, store_settings

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
