"""Makes and parses the ids of jobs and fragments, such as ``mv-9`` and ``ingest-7``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.metastore.records import RebuildRecord


def ingest_fragment(source_id: int) -> str:
    """The id of the fragment of a source's shared reader, which is also the id of the reader's job."""
    return f"ingest-{source_id}"


def view_job(view_id: int) -> str:
    """The id of the job of a materialized view or table."""
    return f"mv-{view_id}"


def reader_fragment(view_id: int, source_id: int) -> str:
    """The id of the fragment of the direct reader with which a view reads a source that is not shared: ``mv-9:7`` for
    view 9 and source 7."""
    return f"{view_job(view_id)}:{source_id}"


def fragment_source(fragment: str) -> int:
    """The id of the source that a fragment reads: 7 for ``ingest-7`` and for ``mv-9:7``."""
    return int(fragment.replace(":", "-").rpartition("-")[2])


def fragment_object(fragment: str) -> int:
    """The id of the object whose job runs a fragment: source 7 for ``ingest-7``, and view 9 for ``mv-9:7``."""
    return int(fragment.partition(":")[0].rpartition("-")[2])


def sink_job(sink_id: int) -> str:
    """The id of the job of a sink."""
    return f"sink-{sink_id}"


def rebuild_job(rebuild: RebuildRecord) -> str:
    """The id of the job that rebuilds a view. For example, the job ``mv-9.2`` builds the table of generation 2 of view
    9."""
    return generation_job(rebuild.view_id, rebuild.generation)


def generation_job(view_id: int, generation: int) -> str:
    """The id of the rebuild job that builds the table of the given generation of a view."""
    return f"{view_job(view_id)}.{generation}"


def job_object(job: str) -> int:
    """The id of the object to which a job belongs: 9 for ``mv-9`` and for ``mv-9.2``."""
    return int(job.partition(".")[0].rpartition("-")[2])
