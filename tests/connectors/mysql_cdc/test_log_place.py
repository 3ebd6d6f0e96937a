"""The place in a binary log: events state only the lower 32 bits of their end."""

from __future__ import annotations

import pytest

from rw_sql.connectors.mysql_cdc.positions import LogPlace, number_of

GIB = 1 << 30


@pytest.mark.parametrize("start", [4, 3 * GIB, 5 * GIB, 9 * GIB])
def test_a_place_above_four_gib_is_followed(start: int) -> None:
    place = LogPlace(3, start)
    for end in range(start + GIB, start + 6 * GIB, GIB):
        assert place.advance(end % (1 << 32)) == number_of(3, end)
        assert place.at == end


def test_another_file_begins_at_its_own_position() -> None:
    place = LogPlace(3, 5 * GIB)
    place.rotate("binlog.000004", 4)
    assert place.advance(126) == number_of(4, 126)
