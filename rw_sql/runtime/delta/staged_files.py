"""Writes a large batch with Spark as Parquet files in a table's folder, and makes the actions that add the files.

On a local path, Spark writes plain files to a separate folder, delta-rs reads the statistics in their footers, and the
files are moved to the table's folder. The caller commits the files with delta-rs. Until then, readers do not see the
files. Delta's own writer in Spark would need a quarter more CPU time, because it computes statistics for each row and
looks up the table for each commit.

In an object store, moving a file means copying it, and Spark's plain writer would move each file twice. There, Delta's
writer in Spark therefore writes each file to its final place. The writer adds the files to a separate table in a folder
below the table's folder. The caller commits these files to the table, and the log of the separate table is deleted.
Spark never commits to the table itself, because its log store for S3 may replace a version that another process has
written.

On a local path, the driver finds the files by listing the folder. The listing lacks files that an executor wrote
elsewhere, and files that were deleted. It may also contain files that no task reported. Therefore, the numbers of rows
and files that the tasks report are compared with the footers of the files. Spark adds up the numbers of all tasks.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, convert_to_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from rw_sql.connectors.delta.inexact_statistics import EXACT_DIGITS
from rw_sql.runtime.delta.delta_log import latest_version, read_actions
from rw_sql.runtime.delta.row_counts import MiscountError, RowCount, rows_read
from rw_sql.runtime.spark.jvm import java_class, java_frame, java_session, save_command
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from deltalake.transaction import RemoveAction
    from pyspark.sql import Column, DataFrame

    from rw_sql.runtime.support.warehouse import Warehouse

_FLOATING = ("FLOAT", "DOUBLE")
_UNFINISHED = "_rw_writing"
WRITTEN = "written"
"""The name of a folder below a table's folder in an object store. It contains one folder for each batch that Spark
writes."""
_STATISTICS = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols")
_WRITING = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # With algorithm 2, a task that fails midway would leave its files among the files of other tasks.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The actions that add the written files to a table, and the numbers of rows that were written and read."""

    actions: list[AddAction | RemoveAction]
    count: RowCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The number of files and the number of rows that one write has written, and the number of rows that the write has
    read (None if the read rows were not counted). These numbers come from the tasks whose output Spark kept."""

    rows: int
    files: int
    read: int | None


SparkSave = Callable[["DataFrame", str], Reported]
"""A function that saves the rows of a frame with Spark, as Parquet files for a table. The second argument is the path
of a new folder for these files."""

SaveFiles = Callable[[str, SparkSave], Reported | None]
"""A function that saves the rows of a batch as Parquet files for a table. The first argument is the path of a new
folder for these files. The result is None if Spark must save the rows."""


def write_files(
    warehouse: Warehouse,
    path: str,
    table: DeltaTable,
    frame: DataFrame,
    *,
    job: str,
    run: int,
    partition: Mapping[str, object],
    is_new_data: bool = True,
    save: SaveFiles | None = None,
) -> Written:
    """Writes the rows of a frame to new files of the table. Returns the actions that add these files.

    ``partition`` contains the values of the table's partition columns, which are equal for all rows. The other columns
    are taken from the frame by name and cast to the table's types. Missing columns are NULL. ``is_new_data`` is false
    for rows that the table already contains. On a local path, ``save`` may write the frame's rows in place of Spark; in
    an object store, it is not used. Raises MiscountError if the number of rows in the files differs from the number
    that Spark's tasks report.
    """
    if not warehouse.is_local:
        folder = f"{WRITTEN}/{job}-{run}-{uuid.uuid4().hex}"
        return _written_in_place(warehouse, path, folder, table, frame, partition, is_new_data=is_new_data)
    staged = f"{_unfinished(path, job)}/{run}"
    warehouse.remove(staged)

    def by_spark(rows: DataFrame, folder: str) -> Reported:
        return save_frame(fitted(rows, table, partition), folder)

    reported = (save(staged, by_spark) if save is not None else None) or by_spark(frame, staged)
    configuration = table.metadata().configuration
    statistics = {name: configuration[name] for name in _STATISTICS if name in configuration}
    found = _files_in(warehouse, staged, statistics)
    _require_all(reported, found, staged)
    place = "".join(f"{name}={value}/" for name, value in partition.items())
    warehouse.make_folders(f"{path}/{place}")
    added: list[AddAction | RemoveAction] = []
    for file in found:
        # Spark writes one file even if there are no rows.
        if not _records(file):
            continue
        warehouse.files.mv(f"{staged}/{file['path']}", f"{path}/{place}{file['path']}")
        added.append(_added(file, place, partition, is_new_data=is_new_data))
    warehouse.remove(staged)
    return Written(actions=added, count=RowCount(written=reported.rows, read=reported.read))


def _added(file: Mapping[str, Any], place: str, partition: Mapping[str, object], *, is_new_data: bool) -> AddAction:
    """The action that adds a file to a table. The action is made from the file's entry in the log of another table.
    ``place`` is the path that precedes the file's name, relative to the table's folder."""
    return AddAction(
        path=f"{place}{file['path']}",
        size=file["size"],
        partition_values={name: str(value) for name, value in partition.items()},
        modification_time=file["modificationTime"],
        data_change=is_new_data,
        stats=file["stats"],
    )


def save_frame(rows: DataFrame, path: str) -> Reported:
    """Writes rows as Parquet files like ``DataFrameWriter.save``, but also returns the counts that the tasks
    reported."""
    command = save_command(rows, path, "parquet", _WRITING)
    frames = java_class(rows.sparkSession, "org.apache.spark.sql.classic.Dataset")
    done = frames.ofRows(java_frame(rows).sparkSession(), command)
    plan = done.queryExecution().commandExecuted().commandPhysicalPlan()
    counters = plan.metrics()
    written, files = (int(counters.apply(name).value()) for name in ("numOutputRows", "numFiles"))
    return Reported(rows=written, files=files, read=rows_read(plan))


def _files_in(warehouse: Warehouse, staged: str, statistics: dict[str, str]) -> list[dict[str, Any]]:
    """The ``add`` actions of a folder's Parquet files, with the statistics from their footers. Raises MiscountError if
    a file cannot be read, for example because it is truncated."""
    if not any(name.endswith(".parquet") for name in warehouse.list_names(staged)):
        return []
    try:
        convert_to_deltalake(staged, configuration=statistics)
    except DeltaError as error:
        raise MiscountError(f"a file that Spark's tasks wrote to {staged} cannot be read: {error}") from error
    found = [action["add"] for action in read_actions(warehouse, staged, 0) if "add" in action]
    return [{**file, "stats": _certain(file["stats"], f"{staged}/{file['path']}")} for file in found]


def _certain(stats: str, file: str) -> str:
    """Returns the statistics of a file, without the minimum and maximum of three kinds of columns:

    - Long decimals, because delta-rs rounds them (:mod:`rw_sql.connectors.delta.inexact_statistics`).
    - Columns without a minimum and maximum in some row groups of the file. Writers of Parquet omit these two values for
      a row group in which a value has more than 4,096 bytes. The library delta-rs would compute the file's minimum and
      maximum from the other row groups only, and readers would skip rows.
    - Floating-point columns, if the file has several row groups. The minimum and maximum of a row group may be NaN, or
      may ignore NaN.
    """
    footer = pq.read_metadata(file.removeprefix("file://"))
    groups = range(footer.num_row_groups)
    known: dict[str, Any] = json.loads(stats)
    for at in range(footer.num_columns):
        column = footer.schema.column(at)
        is_uncertain = column.logical_type.type == "DECIMAL" and column.precision > EXACT_DIGITS
        if not is_uncertain and len(groups) > 1:
            chunks = (footer.row_group(group).column(at) for group in groups)
            is_uncertain = column.physical_type in _FLOATING or not all(map(_has_min_max, chunks))
        if is_uncertain:
            for name in ("minValues", "maxValues"):
                _drop(known.get(name, {}), column.path)
    return json.dumps(known)


def _has_min_max(chunk: Any) -> bool:
    statistics = chunk.statistics
    return statistics is not None and (statistics.has_min_max or not statistics.num_values)


def _drop(values: dict[str, Any], path: str) -> None:
    """Removes the value of the column ``path`` from ``values``. The values of a structure's fields are nested in
    ``values``. In ``path``, dots separate the names, but the names may contain dots too."""
    for name in [name for name in values if path == name or path.startswith(f"{name}.")]:
        if path == name or not isinstance(values[name], dict):
            del values[name]
        else:
            _drop(values[name], path.removeprefix(f"{name}."))


def _records(file: Mapping[str, Any]) -> int:
    return int(json.loads(file["stats"])["numRecords"])


def _require_all(reported: Reported, found: Sequence[Mapping[str, Any]], staged: str) -> None:
    rows = sum(map(_records, found))
    if (rows, len(found)) == (reported.rows, reported.files):
        return
    raise MiscountError(
        f"Spark's tasks report {reported.rows} rows in {reported.files} files, and the driver finds {rows} rows in "
        f"{len(found)} files in {staged}: every executor must see this folder as the driver does"
    )


def merge_problem(warehouse: Warehouse, path: str, version: int, rows: int | None) -> str:
    """Checks the commit of a MERGE of ``rows`` rows by Spark (None: an unknown number). Returns the problem as text;
    empty if the commit is correct.

    The check is needed because the commit also lists files that an executor wrote to another machine's disk.
    """
    actions = read_actions(warehouse, path, version)
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    counters: Mapping[str, str] = infos[0].get("operationMetrics", {}) if infos else {}
    read = counters.get("numSourceRows")
    # A task that runs twice may be counted twice.
    if rows is not None and read is not None and int(read) < rows:
        return f"Spark's MERGE reports {read} rows of {rows}"
    files = [action[kind] for action in actions for kind in ("add", "cdc") if kind in action]
    return missing_files(warehouse, path, {unquote(file["path"]): file["size"] for file in files})


def missing_files(warehouse: Warehouse, path: str, sizes: Mapping[str, int]) -> str:
    """Checks that the files that tasks report exist below a local path and have the reported sizes. Returns the problem
    as text; empty if all files are correct, and for a path in an object store."""
    if not warehouse.is_local:
        return ""
    gone = [name for name, size in sizes.items() if not _is_whole(warehouse, f"{path}/{name}", size)]
    if not gone:
        return ""
    return (
        f"Spark's tasks report {len(sizes)} files, of which the driver does not find {len(gone)} in {path}: "
        "every executor must see this folder as the driver does"
    )


def _is_whole(warehouse: Warehouse, path: str, size: int) -> bool:
    try:
        return int(warehouse.files.size(path)) == size
    except FileNotFoundError:
        return False


def _written_in_place(
    warehouse: Warehouse,
    path: str,
    folder: str,
    table: DeltaTable,
    frame: DataFrame,
    partition: Mapping[str, object],
    *,
    is_new_data: bool,
) -> Written:
    """Does the same as :func:`write_files` for an object store. The files are written to the folder ``folder`` below
    the table's folder, and remain there."""
    place = f"{path}/{folder}"
    rows = fitted(frame, table, partition)
    columns = [column for column in table.schema().fields if column.name not in partition]
    configuration = table.metadata().configuration
    # delta-rs creates the table, because Spark creates no table with a space in a column name.
    DeltaTable.create(
        place,
        Schema(columns),
        configuration={name: configuration[name] for name in _STATISTICS if name in configuration},
    )
    rows.write.format("delta").mode("append").save(place)
    added: list[AddAction | RemoveAction] = []
    # Delta makes no commit for an empty frame.
    actions = read_actions(warehouse, place, 1) if latest_version(warehouse, place) == 1 else []
    for action in actions:
        file = action.get("add")
        if file is None:
            continue
        if not json.loads(file["stats"])["numRecords"]:
            warehouse.remove(f"{place}/{file['path']}")
            continue
        added.append(_added(file, f"{folder}/", partition, is_new_data=is_new_data))
    warehouse.remove(f"{place}/_delta_log" if added else place)
    _forget_table(frame, place)
    return Written(actions=added, count=RowCount(written=_committed_rows(actions, place)))


def _committed_rows(actions: Sequence[Mapping[str, Any]], place: str) -> int:
    """The number of rows in the files of a commit by Delta's writer. Raises MiscountError if the tasks reported a
    different number of rows."""
    rows = sum(_records(action["add"]) for action in actions if "add" in action)
    for action in actions:
        counted = action.get("commitInfo", {}).get("operationMetrics", {}).get("numOutputRows")
        if counted is not None and int(counted) != rows:
            raise MiscountError(f"Spark's tasks report {counted} rows, and the files in {place} contain {rows}")
    return rows


def _forget_table(frame: DataFrame, place: str) -> None:
    """Removes a table from Delta's cache, which would otherwise keep the table of each batch for an hour."""
    session = frame.sparkSession
    made_path = java_class(session, "org.apache.hadoop.fs.Path")(place)
    java_class(session, "org.apache.spark.sql.delta.DeltaLog").invalidateCache(java_session(session), made_path)


def forget_unfinished(warehouse: Warehouse, path: str, *, job: str, run: int) -> None:
    """Deletes files that earlier runs of a job wrote for the table at a path but did not commit.

    Does nothing in an object store. There, uncommitted files are in the same folder as committed files, and upkeep
    deletes them later.
    """
    if not warehouse.is_local:
        return
    folder = _unfinished(path, job)
    for name in warehouse.list_names(folder):
        if name != str(run):
            warehouse.remove(f"{folder}/{name}")


def decoding_folder(path: str, *, job: str, run: int) -> str:
    """The folder for records that a run decodes before it writes them to the table at a path."""
    return f"{_unfinished(path, job)}/{run}.decoded"


def _unfinished(path: str, job: str) -> str:
    """The folder of a job's files while Spark writes them. Delta's VACUUM ignores this folder, because its name begins
    with an underscore."""
    return f"{path}/{_UNFINISHED}/{job}"


def schema_of(table: DeltaTable) -> StructType:
    """A table's columns as a Spark schema."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def fitted(
    frame: DataFrame, table: DeltaTable, partition: Mapping[str, object], keep: Collection[str] = ()
) -> DataFrame:
    """The frame with the columns and types of the table's files, and with those columns in ``keep`` that the frame has.
    The files do not contain the columns in ``partition``."""
    schema = schema_of(table)
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
    return frame.select(*columns, *(name for name in keep if name in frame.columns))
