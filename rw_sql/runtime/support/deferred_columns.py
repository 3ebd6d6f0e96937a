"""Steps on a DataFrame, written down once and taken on many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Steps(Protocol):
    """What can be given another column: a DataFrame, or DeferredColumns, which say what is to be done with one."""

    def withColumn(self, name: str, column: Column, /) -> Self:  # noqa: N802 - as DataFrame has it
        """As ``DataFrame.withColumn``."""
        ...


StepsT = TypeVar("StepsT", bound=Steps)


@dataclass(frozen=True, slots=True)
class DeferredColumns:
    """What is to be done with a DataFrame of these columns.

    Of a batch of a few records most of the time went into saying it: the expressions of a source with six columns are
    700 calls to the JVM, and they are the same for each batch.
    """

    columns: tuple[str, ...]
    steps: tuple[tuple[str, Column], ...] = ()

    def withColumn(self, name: str, column: Column, /) -> DeferredColumns:  # noqa: N802 - as DataFrame has it
        """As ``DataFrame.withColumn``."""
        columns = self.columns if name in self.columns else (*self.columns, name)
        return DeferredColumns(columns, (*self.steps, (name, column)))

    def of(self, frame: DataFrame) -> DataFrame:
        """The DataFrame after all steps."""
        for name, column in self.steps:
            frame = frame.withColumn(name, column)
        return frame
