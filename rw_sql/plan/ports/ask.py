"""Yields a request and checks the type of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

R = TypeVar("R")
T = TypeVar("T")


def ask(request: R, kind: type[T]) -> Generator[R, object, T]:
    """Yields the request and returns its answer. Raises TypeError if that is not of type ``kind``."""
    answer = yield request
    if not isinstance(answer, kind):
        raise TypeError(f"a request was answered with {type(answer).__name__}, not {kind.__name__}")
    return answer
