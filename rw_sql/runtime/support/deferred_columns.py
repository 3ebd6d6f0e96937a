"""Defines objects that record added columns, so that the same columns can be built once and added to many
DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Steps(Protocol):
    """An object to which columns can be added: a DataFrame, or a :class:`DeferredColumns` object, which only records
    the columns."""

    def withColumn(self, name: str, column: Column, /) -> Self:  # noqa: N802 - as DataFrame has it
        """Like ``DataFrame.withColumn``."""
        ...


StepsT = TypeVar("StepsT", bound=Steps)


@dataclass(frozen=True, slots=True)
class DeferredColumns:
    """Recorded columns, to be added to DataFrames later. ``steps`` are the recorded additions of columns, and
    ``columns`` are the names of all columns of a DataFrame after these steps.

    Each batch of a source needs the same added columns. If each batch built these columns again, a batch of a few rows
    would spend most of its time on building them. For example, building the columns of a source with six columns needs
    700 calls to the JVM.
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
