"""Subjects of NATS with wildcards: what two have in common, and the fewest that match the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from rw_sql.connectors.nats import subjects

if TYPE_CHECKING:
    from collections.abc import Iterable

_part = st.sampled_from(["a", "b", "*"])
_subject = st.builds(
    lambda parts, tail: ".".join([*parts, *tail]),
    st.lists(_part, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)
_literal = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


@given(_subject, _subject, _literal)
@settings(max_examples=300)
def test_the_subjects_that_two_patterns_have_in_common(one: str, other: str, literal: str) -> None:
    both = subjects.common(one, other)
    matches = [subjects.matcher(each)(literal) is not None for each in (one, other)]
    assert (both is not None and subjects.matcher(both)(literal) is not None) == all(matches)
    if subjects.is_covered(one, other) and matches[0]:
        assert matches[1]


@given(st.lists(_subject, min_size=1, max_size=3), _literal)
@settings(max_examples=300)
def test_fewer_subjects_match_the_same(listed: list[str], literal: str) -> None:
    def matches(some: Iterable[str]) -> bool:
        return any(subjects.matcher(each)(literal) for each in some)

    assert matches(subjects.least(tuple(listed))) == matches(listed)
