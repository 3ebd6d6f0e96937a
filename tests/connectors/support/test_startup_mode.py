"""Startup modes: which options fit together, and where a split without a state begins."""

from __future__ import annotations

import pytest

from rw_sql.connectors.base import UpstreamSplit
from rw_sql.connectors.spec import OptionError, load_spec
from rw_sql.connectors.support.startup_mode import MODE, TIME, check_startup, first_offset, startup_time

SPLIT = UpstreamSplit(split="a:0", start=10, end=50)


@pytest.mark.parametrize("connector", ["kafka", "kinesis", "nats"])
@pytest.mark.parametrize(
    ("options", "at_times", "offset", "time"),
    [
        ({}, {}, 10, None),
        ({MODE: "earliest"}, {}, 10, None),
        ({MODE: " LATEST "}, {}, 50, None),
        ({MODE: "timestamp", TIME: "1700000000000"}, {"a:0": 20}, 20, 1_700_000_000_000),
        ({MODE: "timestamp", TIME: "1700000000000"}, {}, 50, 1_700_000_000_000),
    ],
)
def test_where_reading_begins(
    connector: str, options: dict[str, str], at_times: dict[str, int], offset: int, time: int | None
) -> None:
    spec = load_spec(connector)
    check_startup(spec, options)
    assert first_offset(spec, options, SPLIT, at_times) == offset
    assert startup_time(spec, options) == time


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ({MODE: "timestamp"}, MODE, f'missing property "{TIME}"'),
        ({TIME: "1"}, TIME, f"property \"{TIME}\" has no meaning with {MODE} = 'earliest'"),
        ({MODE: "latest", TIME: "1"}, TIME, f"property \"{TIME}\" has no meaning with {MODE} = 'latest'"),
    ],
)
def test_options_that_do_not_fit_together(options: dict[str, str], key: str, message: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_startup(load_spec("kafka"), options)
    assert (refused.value.key, refused.value.message) == (key, message)
