"""A streaming query of Spark 4.0 starts with a setting by which a constant in GROUP BY is no position."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rw_sql.runtime.spark.constant_groups import constant_groups

_ORDINALS = "spark.sql.groupByOrdinal"


@pytest.mark.parametrize(("version", "started"), [("4.0.5", "false"), ("4.1.4", "true"), ("4.2.0", "true")])
def test_a_session_keeps_its_setting_after_a_start(version: str, started: str) -> None:
    settings = {_ORDINALS: "true"}
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    spark: Any = SimpleNamespace(version=version, conf=conf)
    with constant_groups(spark):
        assert settings == {_ORDINALS: started}
    assert settings == {_ORDINALS: "true"}


def test_a_session_keeps_its_setting_after_a_start_that_fails() -> None:
    settings = {_ORDINALS: "true"}
    spark: Any = SimpleNamespace(version="4.0.5", conf=SimpleNamespace(get=settings.get, set=settings.__setitem__))
    with pytest.raises(RuntimeError, match="no"), constant_groups(spark):
        raise RuntimeError("no")
    assert settings == {_ORDINALS: "true"}
