"""The words that a statement's ALLOW must contain so that a confirmation in advance is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

FORGOTTEN_SPLIT = "UNKNOWN (forgotten)"
"""The verdict for a split whose position is discarded, and whose new position will be determined later."""

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rw_sql.plan.result.plan import SplitPreview


def predicted_words(splits: Iterable[SplitPreview]) -> tuple[str, ...]:
    """The words, GAPS and DUPLICATES, that the verdicts on these splits predict, exactly or as an upper limit.

    The verdict UNKNOWN predicts neither, because the old and the new offset cannot be compared. A forgotten position
    predicts both: the split may begin before or after it.
    """
    rows = tuple(splits)
    is_forgotten = any(row.verdict == FORGOTTEN_SPLIT for row in rows)
    comes = (
        ("GAPS", is_forgotten or any(row.gaps for row in rows)),
        ("DUPLICATES", is_forgotten or any(row.duplicates for row in rows)),
    )
    return tuple(word for word, is_there in comes if is_there)


def unallowed_words(splits: Iterable[SplitPreview], allow: Collection[str]) -> tuple[str, ...]:
    """The predicted words that are missing from ALLOW."""
    return tuple(word for word in predicted_words(splits) if word not in allow)
