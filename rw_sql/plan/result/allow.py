"""Determines the words that a statement's ALLOW clause must contain so that a confirmation in advance is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

FORGOTTEN_SPLIT = "UNKNOWN (forgotten)"
"""The verdict for a split whose position the statement discards and a later discovery determines again."""

WORDS = ("GAPS", "DUPLICATES")
"""The words for predicted effects, in the order in which errors name them."""

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rw_sql.plan.result.plan import SplitPreview


def predicted_words(splits: Iterable[SplitPreview]) -> tuple[str, ...]:
    """Returns GAPS if the verdict on at least one of the given splits predicts gaps, and DUPLICATES if the verdict on
    at least one of them predicts duplicates. The predicted number may be exact or an upper limit.

    The verdict UNKNOWN predicts neither gaps nor duplicates, because the old and the new offset cannot be compared. A
    forgotten position predicts both gaps and duplicates, because the split may begin before or after this position.
    """
    rows = tuple(splits)
    is_forgotten = any(row.verdict == FORGOTTEN_SPLIT for row in rows)
    comes = (any(row.gaps for row in rows), any(row.duplicates for row in rows))
    return tuple(word for word, is_there in zip(WORDS, comes, strict=True) if is_there or is_forgotten)


def unallowed_words(splits: Iterable[SplitPreview], allow: Collection[str]) -> tuple[str, ...]:
    """The words that :func:`predicted_words` returns and that are missing from ALLOW."""
    return tuple(word for word in predicted_words(splits) if word not in allow)


def effect_without_counts(row: SplitPreview) -> tuple[object, ...]:
    """Returns the effect on one split as in a preview, but without the numbers that change whenever new records arrive
    upstream."""
    verdict = row.verdict if row.verdict.startswith("UNKNOWN") else predicted_words((row,))
    return row.old, row.new, verdict
