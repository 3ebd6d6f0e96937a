"""The file sink. It writes one file per batch to a folder. The file's name contains the batch's number. Each row is
delivered at least once."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.sink import OP, Refusal, RefusedRowsError, SinkError, SinkLook
from rw_sql.connectors.spec import OptionError, check_option_values, load_sink_spec
from rw_sql.connectors.support.csv_separator import separator_of
from rw_sql.connectors.support.local_folder import look_at_folder
from rw_sql.connectors.support.sink_values import json_rows, refused_rows, to_json
from rw_sql.errors import INVALID_PROPERTY, UNSUPPORTED_TYPE, SqlError
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from rw_sql.connectors.sink import SinkShape
    from rw_sql.connectors.spec import ConnectorSpec
else:
    pa = deferred("pyarrow")

_ENDINGS = {"PARQUET": "parquet", "CSV": "csv", "JSON": "json"}


class FileSink:
    """See :class:`rw_sql.connectors.sink.SinkConnector`."""

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/fs.sink.toml``."""
        return load_sink_spec("fs")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent."""
        check_option_values(self.spec, options)
        if not options["fs.path"].startswith("/"):
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"fs.path\" must be an absolute path, not '{options['fs.path']}'",
                key="fs.path",
                hint="fs.path = '/path/of/the/folder'",
            )

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks the types of the columns, because CSV cannot represent nested values and bytes."""
        if shape.encode != "CSV":
            return
        for name, kind in shape.columns.items():
            if not isinstance(kind, str) or kind == "binary":
                word = kind if isinstance(kind, str) else kind["type"]
                raise SqlError(
                    UNSUPPORTED_TYPE,
                    f'column "{name}" is of type {word}, which CSV cannot represent',
                    hint="use ENCODE PARQUET or JSON, or omit the column: CREATE SINK … AS SELECT …",
                )

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks that files can be written to the folder, or that the folder can be created. If ``shape`` is None,
        checks nothing."""
        return SinkLook() if shape is None else look_at_folder(options["fs.path"])

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> FileWriter:
        """Opens the folder. Creates the folder if the folder does not exist."""
        folder = Path(options["fs.path"])
        try:
            _make_folder(folder)
        except OSError as error:
            raise SinkError(f"{folder}: {(error.strerror or str(error)).lower()}") from error
        return FileWriter(folder, shape, identity)


class FileWriter:
    """See :class:`rw_sql.connectors.sink.SinkWriter`."""

    def __init__(self, folder: Path, shape: SinkShape, identity: str) -> None:
        self._folder = folder
        self._shape = shape
        self._identity = identity
        self._generation = 1
        self._is_cancelled = False

    def fence(self, run: int, generation: int) -> int | None:
        """Returns None: a folder stores no batch numbers."""
        self._generation = generation
        return None

    def write(self, rows: pa.Table, batch: int) -> None:
        """Writes one file, which appears in the folder only when it is complete. Writes no file if there are no
        rows."""
        if not rows.num_rows:
            return
        ending = _ENDINGS[self._shape.encode or "PARQUET"]
        path = self._folder / f"part-{self._identity}-{self._generation}-{batch:010d}.{ending}"
        unfinished = self._folder / f".{path.name}.writing"
        try:
            with unfinished.open("wb") as file:
                self._put(rows.drop_columns([OP]), file)
                file.flush()
                os.fsync(file.fileno())
            if self._is_cancelled:
                unfinished.unlink()
                raise SinkError("stopped")
            unfinished.replace(path)
            _sync_folder(self._folder)
        except OSError as error:
            raise SinkError(f"{path}: {(error.strerror or str(error)).lower()}") from error
        except pa.ArrowException as error:
            found = refused_rows(rows.drop_columns([OP]), self._attempt)
            raise (RefusedRowsError(found) if found else SinkError(f"{path}: {error}")) from error

    def _attempt(self, rows: pa.Table) -> Refusal | None:
        """Writes rows to memory in the file's format. Returns a refusal if the format cannot represent one of the rows;
        otherwise None."""
        try:
            self._put(rows, io.BytesIO())
        except pa.ArrowException as error:
            return Refusal(index=0, reason=str(error).strip().split("\n")[0])
        return None

    def _put(self, rows: pa.Table, file: Any) -> None:
        import pyarrow.csv
        import pyarrow.parquet

        given = dict(self._shape.encode_options)
        match self._shape.encode:
            case "CSV":
                options = pyarrow.csv.WriteOptions(
                    include_header=given.get("without_header", "false").lower() != "true",
                    delimiter=separator_of(given),
                )
                pyarrow.csv.write_csv(rows, file, options)
            case "JSON":
                for row in json_rows(rows, rows.column_names):
                    file.write(to_json(row) + b"\n")
            case _:
                # Spark does not read times in nanoseconds. The rows have times in microseconds, so no digits are lost.
                pyarrow.parquet.write_table(rows, file, coerce_timestamps="us")

    def cancel(self) -> None:
        """Makes a write in progress fail before its file becomes visible."""
        self._is_cancelled = True

    def close(self) -> None:
        """Does nothing, because nothing is open between batches."""


def _make_folder(folder: Path) -> None:
    """Creates a folder and its missing parents. After the return, a crash of the machine does not remove them."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync_folder(each.parent)


def _sync_folder(folder: Path) -> None:
    """Writes the list of a folder's files and subfolders to the disk.

    Otherwise, a crash of the machine may remove a new file from the folder, although the file's content is on the disk.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
