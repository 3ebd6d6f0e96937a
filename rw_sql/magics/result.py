"""The result of a statement in a notebook: a table for display, and a DataFrame for further use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.magics.table import ResultTable
from rw_sql.session.results import read_rows

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from pyspark.sql import DataFrame

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_MOST_ROWS = 200
"""The maximum number of rows that are read for display. The DataFrame contains all rows."""


class CellResult:
    """The rows of one statement. IPython displays the first rows as a table.

    ``df`` is the Spark DataFrame. Each action on ``df`` runs the query again. :meth:`to_pandas` and :meth:`to_arrow`
    read all rows into the memory of this process. ``is_plan`` is True if the rows are the result of EXPLAIN.
    """

    def __init__(self, frame: DataFrame, *, is_plan: bool = False) -> None:
        self.df = frame
        numbers = [kind.partition("(")[0] in _NUMBERS for _, kind in frame.dtypes]
        self._table = ResultTable(read_rows(frame, most=_MOST_ROWS), numbers=numbers, is_plan=is_plan)

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame."""
        return self.df.toPandas()

    def to_arrow(self) -> pyarrow.Table:
        """All rows as an Arrow table."""
        found: Any = self.df.toArrow()
        return found

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str] | None:
        """The picture by MIME type, if EXPLAIN (FORMAT SVG) or EXPLAIN (FORMAT MERMAID) returned one; otherwise
        None."""
        return self._table.picture()

    def _repr_html_(self) -> str | None:
        # Otherwise, a front end would show the table with the picture's source text beside the picture.
        return None if self._table.picture() is not None else self._table._repr_html_()

    def __repr__(self) -> str:
        return repr(self._table)
