"""A large batch's rows as Parquet files that Spark writes into a table's folder, and what a commit says of each.

Spark writes plain files into a folder of their own, delta-rs reads their statistics from their footers, and they are
moved to where the table's files lie. What commits them is the caller, as it commits small batches: until then nobody
reads them. Delta's own writer in Spark does all of it too, at a quarter more of CPU time: it asks for each row which
file it goes to and what it means for the statistics, and for each commit what the table is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltalake import convert_to_deltalake
from deltalake.transaction import AddAction
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from rw_sql.runtime.delta_log import read_actions
from rw_sql.syntax.names import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import DeltaTable
    from deltalake.transaction import RemoveAction
    from pyspark.sql import Column, DataFrame

    from rw_sql.runtime.storage import Warehouse

_UNFINISHED = "_rw_writing"
_STATISTICS = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols")


def write_files(
    warehouse: Warehouse,
    path: str,
    table: DeltaTable,
    frame: DataFrame,
    *,
    job: str,
    run: int,
    partition: Mapping[str, object],
) -> list[AddAction | RemoveAction]:
    """The rows of a frame as new files of the table at a local path, and the actions that add them to it.

    ``partition`` are the values of the table's partition columns, which all rows share. Its other columns are taken
    from the frame by name and made of the table's types; those that the frame lacks are NULL.
    """
    staged = f"{_unfinished(path, job)}/{run}"
    warehouse.remove(staged)
    rows = _fitted(frame, table, partition)
    rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(staged)
    configuration = table.metadata().configuration
    statistics = {name: configuration[name] for name in _STATISTICS if name in configuration}
    convert_to_deltalake(staged, configuration=statistics)
    place = "".join(f"{name}={value}/" for name, value in partition.items())
    warehouse.make_folders(f"{path}/{place}")
    added: list[AddAction | RemoveAction] = []
    for action in read_actions(warehouse, staged, 0):
        file = action.get("add")
        # Spark leaves one file where there are no rows.
        if file is None or not json.loads(file["stats"])["numRecords"]:
            continue
        warehouse.files.mv(f"{staged}/{file['path']}", f"{path}/{place}{file['path']}")
        added.append(
            AddAction(
                path=f"{place}{file['path']}",
                size=file["size"],
                partition_values={name: str(value) for name, value in partition.items()},
                modification_time=file["modificationTime"],
                data_change=True,
                stats=file["stats"],
            )
        )
    warehouse.remove(staged)
    return added


def forget_unfinished(warehouse: Warehouse, path: str, *, job: str, run: int) -> None:
    """Removes what earlier runs of a job had begun to write for the table at a path and never committed."""
    folder = _unfinished(path, job)
    for name in warehouse.list_names(folder):
        if name != str(run):
            warehouse.remove(f"{folder}/{name}")


def _unfinished(path: str, job: str) -> str:
    """Where a job's files lie while Spark writes them; Delta's VACUUM passes over such a name."""
    return f"{path}/{_UNFINISHED}/{job}"


def _fitted(frame: DataFrame, table: DeltaTable, partition: Mapping[str, object]) -> DataFrame:
    """The frame with the columns that the table's files have."""
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    given = {field.name.lower(): field for field in frame.schema.fields}
    columns: list[Column] = []
    for field in schema.fields:
        if field.name in partition:
            continue
        found = given.get(field.name.lower())
        column = f.lit(None) if found is None else f.col(quoted_for_spark(found.name))
        if found is None or found.dataType.simpleString() != field.dataType.simpleString():
            column = column.cast(field.dataType)
        columns.append(column.alias(field.name))
    return frame.select(*columns)
