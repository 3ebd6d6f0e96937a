"""Defines transformations of DataFrames. A transformation is built once and applied to many DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Steps(Protocol):
    """An object to which columns can be added. It is a DataFrame, or a DeferredColumns object, which records the
    columns for later."""

    def withColumn(self, name: str, column: Column, /) -> Self:  # noqa: N802 - as DataFrame has it
        """Like ``DataFrame.withColumn``."""
        ...


StepsT = TypeVar("StepsT", bound=Steps)


@dataclass(frozen=True, slots=True)
class DeferredColumns:
    """Columns to be added to DataFrames. ``columns`` are the names of a DataFrame's columns after the steps so far.

    If each batch built its columns again, a small batch would spend most of its time on building them. For example,
    building the columns of a source with six columns needs 700 calls to the JVM.
    """

    columns: tuple[str, ...]
    steps: tuple[tuple[str, Column], ...] = ()

    def withColumn(self, name: str, column: Column, /) -> DeferredColumns:  # noqa: N802 - as DataFrame has it
        """Like ``DataFrame.withColumn``."""
        columns = self.columns if name in self.columns else (*self.columns, name)
        return DeferredColumns(columns, (*self.steps, (name, column)))

    def of(self, frame: DataFrame) -> DataFrame:
        """Applies all recorded steps to a DataFrame."""
        for name, column in self.steps:
            frame = frame.withColumn(name, column)
        return frame
