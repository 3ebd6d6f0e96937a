"""The datagen connector: generates rows that depend only on the seed, the split and the offset."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from rw_sql.connectors.base import ENDLESS, EXACTLY, RESOLVE_TIMEOUT_SECONDS, Upstream, UpstreamSplit
from rw_sql.connectors.plain import PlainConnector
from rw_sql.connectors.spec import check_option_values, load_spec
from rw_sql.errors import UNKNOWN_SPLIT, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.spec import ConnectorSpec

CLUSTER = "datagen"
_SPLIT = re.compile(r"([0-9]{1,6})-([0-9]{1,6})")


class DatagenConnector(PlainConnector):
    """See :class:`rw_sql.connectors.base.Connector`."""

    executor_packages = ("numpy",)

    other_targets = "TO EARLIEST, TO OFFSET or TO TIMESTAMP"
    offsets_count = EXACTLY

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/datagen.toml``."""
        return load_spec("datagen")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks those rules for the options that do not depend on the columns. :meth:`check_columns` checks the
        others."""
        check_option_values(self.spec, options)
        self.check_columns(options, {})

    def check_columns(self, options: Mapping[str, str], columns: Mapping[str, str]) -> None:
        """Checks that rows with these columns (name → canonical type) can be generated. Raises SqlError."""
        from rw_sql.connectors.datagen import plan as datagen_plan

        datagen_plan.plan_rows(self.spec, options, columns)
        if columns:
            datagen_plan.check_total(self.spec, options, columns)

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """Returns all splits. Each split begins at the offset 0. If the number of rows is unlimited, the end of the
        splits is ENDLESS. ``is_endless`` (see :class:`~rw_sql.connectors.base.UpstreamSplit`) is true if the source has
        a rate."""
        from rw_sql.connectors.datagen import plan as datagen_plan

        count = datagen_plan.split_count(self.spec, options)
        plan = datagen_plan.plan_rows(self.spec, options, None)
        is_paced = datagen_plan.rows_per_second(self.spec, options) is not None
        incarnation = f"seed {plan.seed}"
        splits = {}
        for index in range(count):
            end = plan.split_total(index) if plan.total is not None and plan.total < ENDLESS else None
            split = f"{count}-{index}"
            splits[split] = UpstreamSplit(
                split=split,
                start=0,
                end=ENDLESS if end is None else end,
                cluster=CLUSTER,
                incarnation=incarnation,
                is_endless=is_paced,
            )
        return Upstream(splits=splits, cluster=CLUSTER)

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """The offset of each split's first row with a timestamp at or after ``milliseconds``; the split's end if there
        is no such row."""
        from rw_sql.connectors.datagen import plan as datagen_plan

        plan = datagen_plan.plan_rows(self.spec, options, None)
        row = max(0, -int((plan.origin_us - milliseconds * 1000) // plan.step_us))
        made = {}
        for split in splits:
            index = int(split.rpartition("-")[2])
            end = plan.split_total(index)
            made[split] = min(max(0, -((index - row) // plan.splits)), ENDLESS if end is None else end)
        return made

    def split_topic(self, split: str) -> str:
        """Returns the number of splits as text. The number determines how rows are distributed among the splits. A
        position is therefore valid only for this number of splits."""
        return split.partition("-")[0]

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The number of splits as text, as in :meth:`split_topic`."""
        from rw_sql.connectors.datagen import plan as datagen_plan

        return (str(datagen_plan.split_count(self.spec, options)),)

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The split's id, such as ``4-0``. In ``written``, a bare number is the index of a split. Raises SqlError
        UNKNOWN_SPLIT."""
        from rw_sql.connectors.datagen import plan as datagen_plan

        count = datagen_plan.split_count(self.spec, options)
        text = written.strip()
        if text.isascii() and text.isdecimal() and len(text) < 7:
            return f"{count}-{int(text)}"
        match = _SPLIT.fullmatch(text)
        if match is None:
            raise SqlError(
                UNKNOWN_SPLIT,
                f'"{written}" is not a split of a datagen source',
                hint=f"its splits are '{count}-0' to '{count}-{count - 1}'",
            )
        return f"{int(match[1])}-{int(match[2])}"

    def read_stream(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        positions: Mapping[str, SplitState],
        *,
        max_records: int | None,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Returns a stream of rows, each as JSON in the column ``value``. ``columns`` and the options determine the
        fields of the rows."""
        from rw_sql.connectors.datagen import plan as datagen_plan
        from rw_sql.connectors.datagen import reader as datagen_reader

        return datagen_reader.read_stream(
            spark,
            datagen_plan.plan_rows(self.spec, options, columns),
            datagen_plan.rows_per_second(self.spec, options),
            positions,
            max_records=max_records,
        )

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Generates the rows of these offset ranges. The same range always gives the same rows."""
        from rw_sql.connectors.datagen import plan as datagen_plan
        from rw_sql.connectors.datagen import reader as datagen_reader

        return datagen_reader.read_batch(spark, datagen_plan.plan_rows(self.spec, options, columns), ranges)

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """The next offset of each split, parsed from JSON such as ``{"4-0":5}``."""
        return {split: int(offset) for split, offset in json.loads(source_offset).items()}

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """The positions as JSON, such as ``{"4-0":5}``."""
        return json.dumps(dict(positions), separators=(",", ":"))
