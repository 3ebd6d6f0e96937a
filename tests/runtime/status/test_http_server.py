"""The endpoints over a warehouse that the metastore wrote: their answers, and who may get them."""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rw_sql.errors import SqlError
from rw_sql.metastore.records import PauseRecord, PutObject, SecretRecord
from rw_sql.runtime.jobs.silent_owners import LATE_SECONDS
from rw_sql.runtime.observe.metrics import HELP
from rw_sql.runtime.status.http_server import StatusServer, is_loopback
from rw_sql.runtime.status.page import PageQuery, page_html, style
from rw_sql.runtime.status.reading import Measures, read_status
from rw_sql.runtime.status.served import COUNT_SECONDS, PATIENCE_SECONDS, ServedWarehouse
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.leaks import search_all
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.runtime.jobs.context import Context

TOKEN = "0123456789abcdef-of-a-test"
HOSTILE = "<script>alert('x')</script>\"&<img src=x onerror=alert(1)>"


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    return WrittenWarehouse(tmp_path / "w")


@pytest.fixture
def server() -> Iterator[StatusServer]:
    server = StatusServer("127.0.0.1", 0)
    yield server
    server.close()


def get(server: StatusServer, target: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    """A request's status, body and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, dict(answer.getheaders())


def fill(written: WrittenWarehouse, name: str = "orders") -> Context:
    """A stalled source, a running view, a sink, and an unsafe operation."""
    written.commit(
        written.connection(1, f"broker {name}"),
        *written.source(2, name, uses=(1,)),
        written.view(3, f"totals {name}", 2),
        written.sink(4, "out", 3),
    )
    written.commit(
        kind="UNSAFE SET",
        is_unsafe=True,
        statement=f"ALTER SOURCE {name} UNSAFE SET (topic = 'o2')",
        objects=(name,),
        reason=f"because of {name}",
        plan=f"preview of {name}",
    )
    written.lease()
    written.status(
        "ingest-2",
        "STALLED",
        reason=f"EXPIRED {name}: PAUSE SOURCE orders; RESUME SOURCE orders",
        last_error=f"error of {name}",
    )
    written.status("mv-3", "RUNNING")
    return written.context()


class Tags(HTMLParser):
    """The parts of a document: its tags with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_rows_are_counted_once_although_the_store_fails_in_between(written: WrittenWarehouse) -> None:
    """The process that serves a warehouse also counts rows: an outage of the store must not end it."""
    context, now = fill(written), [0.0]
    table = written.fence("mv-3", 1)
    served = ServedWarehouse(context, clock=lambda: now[0])
    served.count()
    for number in range(3):
        written.batch(table, "mv-3", 1, number, 5)
    commit = Path(table, "_delta_log", f"{3:020}.json")
    text = commit.read_text(encoding="utf-8")
    commit.unlink()
    commit.mkdir()
    for _ in range(2):
        now[0] += COUNT_SECONDS + 1
        served.count()
    commit.rmdir()
    commit.write_text(text, encoding="utf-8")
    now[0] += COUNT_SECONDS + 1
    served.count()
    name, labels = "rw_sql_job_rows_total", (("job", "mv-3"), ("object", "totals orders"))
    values = {(sample.name, sample.labels): sample.value for sample in served.metrics.samples()}
    assert values[name, labels] == 15


def test_no_metric_is_about_a_dropped_object(written: WrittenWarehouse) -> None:
    context = fill(written)
    written.status("mv-7", "STALLED", reason="no disk")  # its view was dropped while no process ran the jobs
    samples = ServedWarehouse(context).metrics.samples()
    assert [sample.labels for sample in samples if ("job", "mv-7") in sample.labels] == []
    assert {dict(sample.labels)["job"] for sample in samples if sample.name == "rw_sql_job_state"} >= {"mv-3"}


def test_alive_and_not_ready_until_there_is_something_to_show(server: StatusServer) -> None:
    assert get(server, "/healthz")[:2] == (200, "alive\n")
    assert get(server, "/readyz")[:2] == (503, "starting Spark\n")
    assert get(server, "/")[0] == 503
    assert get(server, "/nothing")[0] == 404


def test_ready_once_the_lease_is_held_and_the_statements_are_applied(written: WrittenWarehouse) -> None:
    context = fill(written)
    now = [0.0]
    served = ServedWarehouse(context, clock=lambda: now[0])
    assert served.why_not_ready() == "standing by: another process runs the jobs"
    context.owning.set()
    assert served.why_not_ready() == "0 of 2 statements are applied to the jobs"
    lease = written.metastore.jobs.lease()
    assert lease is not None
    object.__setattr__(context, "owner", lease.owner)
    assert served.why_not_ready() is None
    written.commit(written.connection(9, "another"))
    assert served.why_not_ready() is None  # it is about to be applied
    now[0] += PATIENCE_SECONDS + 1
    assert served.why_not_ready() == "2 of 3 statements are applied to the jobs"


def test_a_process_that_cannot_write_its_heartbeat_is_not_ready(written: WrittenWarehouse) -> None:
    context = fill(written)
    served = ServedWarehouse(context)
    context.owning.set()
    lease = written.metastore.jobs.lease()
    assert lease is not None
    object.__setattr__(context, "owner", lease.owner)
    assert served.why_not_ready() is None
    silent = replace(lease, heartbeat_ms=now_ms() - int(LATE_SECONDS * 1000))
    assert written.metastore.jobs.take_lease(silent, replacing=lease)
    assert served.why_not_ready() == "the warehouse cannot be written: the last heartbeat is 30 s old"


def test_in_an_object_store_too_a_process_is_not_ready_30_seconds_after_its_last_heartbeat(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process judges its own heartbeat, which has the time of its own clock."""
    context = fill(written)
    served = ServedWarehouse(context)
    context.owning.set()
    lease = written.metastore.jobs.lease()
    assert lease is not None
    object.__setattr__(context, "owner", lease.owner)
    monkeypatch.setattr(Warehouse, "is_local", False)
    recent = replace(lease, heartbeat_ms=now_ms() - 20_000)
    assert written.metastore.jobs.take_lease(recent, replacing=lease)
    assert served.why_not_ready() is None
    silent = replace(lease, heartbeat_ms=now_ms() - 40_000)
    assert written.metastore.jobs.take_lease(silent, replacing=recent)
    assert served.why_not_ready() == "the warehouse cannot be written: the last heartbeat is 40 s old"


def test_the_page_shows_jobs_stalls_operations_and_lineage(server: StatusServer, written: WrittenWarehouse) -> None:
    server.show(ServedWarehouse(fill(written)))
    code, body, headers = get(server, "/")
    assert code == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    text = Tags(body).text
    for wanted in (
        "Stalled: 1",
        "PAUSE SOURCE orders;\nRESUME SOURCE orders;\n",
        "2: UNSAFE SET on orders",
        "preview of orders",
        "because of orders",
        "totals orders",
        "all statements applied",
    ):
        assert wanted in text, wanted
    drawn = [found for tag, found in Tags(body).tags if tag == "g"]
    assert len(drawn) == 4
    assert get(server, "/?state=RUNNING")[1].count('<th scope="row">') == 1
    assert get(server, "/?name=TOTALS&limit=1")[1].count('<th scope="row">') == 1
    assert get(server, "/?lineage=out&limit=x")[1].count('<g class="node') == 4
    assert json.loads(get(server, "/status.json")[1])["owner"]["state"] == "RUNNING"


def test_nothing_in_the_page_runs_but_its_own_script(server: StatusServer, written: WrittenWarehouse) -> None:
    server.show(ServedWarehouse(fill(written, HOSTILE)))
    code, body, headers = get(server, "/?name=" + "%3Cscript%3E%22&state=%22%3E%3Cscript%3E&lineage=%3Cimg%3E")
    assert code == 200
    _, whole, _ = get(server, "/")
    for shown in (body, whole):
        found = Tags(shown).tags
        assert [attributes for tag, attributes in found if tag == "script"] == [{"src": "script.js", "defer": None}]
        assert not [tag for tag, _ in found if tag in ("img", "iframe", "style", "object")]
        assert not [name for _, attributes in found for name in attributes if name.startswith("on") or name == "style"]
        links = [attributes["href"] or "" for tag, attributes in found if tag == "a"]
        assert all(link.startswith("?") for link in links), links
    assert HOSTILE in Tags(whole).text
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    for target in ("/style.css", "/script.js"):
        code, body, _ = get(server, target)
        assert code == 200
        assert "http://" not in body.replace("http://www.w3.org", "")
        assert "https://" not in body
    # The page's style has the colours of its boxes, because the picture has no style of its own.
    assert ".graph .stalled .box" in style()


def test_only_reading_is_possible(server: StatusServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(server, "/", method)[0] == 501
    code, body, headers = get(server, "/healthz", "HEAD")
    assert (code, body, headers["Content-Length"]) == (200, "", "6")


def test_a_web_site_that_resolves_to_the_loopback_reads_nothing(
    server: StatusServer, written: WrittenWarehouse
) -> None:
    server.show(ServedWarehouse(fill(written)))
    for target in ("/", "/metrics", "/healthz"):
        assert get(server, target, Host=f"evil.example:{server.port}")[0] == 421
    assert get(server, "/", Host=f"localhost:{server.port}")[0] == 200


def test_other_interfaces_need_a_token(written: WrittenWarehouse) -> None:
    with pytest.raises(SqlError, match="without a token"):
        StatusServer("0.0.0.0", 0)
    with pytest.raises(SqlError, match="fewer than 16"):
        StatusServer("0.0.0.0", 0, token="short")
    server = StatusServer("0.0.0.0", 0, token=TOKEN)
    try:
        server.show(ServedWarehouse(fill(written)))
        assert [get(server, target)[0] for target in ("/healthz", "/readyz")] == [200, 503]
        basic = base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
        wrong = base64.b64encode(f"{TOKEN}:".encode()).decode()
        for target in ("/", "/metrics", "/status.json", "/style.css", "/script.js", "/nothing"):
            code, body, headers = get(server, target)
            assert code == 401
            assert "orders" not in body
            assert headers["WWW-Authenticate"].startswith("Basic ")
            for given in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", TOKEN, f"Basic {wrong}", "Basic é!"):
                sent = given.encode("latin-1", "replace").decode("latin-1")
                assert get(server, target, Authorization=sent)[0] == 401, given
            wanted = 404 if target == "/nothing" else 200
            assert get(server, target, Authorization=f"Bearer {TOKEN}")[0] == wanted
            assert get(server, target, Authorization=f"Basic {basic}", Host="a.name")[0] == wanted
    finally:
        server.close()


def test_the_answer_to_a_wrong_token_differs_from_that_to_none() -> None:
    server = StatusServer("127.0.0.1", 0, token=TOKEN)
    try:
        assert get(server, "/")[:2] == (401, "a token is needed: as a bearer token, or as the password\n")
        assert get(server, "/", Authorization=f"Bearer {TOKEN}x")[:2] == (401, "the token is wrong\n")
    finally:
        server.close()


def test_a_token_may_have_characters_beyond_ascii() -> None:
    token = f"{TOKEN}-ä€à"
    server = StatusServer("127.0.0.1", 0, token=token)
    try:
        basic = base64.b64encode(f"anyone:{token}".encode()).decode()
        for given in (f"Bearer {token}", f"Basic {basic}"):
            sent = given.encode().decode("latin-1")  # http.client encodes headers as Latin-1
            assert get(server, "/nothing", Authorization=sent)[0] == 404, given
    finally:
        server.close()


@pytest.mark.parametrize(
    ("host", "found"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback(host: str, found: bool) -> None:
    assert is_loopback(host) is found


def test_a_port_that_is_taken_is_said(server: StatusServer) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(SqlError, match="cannot be served at") as caught:
            StatusServer("127.0.0.1", other.getsockname()[1])
    assert "--port 0" in (caught.value.hint or "")


def test_metrics_are_in_prometheus_format_and_each_is_described(
    server: StatusServer, written: WrittenWarehouse
) -> None:
    server.show(ServedWarehouse(fill(written)))
    code, body, headers = get(server, "/metrics")
    assert code == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    names = {sample.name for family in text_string_to_metric_families(body) for sample in family.samples}
    assert names <= set(HELP), names - set(HELP)
    assert {
        "rw_sql_job_state",
        "rw_sql_job_lag_seconds",
        "rw_sql_owner_present",
        "rw_sql_owner_info",
        "rw_sql_build_info",
        "rw_sql_catalog_epoch",
        "rw_sql_applied_epoch",
        "rw_sql_unsafe_operations_total",
    } <= names
    assert re.search(r'rw_sql_job_state\{job="ingest-2",object="orders",state="STALLED"\} 1\.0', body)


def test_a_secret_is_nowhere_in_what_is_served(server: StatusServer, written: WrittenWarehouse, tmp_path: Path) -> None:
    secret, canary = "s3cretOfTheTest0123456789", "canaryOfTheTest0123456789"
    written.commit(
        PutObject(record=SecretRecord(id=20, name="pw", definition="CREATE SECRET pw", backend="meta", sealed=secret)),
        written.connection(
            21,
            canary,
            f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '127.0.0.1:1',"
            f" properties.sasl.password = '{secret}')",
        ),
    )
    context = fill(written)
    server.show(ServedWarehouse(context))
    served = tmp_path / "served"
    served.mkdir()
    for number, target in enumerate(("/", "/metrics", "/status.json", "/?lineage=pw", "/style.css", "/script.js")):
        (served / f"{number}.txt").write_text(get(server, target)[1], encoding="utf-8")
    found = search_all(served, [secret, canary])
    assert not found[secret]
    assert {hit.path.name for hit in found[canary]} >= {"0.txt", "2.txt"}


@pytest.mark.long
def test_ten_thousand_objects_are_shown_in_under_a_second(written: WrittenWarehouse) -> None:
    changes = []
    for id_ in range(1, 10_001, 100):
        changes += written.source(id_, f"s{id_}")
        changes += [written.view(id_ + at, f"v{id_ + at}", id_ + at - 1) for at in range(1, 100)]
    written.commit(*changes)
    written.lease()
    context = written.context()
    page_html(read_status(context, Measures()), PageQuery())  # parses each definition once
    spent = []
    for _ in range(3):
        started = time.process_time()
        status = read_status(context, Measures())
        body = page_html(status, PageQuery(limit=20_000))
        spent.append(time.process_time() - started)
    assert len(status.jobs) == 10_000
    assert body.count('<th scope="row">') == 10_000
    assert page_html(status, PageQuery()).count('<th scope="row">') == 200
    # The CPU time of this process, of which busy neighbours on the same core and the garbage of earlier tests add some.
    assert min(spent) < 1, spent


def test_while_the_catalog_is_away_the_metrics_say_so_and_the_probes_differ(
    server: StatusServer, written: WrittenWarehouse
) -> None:
    context = fill(written)
    context.owning.set()
    server.show(ServedWarehouse(context))
    assert "rw_sql_catalog_readable 1.0" in get(server, "/metrics")[1].splitlines()
    catalog, away = Path(written.uri, "rw_catalog"), Path(written.uri, "away")
    catalog.rename(away)
    code, body, _ = get(server, "/metrics")
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if sample.name != "rw_sql_job_state"
    }
    assert (code, values["rw_sql_catalog_readable"], values["rw_sql_build_info"]) == (200, 0, 1)
    assert "rw_sql_catalog_epoch" not in values
    assert get(server, "/readyz")[:2] == (503, "the catalog cannot be read\n")
    assert get(server, "/healthz")[0] == 200
    code, _, headers = get(server, "/")
    assert (code, headers["Refresh"]) == (503, "5")
    assert "Refresh" not in get(server, "/status.json")[2]
    with pytest.raises(OSError, match="operations"):
        ServedWarehouse(context).metrics.samples()  # SHOW METRICS fails instead of leaving metrics out
    away.rename(catalog)
    assert "rw_sql_catalog_readable 1.0" in get(server, "/metrics")[1].splitlines()
    assert get(server, "/")[0] == 200


def test_one_table_that_cannot_be_read_leaves_the_other_metrics(written: WrittenWarehouse) -> None:
    context = fill(written)
    table = written.fence("mv-3", 1)
    commit = Path(table, "_delta_log", f"{0:020}.json")
    commit.unlink()
    commit.mkdir()
    samples = {sample.name: sample.value for sample in ServedWarehouse(context).metrics.readable_samples()}
    assert samples["rw_sql_catalog_readable"] == 0
    assert samples["rw_sql_owner_present"] == 1
    assert "rw_sql_job_state" in samples


def test_the_metrics_show_the_states_that_show_jobs_shows(written: WrittenWarehouse) -> None:
    """Of paused sources, of sinks, and of jobs that the owner has not reported yet."""
    context = fill(written)
    written.commit(*written.source(10, "quiet"), written.view(11, "calm", 10))
    pause = PauseRecord(id=12, name="pause 10", source_id=10, reason="a rest")
    written.commit(PutObject(record=pause))
    shown = {job.job: job.state for job in read_status(context, Measures()).jobs}
    assert shown == {
        "ingest-2": "STALLED",
        "mv-3": "RUNNING",
        "sink-4": "STARTING",
        "ingest-10": "PAUSED",
        "mv-11": "STARTING",
    }
    samples = [dict(sample.labels) for sample in ServedWarehouse(context).metrics.samples() if "state" in sample.name]
    assert {labels["job"]: labels["state"] for labels in samples if "state" in labels} == shown


def test_an_answer_that_fails_is_an_answer(
    server: StatusServer, written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that gets no answer concludes that the process has ended."""
    served = ServedWarehouse(fill(written))

    def fails() -> str | None:
        raise KeyError("of a record")

    monkeypatch.setattr(served, "why_not_ready", fails)
    server.show(served)
    assert get(server, "/readyz")[:2] == (500, "the answer failed; the log shows the reason\n")
