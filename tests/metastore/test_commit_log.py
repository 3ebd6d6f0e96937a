"""How new commits of a table in an object store are found: with few requests, and however the log was cleaned up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore import Metastore, commit_log
from rw_sql.metastore.commit_log import Looks, StoreLog
from rw_sql.metastore.facts import JobStatus
from tests.support.s3_store import BUCKET, S3Store, store_of_the_environment

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    def __init__(self) -> None:
        self.seconds, self.wall = 1000.0, 1e9

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.wall

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += seconds


class Files:
    """The commits of a log in an object store that are not cleaned up."""

    def __init__(self, *versions: int) -> None:
        self.versions = set(versions)
        self.fetched: list[int] = []
        self.error: type[OSError] = FileNotFoundError

    def fetch(self, path: str) -> bytes:
        version = int(path.removeprefix("s3://b/t/_delta_log/").removesuffix(".json"))
        self.fetched.append(version)
        if version not in self.versions:
            raise self.error(path)
        return f"commit {version}".encode()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(commit_log, "time", clock)
    return clock


@pytest.fixture
def files(clock: Clock) -> Files:
    return Files(0)


@pytest.fixture
def looks(files: Files) -> Looks:
    return Looks()


@pytest.fixture
def log(files: Files, looks: Looks, clock: Clock) -> StoreLog:
    log = StoreLog("s3://b/t", files.fetch, looks)
    assert log.newest(0) is None, "a new log was not listed yet"
    log.listed(0, clock.monotonic())
    return log


def test_a_look_fetches_only_the_next_commit(log: StoreLog, files: Files) -> None:
    assert (log.newest(0), files.fetched) == (0, [1])
    files.versions |= {1, 2, 3}
    assert (log.newest(0), files.fetched) == (3, [1, 1, 2, 3, 4])
    assert (log.text(1), log.text(3), log.text(4)) == ("commit 1", "commit 3", None)
    # The caller's handle may be further than what was fetched, after a commit of its own.
    files.versions |= {4, 5}
    assert (log.newest(5), files.fetched[5:]) == (5, [6])


@pytest.mark.parametrize("sleeps", [False, True])
def test_commits_that_were_cleaned_up_unseen_are_found_by_a_listing(
    log: StoreLog, files: Files, clock: Clock, sleeps: bool
) -> None:
    """A machine with another clock may clean up a commit that was written a second ago."""
    files.versions = set(range(50, 60))
    assert log.newest(0) == 0
    if sleeps:
        clock.wall += 60  # The monotonic clock stands still while the machine sleeps.
    else:
        for _ in range(59):
            clock.advance(1)
            assert log.newest(0) == 0
        clock.advance(1)
    assert log.newest(0) is None
    log.listed(59, clock.monotonic())
    assert log.newest(0) == 59
    clock.wall -= 3600  # Somebody sets the clock back.
    assert log.newest(0) is None


def test_many_new_commits_are_listed(log: StoreLog, files: Files) -> None:
    files.versions = set(range(200))
    assert log.newest(0) is None
    assert len(files.fetched) == 10


def test_a_store_that_hides_which_files_are_missing_is_listed(log: StoreLog, files: Files, clock: Clock) -> None:
    files.error = PermissionError
    assert log.newest(0) is None
    log.listed(0, clock.monotonic())
    assert log.newest(0) is None
    assert files.fetched == [1], "the store refuses each request"
    files.error = FileNotFoundError
    clock.advance(60)
    log.listed(0, clock.monotonic())
    assert (log.newest(0), files.fetched) == (0, [1, 1])


def test_other_errors_reach_the_caller(log: StoreLog, files: Files) -> None:
    files.error = ConnectionError
    with pytest.raises(ConnectionError):
        log.newest(0)
    files.error = FileNotFoundError
    assert log.newest(0) == 0


def test_a_thread_that_may_look_less_often_reuses_the_last_look(
    log: StoreLog, files: Files, looks: Looks, clock: Clock
) -> None:
    def look(*, is_exact: bool = False) -> bool:
        before = len(files.fetched)
        assert log.newest(0, is_exact=is_exact) == 0
        return len(files.fetched) > before

    assert look()
    with looks.at_most_every(1.0):
        assert not look()
        assert look(is_exact=True)
        clock.advance(0.9)
        assert not look()
        with looks.at_most_every(0.5):
            assert look()
            assert not look()
        clock.advance(0.6)
        assert not look()
        clock.advance(0.5)
        assert look()
        assert not look()
        clock.advance(0.1)
        looks.forget()
        assert look()
        assert not look()
        in_others: list[bool] = []
        thread = threading.Thread(target=lambda: in_others.append(look()))
        thread.start()
        thread.join()
        assert in_others == [True]
    assert look()


def test_what_this_process_commits_is_seen_whatever_the_age_of_the_last_look(log: StoreLog, looks: Looks) -> None:
    with looks.at_most_every(1.0):
        assert log.newest(0) == 0
        assert log.newest(1) == 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    with store_of_the_environment(tmp_path_factory.mktemp("s3")) as store:
        yield store


def _status(job: str) -> JobStatus:
    return JobStatus(job=job, object_id=1, state="RUNNING", updated_ms=1)


@pytest.mark.s3
def test_the_metastore_in_an_object_store_needs_few_requests(store: S3Store) -> None:
    ours = Metastore.open(store.warehouse())
    others = Metastore.open(ours.directory.removesuffix("/rw_catalog"))
    for metastore in (ours, others):
        metastore.jobs.write_job_status([_status("first")])
        metastore.jobs.job_statuses()

    def requests(act: object) -> int:
        before = len(store.requests())
        assert callable(act)
        act()
        return len(store.requests()) - before

    ours.jobs.write_job_status([_status("first")])  # advances the handle over the commit of the other one
    assert requests(ours.snapshot) == 1
    assert requests(ours.jobs.job_statuses) == 1
    assert requests(lambda: ours.jobs.write_job_status([_status("ours")])) <= 7
    others.jobs.write_job_status([_status("others")])
    assert requests(ours.jobs.job_statuses) <= 3, "the next commit, the one after it, and a file of rows"
    assert set(ours.jobs.job_statuses()) == {"first", "ours", "others"}


@pytest.mark.s3
def test_a_reader_whose_next_commit_was_cleaned_up_goes_on(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Metastore.open(store.warehouse())
    others = Metastore.open(ours.directory.removesuffix("/rw_catalog"))
    ours.jobs.write_job_status([_status("first")])
    assert set(others.jobs.job_statuses()) == {"first"}
    for _ in range(3):
        ours.jobs.write_job_status([_status("second")])
    table = ours.jobs._statuses()._table
    table._handle.create_checkpoint()
    for version in range(4):
        key = f"{table.uri.removeprefix(f's3://{BUCKET}/')}/_delta_log/{version:020d}.json"
        store.client.delete_object(Bucket=BUCKET, Key=key)
    assert set(others.jobs.job_statuses()) == {"first"}
    others.jobs.write_job_status([_status("third")])
    assert set(others.jobs.job_statuses()) == {"first", "second", "third"}
    monkeypatch.setattr(commit_log, "_LISTING_SECONDS", 0.0)
    assert set(ours.jobs.job_statuses()) == {"first", "second", "third"}
