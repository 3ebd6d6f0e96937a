"""A large batch's rows as Parquet files that Spark writes into a table's folder, and what a commit says of each.

On a local path Spark writes plain files into a folder of their own, delta-rs reads their statistics from their footers,
and they are moved to where the table's files lie. What commits them is the caller, as it commits small batches: until
then nobody reads them. Delta's own writer in Spark does all of it too, at a quarter more of CPU time: it asks for each
row which file it goes to and what it means for the statistics, and for each commit what the table is.

In an object store a moved file is a copy, and Spark's plain writer moves each twice. There Delta's writer in Spark puts
each file where it stays, into a table of its own in a folder below the table's; the caller commits these very files to
the table, and the log of that other table goes. Spark never commits to the table itself: its log store for S3 replaces
a version that another process has written.

Which files there are on a local path is found by listing the folder on the driver. A file that an executor wrote
elsewhere, or that was removed, is not among them, and one that no task reports is. So what the tasks report of their
rows and files, which Spark adds up, is compared with the footers of the files.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import DeltaTable, Schema, convert_to_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from rw_sql.runtime.delta.delta_log import latest_version, read_actions
from rw_sql.runtime.delta.row_counts import MiscountError, RowCount, rows_read
from rw_sql.runtime.spark.jvm import java_frame, java_packages, java_session, save_command
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from deltalake.transaction import RemoveAction
    from pyspark.sql import Column, DataFrame

    from rw_sql.runtime.support.warehouse import Warehouse

_UNFINISHED = "_rw_writing"
WRITTEN = "written"
"""The folder below a table's in an object store that has a folder for each batch that Spark wrote."""
_STATISTICS = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols")
_WRITING = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The other algorithm lets a task that dies half-way leave files among those of the others.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The actions that add what was written to a table, and its rows."""

    actions: list[AddAction | RemoveAction]
    count: RowCount


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reported:
    """What the tasks of one write report: those whose output was committed, and no others."""

    rows: int
    files: int
    read: int | None


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
) -> Written:
    """The rows of a frame as new files of the table, and the actions that add them to it.

    ``partition`` are the values of the table's partition columns, which all rows share. Its other columns are taken
    from the frame by name and made of the table's types; those that the frame lacks are NULL. ``is_new_data`` is false
    for rows that the table has already. Raises MiscountError where the files do not hold the rows that Spark's tasks
    report.
    """
    if not warehouse.is_local:
        folder = f"{WRITTEN}/{job}-{run}-{uuid.uuid4().hex}"
        return _written_in_place(warehouse, path, folder, table, frame, partition, is_new_data=is_new_data)
    staged = f"{_unfinished(path, job)}/{run}"
    warehouse.remove(staged)
    reported = _save(fitted(frame, table, partition), staged)
    configuration = table.metadata().configuration
    statistics = {name: configuration[name] for name in _STATISTICS if name in configuration}
    found = _files_in(warehouse, staged, statistics)
    _require_all(reported, found, staged)
    place = "".join(f"{name}={value}/" for name, value in partition.items())
    warehouse.make_folders(f"{path}/{place}")
    added: list[AddAction | RemoveAction] = []
    for file in found:
        # Spark leaves one file where there are no rows.
        if not _records(file):
            continue
        warehouse.files.mv(f"{staged}/{file['path']}", f"{path}/{place}{file['path']}")
        added.append(_added(file, place, partition, is_new_data=is_new_data))
    warehouse.remove(staged)
    return Written(actions=added, count=RowCount(written=reported.rows, read=reported.read))


def _added(file: Mapping[str, Any], place: str, partition: Mapping[str, object], *, is_new_data: bool) -> AddAction:
    """What adds a file to the table, from what another table's log says of it; it lies at ``place`` below the table."""
    return AddAction(
        path=f"{place}{file['path']}",
        size=file["size"],
        partition_values={name: str(value) for name, value in partition.items()},
        modification_time=file["modificationTime"],
        data_change=is_new_data,
        stats=file["stats"],
    )


def _save(rows: DataFrame, path: str) -> _Reported:
    """Writes rows as Parquet files, as ``DataFrameWriter.save`` does, which keeps its counters to itself."""
    command = save_command(rows, path, "parquet", _WRITING)
    frames = java_packages(rows.sparkSession).org.apache.spark.sql.classic.Dataset
    done = frames.ofRows(java_frame(rows).sparkSession(), command)
    plan = done.queryExecution().commandExecuted().commandPhysicalPlan()
    counters = plan.metrics()
    written, files = (int(counters.apply(name).value()) for name in ("numOutputRows", "numFiles"))
    return _Reported(rows=written, files=files, read=rows_read(plan))


def _files_in(warehouse: Warehouse, staged: str, statistics: dict[str, str]) -> list[dict[str, Any]]:
    """What the footers of a folder's Parquet files say. Raises MiscountError where a file was cut off before its."""
    if not any(name.endswith(".parquet") for name in warehouse.list_names(staged)):
        return []
    try:
        convert_to_deltalake(staged, configuration=statistics)
    except DeltaError as error:
        raise MiscountError(f"a file that Spark's tasks wrote to {staged} cannot be read: {error}") from error
    return [action["add"] for action in read_actions(warehouse, staged, 0) if "add" in action]


def _records(file: Mapping[str, Any]) -> int:
    return int(json.loads(file["stats"])["numRecords"])


def _require_all(reported: _Reported, found: Sequence[Mapping[str, Any]], staged: str) -> None:
    rows = sum(map(_records, found))
    if (rows, len(found)) == (reported.rows, reported.files):
        return
    raise MiscountError(
        f"Spark's tasks report {reported.rows} rows in {reported.files} files, and the driver finds {rows} rows in "
        f"{len(found)} files in {staged}: every executor must see this folder as the driver does"
    )


def merge_problem(warehouse: Warehouse, path: str, version: int, rows: int | None) -> str:
    """What is wrong with a commit that Spark's MERGE has made of so many rows; empty where nothing is.

    Its files are those that tasks report, wherever they wrote them.
    """
    actions = read_actions(warehouse, path, version)
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    counters: Mapping[str, str] = infos[0].get("operationMetrics", {}) if infos else {}
    read = counters.get("numSourceRows")
    # A task that is run again may be counted twice.
    if rows is not None and read is not None and int(read) < rows:
        return f"Spark's MERGE reports {read} rows of {rows}"
    files = [action[kind] for action in actions for kind in ("add", "cdc") if kind in action]
    return missing_files(warehouse, path, {unquote(file["path"]): file["size"] for file in files})


def missing_files(warehouse: Warehouse, path: str, sizes: Mapping[str, int]) -> str:
    """What is wrong with files that Spark's tasks report below a local path, each of a size; empty where nothing is."""
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
    """As :func:`write_files`, into a folder below the table's, where the files stay."""
    place = f"{path}/{folder}"
    rows = fitted(frame, table, partition)
    columns = [column for column in table.schema().fields if column.name not in partition]
    configuration = table.metadata().configuration
    # Made by delta-rs, since Spark makes no table with a space in a column's name.
    DeltaTable.create(
        place,
        Schema(columns),
        configuration={name: configuration[name] for name in _STATISTICS if name in configuration},
    )
    rows.write.format("delta").mode("append").save(place)
    added: list[AddAction | RemoveAction] = []
    # Of no rows Delta makes no commit.
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
    """The rows of a commit of Delta's writer. Raises MiscountError where its files hold another number of rows."""
    rows = sum(_records(action["add"]) for action in actions if "add" in action)
    for action in actions:
        counted = action.get("commitInfo", {}).get("operationMetrics", {}).get("numOutputRows")
        if counted is not None and int(counted) != rows:
            raise MiscountError(f"Spark's tasks report {counted} rows, and the files in {place} hold {rows}")
    return rows


def _forget_table(frame: DataFrame, place: str) -> None:
    """Lets Delta forget what it knows of a table: it would for an hour, of one table a batch."""
    session = frame.sparkSession
    java = java_packages(session)
    java.org.apache.spark.sql.delta.DeltaLog.invalidateCache(
        java_session(session), java.org.apache.hadoop.fs.Path(place)
    )


def forget_unfinished(warehouse: Warehouse, path: str, *, job: str, run: int) -> None:
    """Removes what earlier runs of a job had begun to write for the table at a path and never committed.

    In an object store such files lie beside those that were committed: upkeep removes them.
    """
    if not warehouse.is_local:
        return
    folder = _unfinished(path, job)
    for name in warehouse.list_names(folder):
        if name != str(run):
            warehouse.remove(f"{folder}/{name}")


def _unfinished(path: str, job: str) -> str:
    """Where a job's files lie while Spark writes them; Delta's VACUUM passes over such a name."""
    return f"{path}/{_UNFINISHED}/{job}"


def schema_of(table: DeltaTable) -> StructType:
    """A table's columns as Spark has them."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def fitted(
    frame: DataFrame, table: DeltaTable, partition: Mapping[str, object], keep: Collection[str] = ()
) -> DataFrame:
    """The frame with the columns that the table's files have, and those of ``keep`` that it has."""
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
