"""How a lowering asks: it yields a request and is sent the answer, whose type is checked here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

R = TypeVar("R")
T = TypeVar("T")


def ask(request: R, kind: type[T]) -> Generator[R, object, T]:
    """Yields the request, once, and returns the answer. Raises TypeError where that is not of ``kind``."""
    answer = yield request
    if not isinstance(answer, kind):
        raise TypeError(f"a request was answered with {type(answer).__name__}, not {kind.__name__}")
    return answer
