"""Makes and parses the ids of jobs and fragments, such as ``mv-9`` and ``ingest-7``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.metastore.records import RebuildRecord


def ingest_fragment(source_id: int) -> str:
    """The fragment (and job) of a source's shared reader."""
    return f"ingest-{source_id}"


def view_job(view_id: int) -> str:
    """The job of a materialized view or table."""
    return f"mv-{view_id}"


def reader_fragment(view_id: int, source_id: int) -> str:
    """The fragment of a view's direct reader of a source that is not shared: ``mv-9:7``."""
    return f"{view_job(view_id)}:{source_id}"


def fragment_source(fragment: str) -> int:
    """The source that a fragment reads: 7 for ``ingest-7`` and for ``mv-9:7``."""
    return int(fragment.replace(":", "-").rpartition("-")[2])


def fragment_object(fragment: str) -> int:
    """The object whose job runs a fragment: source 7 for ``ingest-7``, view 9 for ``mv-9:7``."""
    return int(fragment.partition(":")[0].rpartition("-")[2])


def sink_job(sink_id: int) -> str:
    """The job of a sink."""
    return f"sink-{sink_id}"


def rebuild_job(rebuild: RebuildRecord) -> str:
    """The job that rebuilds a view. For example, ``mv-9.2`` builds the table of generation 2 of view 9."""
    return generation_job(rebuild.view_id, rebuild.generation)


def generation_job(view_id: int, generation: int) -> str:
    """The job of the rebuild that builds a view's table with this generation."""
    return f"{view_job(view_id)}.{generation}"


def job_object(job: str) -> int:
    """The object of a job: 9 for ``mv-9`` and for ``mv-9.2``."""
    return int(job.partition(".")[0].rpartition("-")[2])
