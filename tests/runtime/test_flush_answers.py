"""What FLUSH says of a source."""

from __future__ import annotations

from rw_sql.runtime.flush import read_to


def test_a_source_is_read_to_its_ends_or_has_none() -> None:
    assert read_to({"t:1": 4, "t:0": 3}) == "read to t:0=3, t:1=4"
    assert read_to({f"t:{number}": 1 for number in range(9)}).endswith("t:7=1 …")
    assert read_to({}) == "its rows are made as they are read: there is no end to read to"
