from __future__ import annotations

import pytest

from rw_sql.errors import Span, SqlError
from rw_sql.model.parameters import (
    SESSION_PARAMETERS,
    SYSTEM_PARAMETERS,
    period_text,
    read_value,
    session_parameter,
    system_parameter,
)
from tests.plan.canned import CannedWorld

HERE = Span(start=0, end=1, line=1, column=1)


@pytest.mark.parametrize("name", [*SYSTEM_PARAMETERS, *SESSION_PARAMETERS])
def test_a_default_is_canonical(name: str) -> None:
    parameter = (SYSTEM_PARAMETERS | SESSION_PARAMETERS)[name]
    assert parameter.read(parameter.default) == parameter.default
    assert parameter.doc


@pytest.mark.parametrize(
    ("name", "written", "canonical"),
    [
        ("statement_timeout", "60", "60000ms"),
        ("statement_timeout", "60s", "60000ms"),
        ("statement_timeout", " 500 MS ", "500ms"),
        ("statement_timeout", "2min", "120000ms"),
        ("statement_timeout", "1h", "3600000ms"),
        ("statement_timeout", "0", "0ms"),
        ("unsafe_confirmation", "YES", "yes"),
        ("query_dialect", "RisingWave", "risingwave"),
        ("enable_unsafe_ops", "on", "true"),
        ("enable_unsafe_ops", "0", "false"),
        ("rollback_window", "30min", "1800000ms"),
        ("rollback_window", " 12 H ", "43200000ms"),
        ("rollback_window", "7d", "604800000ms"),
        ("rollback_window", "90s", "90000ms"),
        ("rollback_window", "-1", "-1"),
        ("rewind_point_retention", "2d", "172800000ms"),
        ("rewind_point_retention", "604800000ms", "604800000ms"),
        ("rewind_point_retention", "-1", "-1"),
        ("rewind_point_retention", "Default", "604800000ms"),
        ("rollback_window", "default", "-1"),
    ],
)
def test_values(name: str, written: str, canonical: str) -> None:
    assert read_value((SYSTEM_PARAMETERS | SESSION_PARAMETERS)[name], written, HERE) == canonical


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("statement_timeout", "-1"),
        ("rollback_window", "0min"),
        ("rollback_window", "59s"),
        ("rollback_window", "7 days"),
        ("rewind_point_retention", "0"),
        ("rewind_point_retention", "59999ms"),
        ("rewind_point_retention", "1000000d"),
        ("rewind_point_retention", "9999999999999999d"),
        ("statement_timeout", "1.5s"),
        ("statement_timeout", ""),
        ("statement_timeout", "9999999999"),
        ("statement_timeout", "²s"),
        ("unsafe_confirmation", "true"),
        ("query_dialect", "mysql"),
        ("enable_unsafe_ops", "2"),
    ],
)
def test_wrong_values(name: str, written: str) -> None:
    with pytest.raises(SqlError, match=f'"{name}" must be') as caught:
        read_value((SYSTEM_PARAMETERS | SESSION_PARAMETERS)[name], written, HERE)
    assert caught.value.code == "RW214"


@pytest.mark.parametrize("text", ["7d", "36h", "90min", "60001ms"])
def test_a_period_is_told_as_it_can_be_written(text: str) -> None:
    canonical = read_value(SYSTEM_PARAMETERS["rewind_point_retention"], text, HERE)
    assert period_text(int(canonical.removesuffix("ms"))) == text


def test_a_parameter_is_of_the_system_or_of_the_session() -> None:
    assert not set(SYSTEM_PARAMETERS) & set(SESSION_PARAMETERS)
    with pytest.raises(SqlError, match="unrecognized session parameter") as caught:
        session_parameter("enable_unsafe_ops", HERE)
    assert caught.value.code == "RW213"
    with pytest.raises(SqlError, match="unrecognized system parameter"):
        system_parameter("statement_timeout", HERE)
    assert system_parameter("ENABLE_UNSAFE_OPS", HERE).name == "enable_unsafe_ops"


def test_a_system_parameter_is_stored_once() -> None:
    world = CannedWorld()
    assert world.answers("ALTER SYSTEM SET enable_unsafe_ops = on") == [("SET", "true")]
    assert world.answers("ALTER SYSTEM SET enable_unsafe_ops = true") == [("NOTHING", "it is already true")]
    assert world.snapshot.parameter("enable_unsafe_ops") == "true"
    assert world.answers("ALTER SYSTEM SET enable_unsafe_ops = DEFAULT") == [("SET", "false")]
    assert world.snapshot.parameter("enable_unsafe_ops") is None
    assert world.answers("ALTER SYSTEM SET enable_unsafe_ops = DEFAULT") == [("NOTHING", "it is already false")]


def test_a_session_parameter_is_not_stored() -> None:
    plan = CannedWorld().plan("SET statement_timeout = '5s'")
    assert (plan.operation, plan.session) == (None, ("statement_timeout", "5000ms"))
    assert CannedWorld().plan("SET statement_timeout = DEFAULT").session == ("statement_timeout", None)
