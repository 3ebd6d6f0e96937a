"""Files as a source. Each file is a split, whose id is the file's path below the root. An offset counts bytes of the
file.

``posix_fs``, ``s3``, ``gcs`` and ``azblob`` differ only in where the files are stored.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import importlib.util
import json
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, Stretch, Upstream, UpstreamSplit
from rw_sql.connectors.files.compression import ENDINGS
from rw_sql.connectors.files.store import LOCAL, FileStore, incarnation_size, is_storable
from rw_sql.connectors.ranged import Encoding, RangedConnector
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.errors import INVALID_PROPERTY, NOT_SUPPORTED, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.files.store import FoundFile
    from rw_sql.connectors.spec import ConnectorSpec

PATTERN = "match_pattern"
COMPRESSION = "compression_format"
_READ_WHOLE = (".parquet", *ENDINGS)


class FileConnector(RangedConnector):
    """Files below one root."""

    name = ""
    packages: tuple[tuple[str, str], ...] = ()
    """Pairs of an additional Python package that the connector needs, and the extra of rw_sql that installs the
    package."""

    has_shared_offsets = True
    executor_packages: tuple[str, ...] = ("fsspec", "numpy", "pyarrow")
    offsets_per_record = 100
    poll_seconds = None

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/<name>.toml``."""
        return load_spec(self.name)

    @abstractmethod
    def store(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> FileStore:
        """Returns an object for the store of the files, without contacting the store."""

    def faults(self) -> tuple[type[Exception], ...]:
        """The exceptions that the store's client may raise when it lists files."""
        return (OSError,)

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent and that the needed packages are installed. Contacts no store."""
        check_option_values(self.spec, options)
        for package, extra in self.packages:
            if importlib.util.find_spec(package) is None:
                raise SqlError(
                    NOT_SUPPORTED,
                    f'connector "{self.name}" needs the Python package {package}, which is not installed',
                    hint=f"pip install 'rw-sql[{extra}]'",
                )
        self.store(options)

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """Lists the files as splits."""
        cluster = self.cluster(options)
        splits = {}
        try:
            for found in self._files(options, timeout):
                if not is_storable(found.path):
                    return Upstream(error=_said_of_name(found.path, self.store(options).root))
                splits[found.path] = UpstreamSplit(
                    split=found.path, start=0, end=found.size, cluster=cluster, incarnation=found.incarnation
                )
        except self.faults() as error:
            return Upstream(error=_said(error, self.store(options).root))
        return Upstream(splits=splits, cluster=cluster)

    def cluster(self, options: Mapping[str, str]) -> str:
        """The identity of the root."""
        store = self.store(options)
        return f"{self.name}:{store.root}"

    def _files(self, options: Mapping[str, str], timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Iterator[FoundFile]:
        return self.store(options, timeout=timeout).files(options.get(PATTERN))

    def names_split(self, options: Mapping[str, str], split: str) -> bool:
        """True if the pattern in the options matches the file's path."""
        pattern = options.get(PATTERN)
        return not pattern or fnmatch.fnmatchcase(split, pattern)

    def end_of(self, state: SplitState) -> int | None:
        """The file's size according to the incarnation in ``state``; None if the incarnation is unknown."""
        return incarnation_size(state.incarnation)

    def is_finished(self, state: SplitState) -> bool:
        """True if the position has reached the file's size."""
        size = self.end_of(state)
        return size is not None and state.offset >= size

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The unread range of each file that has not been read to its end, in the order of the files' names."""
        is_packed = (options.get(COMPRESSION) or "none").lower() != "none"
        found = []
        for split in sorted(positions):
            state = positions[split]
            size = incarnation_size(state.incarnation)
            if size is None:
                size = self.store(options).find(split).size
            if state.offset < size:
                is_whole = is_packed or split.lower().endswith(_READ_WHOLE)
                found.append(Stretch(split=split, start=state.offset, end=size, is_whole=is_whole))
        return tuple(found)

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """Returns, for each file, the offset 0 if the file was written at or after ``milliseconds`` or at an unknown
        time, and the file's end if it is older."""
        wanted = set(splits)
        return {
            found.path: found.size if found.modified_ms is not None and found.modified_ms < milliseconds else 0
            for found in self._files(options, timeout)
            if found.path in wanted
        }

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns the source's only topic and the reason: its offsets count bytes, not records."""
        return {"": "offsets of files count bytes"}

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The time when each file was written; empty if the files are not in a local folder."""
        store = self.store(options)
        times = {}
        for split in offsets if store.is_local else ():
            try:
                modified = store.find(split).modified_ms
            except OSError:
                continue
            if modified is not None:
                times[split] = modified
        return times

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
        encoding: Encoding | None = None,
        lives: Mapping[str, str | None] | None = None,
    ) -> DataFrame:
        """Returns the records of these ranges. The column ``value`` contains the lines of text files, and the column
        ``_rw_row`` contains the rows of Parquet files."""
        from rw_sql.connectors.files import reader as file_reader

        known = lives or {}
        return file_reader.read_batch(
            spark,
            self.store(options),
            [(split, start, end, known.get(split)) for split, (start, end) in sorted(ranges.items())],
            encoding=encoding or Encoding(encode="JSON"),
            columns=list(columns or {}),
            compression=_compression(options),
        )

    def read_snapshot(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        encode: str = "NATIVE",
        encode_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Returns all rows of all current Parquet files. See :class:`rw_sql.connectors.snapshots.SnapshotReader`."""
        from pyspark.sql import functions as f

        from rw_sql.connectors.support.typed_records import quoted

        if encode != "PARQUET":
            raise ValueError(f"read_lines reads files of ENCODE {encode}")
        row = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        encoding = Encoding(encode=encode, options=encode_options or {}, row=row)
        records = self._read_all(spark, options, encoding, list(columns))
        made = f.when(f.col("_rw_fault").isNull(), f.col("_rw_row")).otherwise(f.raise_error(f.col("_rw_fault")))
        return records.select(made.alias("_rw_row")).select("_rw_row.*")

    def read_lines(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Sequence[str],
        *,
        encode: str,
        encode_options: Mapping[str, str],
    ) -> DataFrame:
        """All lines of all current files. See :class:`rw_sql.connectors.snapshots.LineReader`."""
        return self._read_all(spark, options, Encoding(encode=encode, options=encode_options), columns)

    def _read_all(
        self, spark: SparkSession, options: Mapping[str, str], encoding: Encoding, columns: Sequence[str]
    ) -> DataFrame:
        from rw_sql.connectors.files import reader as file_reader

        pieces = [(found.path, 0, found.size, found.incarnation) for found in self._files(options)]
        return file_reader.read_batch(
            spark,
            self.store(options),
            sorted(pieces),
            encoding=encoding,
            columns=columns,
            compression=_compression(options),
            is_strict=True,
        )


class PosixFsConnector(FileConnector):
    """A folder on the machine that runs the jobs."""

    name = "posix_fs"

    def store(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> FileStore:
        """The folder ``posix_fs.root``."""
        root = options["posix_fs.root"].strip()
        if not root.startswith("/"):
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"posix_fs.root\" must be an absolute path, not '{root}'",
                key="posix_fs.root",
                hint="give a path that begins with /, because other processes have other working directories",
            )
        return FileStore(protocol=LOCAL, root=root.rstrip("/") or "/")


class S3Connector(FileConnector):
    """A bucket of a store with an S3-compatible API."""

    name = "s3"
    packages = (("s3fs", "s3"),)
    executor_packages = (*FileConnector.executor_packages, "s3fs")

    def store(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> FileStore:
        """The bucket ``s3.bucket_name``."""
        client: dict[str, Any] = {"region_name": options["s3.region_name"]}
        if endpoint := options.get("s3.endpoint_url"):
            client["endpoint_url"] = endpoint
        arguments: dict[str, Any] = {
            "client_kwargs": client,
            "config_kwargs": {
                "connect_timeout": timeout,
                "read_timeout": max(timeout, 20.0),
                "retries": {"max_attempts": 2},
            },
        }
        access, secret = options.get("s3.credentials.access"), options.get("s3.credentials.secret")
        if (access is None) != (secret is None):
            raise OptionError(
                INVALID_PROPERTY,
                "s3.credentials.access and s3.credentials.secret must be set together",
                key="s3.credentials.access" if secret is None else "s3.credentials.secret",
                hint="omit both to use the credentials of the machine: environment, ~/.aws, instance role",
            )
        if access is not None:
            arguments |= {"key": str(access), "secret": str(secret)}
        return FileStore(protocol="s3", root=options["s3.bucket_name"].strip().strip("/"), arguments=arguments)

    def cluster(self, options: Mapping[str, str]) -> str:
        """The identity of the root: the bucket and, unless the endpoint is Amazon's, the endpoint."""
        endpoint = options.get("s3.endpoint_url", "")
        return super().cluster(options) + (f"@{endpoint.rstrip('/')}" if endpoint else "")

    def faults(self) -> tuple[type[Exception], ...]:
        """OSError and the exceptions of the store's client."""
        from botocore.exceptions import BotoCoreError, ClientError

        return (OSError, BotoCoreError, ClientError)


class GcsConnector(FileConnector):
    """A bucket of Google Cloud Storage."""

    name = "gcs"
    packages = (("gcsfs", "gcs"),)
    executor_packages = (*FileConnector.executor_packages, "gcsfs")

    def store(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> FileStore:
        """The bucket ``gcs.bucket_name``."""
        arguments: dict[str, Any] = {"requests_timeout": timeout}
        if credential := options.get("gcs.credential"):
            try:
                arguments["token"] = json.loads(base64.b64decode(credential, validate=True))
            except (binascii.Error, ValueError) as error:
                # The new error is raised without `from error`, because the original error would show the secret text.
                del error
                raise OptionError(
                    INVALID_PROPERTY,
                    'property "gcs.credential" must be a service account\'s JSON key in base64',
                    key="gcs.credential",
                    hint="base64 -w0 key.json prints the value",
                ) from None
        if endpoint := options.get("gcs.endpoint_url"):
            arguments["endpoint_url"] = endpoint
        return FileStore(protocol="gs", root=options["gcs.bucket_name"].strip().strip("/"), arguments=arguments)

    def faults(self) -> tuple[type[Exception], ...]:
        """OSError and the exceptions of the store's client."""
        from gcsfs.retry import HttpError
        from google.auth.exceptions import GoogleAuthError

        return (OSError, HttpError, GoogleAuthError)


class AzblobConnector(FileConnector):
    """A container of Azure Blob Storage."""

    name = "azblob"
    packages = (("adlfs", "azblob"),)
    executor_packages = (*FileConnector.executor_packages, "adlfs")

    def store(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> FileStore:
        """The container ``azblob.container_name``."""
        arguments: dict[str, Any] = {}
        account, key = options.get("azblob.credentials.account_name"), options.get("azblob.credentials.account_key")
        if account is not None:
            arguments["account_name"] = str(account)
        if key is not None:
            arguments["account_key"] = str(key)
        if endpoint := options.get("azblob.endpoint_url"):
            arguments["account_host"] = endpoint.partition("://")[2].strip("/")
        return FileStore(protocol="abfs", root=options["azblob.container_name"].strip().strip("/"), arguments=arguments)

    def faults(self) -> tuple[type[Exception], ...]:
        """OSError and the exceptions of the store's client."""
        from azure.core.exceptions import AzureError

        return (OSError, AzureError)


def _compression(options: Mapping[str, str]) -> str | None:
    """The compression of all files. The result is empty for no compression, and None if the name of each file
    determines its compression."""
    given = options.get(COMPRESSION)
    if given is None:
        return None
    name = given.strip().lower()
    return {"none": "", "gz": "gzip"}.get(name, name)


def _said_of_name(path: str, root: str) -> str:
    return (
        f"{root} has a file whose name is not UTF-8, {path!a}: rename it, or exclude it by {PATTERN}; until "
        "then, the source finds no new files"
    )


def _said(error: Exception, root: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{root} does not exist"
    if isinstance(error, PermissionError):
        return f"{root} may not be listed: {error.strerror or error}"
    return f"{root}: {(str(error) or type(error).__name__).splitlines()[0]}"
