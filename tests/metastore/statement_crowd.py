"""Several processes run statements on one warehouse at the same time, and some of the processes are killed at random.
Afterwards, every outcome is checked.

Many statements of different processes are about the same names. Therefore, the order of the commits determines which of
these statements take effect. A plain model replays the statements in this order, and so determines the outcome of each
statement.

Run as ``python -m tests.metastore.statement_crowd``, this is one of the processes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.errors import DEPENDENTS_EXIST, DUPLICATE_OBJECT, UNDEFINED_OBJECT, SqlError
from rw_sql.metastore import ConcurrentCommit, Metastore, Snapshot
from rw_sql.metastore.codec import changes_from_json
from rw_sql.metastore.projections import KEYS, snapshot_from
from rw_sql.metastore.snapshot import effect_of, fold
from rw_sql.metastore.table import StoredTable, join
from rw_sql.session.sparkless import answer, sparkless
from rw_sql.syntax import parse_statement
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rw_sql.metastore.records import OperationRecord
    from tests.support.s3_store import S3Store

PROCESSES, STATEMENTS, KILLS = 8, 50, 5
DONE = "done"
REFUSALS = frozenset({DUPLICATE_OBJECT.code, UNDEFINED_OBJECT.code, DEPENDENTS_EXIST.code})
"""The errors with which a statement about a shared name may be refused."""

_ROOT = Path(__file__).parents[2]
_PARAMETERS = ("streaming_parallelism", "idle_job_timeout")
_SHARED_NAMES, _OWN_NAMES = 4, 3
_LATEST_KILL = 0.9
_KILL_SECONDS = 0.5

Model = dict[tuple[str, str], tuple[str, str | None]]
"""The catalog of the model. Maps the kind and the name of an object to the object's value and to the name of the secret
that the object uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A statement of one process. ``value`` occurs in no other statement; ``uses`` is the secret of a connection."""

    verb: str
    kind: str
    name: str
    value: str
    uses: str | None = None

    @property
    def text(self) -> str:
        """The statement."""
        match self.verb, self.kind:
            case "CREATE", "secret":
                return f"CREATE SECRET {self.name} WITH (backend = 'env', name = 'V{self.value}')"
            case "CREATE", "connection":
                return (
                    f"CREATE CONNECTION {self.name} WITH (type = 'kafka', properties.bootstrap.server = "
                    f"'host{self.value}:9092', properties.security.protocol = 'sasl_plaintext', "
                    "properties.sasl.mechanism = 'PLAIN', properties.sasl.username = 'ann', "
                    f"properties.sasl.password = SECRET {self.uses}, validate = false)"
                )
            case "CREATE", "source":
                return (
                    f"CREATE SOURCE {self.name} (id INT) WITH (connector = 'datagen', "
                    f"datagen.rows.total = '{self.value}')"
                )
            case "SET", _:
                unit = "s" if self.name == "idle_job_timeout" else ""
                return f"ALTER SYSTEM SET {self.name} = '{self.value}{unit}'"
            case _:
                return f"DROP {self.kind.upper()} {self.name}"


def tasks_of(seed: int, process: int, statements: int) -> list[Task]:
    """The statements of a process. Half of the statements are about names that all processes use."""
    draw = random.Random(f"{seed}-{process}")
    tasks = []
    for number in range(statements):
        value = str(1000 + process * statements + number)
        kind = draw.choice(("secret", "secret", "connection", "connection", "source", "parameter"))
        if kind == "parameter":
            tasks.append(Task(verb="SET", kind=kind, name=draw.choice(_PARAMETERS), value=value))
            continue
        verb = draw.choice(("CREATE", "CREATE", "DROP"))
        uses = _name(draw, "secret", process) if (verb, kind) == ("CREATE", "connection") else None
        tasks.append(Task(verb=verb, kind=kind, name=_name(draw, kind, process), value=value, uses=uses))
    return tasks


def _name(draw: random.Random, kind: str, process: int) -> str:
    if draw.random() < 0.5:
        return f"{kind[:3]}_{draw.randrange(_SHARED_NAMES)}"
    return f"{kind[:3]}_own{process}_{draw.randrange(_OWN_NAMES)}"


def refusals(model: Model, task: Task) -> set[str]:
    """The codes of the errors with which a statement may be refused in a state; empty if it takes effect."""
    exists, found = (task.kind, task.name) in model, set()
    if task.verb == "CREATE":
        if exists:
            found.add(DUPLICATE_OBJECT.code)
        if task.uses is not None and ("secret", task.uses) not in model:
            found.add(UNDEFINED_OBJECT.code)
    elif task.verb == "DROP":
        if not exists:
            found.add(UNDEFINED_OBJECT.code)
        if task.kind == "secret" and any(uses == task.name for _, uses in model.values()):
            found.add(DEPENDENTS_EXIST.code)
    return found


def applied(model: Model, task: Task) -> Model:
    """The state after a statement that takes effect."""
    if task.verb == "DROP":
        return {key: value for key, value in model.items() if key != (task.kind, task.name)}
    return {**model, (task.kind, task.name): (task.value, task.uses)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The report of a process about a statement: ``done`` or the error's code, and the newest epochs before and after
    the statement. ``found`` is true if the process was killed during the statement, and its successor found the
    statement in the log. ``repeats`` is the number of times that the statement was refused because other statements
    were committed first for longer than ``statement_timeout``."""

    number: int
    outcome: str
    since: int
    upto: int
    found: bool = False
    repeats: int = 0


def read_journal(file: Path) -> list[Told]:
    """The reports in a journal. A kill may have cut off the last line, which is left out."""
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    return [Told(**json.loads(line)) for line in lines]


@contextmanager
def place(location: str, folder: Path) -> Iterator[tuple[str, S3Store | None]]:
    """A context manager with a new warehouse. The warehouse is in a folder on a disk (``local``), or in an object store
    (``s3``) that ends with the ``with`` block."""
    if location == "local":
        yield str(folder / "warehouse"), None
        return
    from tests.support.s3_store import store_of_the_environment

    (folder / "store").mkdir()
    with store_of_the_environment(folder / "store") as store:
        yield store.warehouse(), store


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Several processes that run statements on one warehouse, and kills of these processes."""

    folder: Path
    warehouse: str
    seed: int
    processes: int = PROCESSES
    statements: int = STATEMENTS
    kills: int = KILLS
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    lives: dict[int, int] = field(default_factory=dict)

    def run(self) -> None:
        """Runs all statements. Each kill comes after a drawn number of statements and a drawn time, and the killed
        process is started again at once. Raises AssertionError if a process fails."""
        Metastore.open(self.warehouse).flush(with_upkeep=True)
        draw = random.Random(self.seed)
        total = self.processes * self.statements
        moments = sorted(draw.sample(range(total // 20, round(total * _LATEST_KILL)), self.kills))
        try:
            for process in range(self.processes):
                self.start(process)
            for moment in moments:
                wait_until(lambda at=moment: self.told() >= at, f"{moment} statements")  # type: ignore[misc]
                time.sleep(draw.uniform(0, _KILL_SECONDS))
                self.kill(draw.sample(range(self.processes), self.processes))
            for process, running in self.running.items():
                assert running.wait(LAST_RESORT_SECONDS) == 0, self.story(process)
        finally:
            for running in self.running.values():
                running.kill()
                running.wait()

    def start(self, process: int) -> None:
        """Starts a process, or starts it again."""
        self.lives[process] = self.lives.get(process, 0) + 1
        task = {
            "warehouse": self.warehouse,
            "seed": self.seed,
            "process": process,
            "statements": self.statements,
            "journal": str(self.journal(process)),
        }
        with self.log(process).open("wb") as log:
            self.running[process] = subprocess.Popen(
                [sys.executable, "-m", "tests.metastore.statement_crowd", json.dumps(task)],
                cwd=_ROOT,
                env={**os.environ, "LOGNAME": actor(process)},
                stdout=log,
                stderr=log,
            )

    def kill(self, order: Sequence[int]) -> None:
        """Kills the first process of ``order`` that still runs, and starts it again."""
        for process in order:
            running = self.running[process]
            running.send_signal(signal.SIGKILL)
            status = running.wait(LAST_RESORT_SECONDS)
            if status == -signal.SIGKILL:
                self.start(process)
                return
            assert status == 0, self.story(process)
        raise AssertionError("every process ended before the last kill")

    def told(self) -> int:
        """The number of statements whose outcome has been reported. Raises AssertionError if a process has failed."""
        for process, running in self.running.items():
            assert running.poll() in (None, 0), self.story(process)
        return sum(len(read_journal(self.journal(process))) for process in range(self.processes))

    def journal(self, process: int) -> Path:
        """The file to which a process writes its reports."""
        return self.folder / f"journal-{process}.jsonl"

    def log(self, process: int) -> Path:
        """The output of a process since its last start."""
        return self.folder / f"process-{process}-{self.lives[process]}.log"

    def story(self, process: int) -> str:
        """A description of a process that failed, with the end of its output."""
        tail = self.log(process).read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        return "\n".join([f"process {process} failed:", *tail])

    def check(self) -> Mapping[str, int]:
        """Compares outcomes, log, catalog and projections with the model. Raises AssertionError."""
        metastore = Metastore.open(self.warehouse)
        metastore.flush(with_upkeep=True)
        journals = {process: read_journal(self.journal(process)) for process in range(self.processes)}
        for process, journal in journals.items():
            numbers = [told.number for told in journal]
            assert numbers == list(range(self.statements)), f"process {process} told of the statements {numbers}"
        operations = sorted(metastore.operations(), key=lambda operation: operation.epoch)
        self._check_log(metastore, len(operations))
        states = self._replayed(operations, journals)
        for process, journal in journals.items():
            tasks = tasks_of(self.seed, process, self.statements)
            for told in journal:
                if told.outcome != DONE:
                    task, between = tasks[told.number], states[told.since : told.upto + 1]
                    true = set().union(*(refusals(state, task) for state in between))
                    assert told.outcome in true, f"process {process}: {task.text}: {told}, possible: {true}"
        self._check_catalog(metastore, operations, states[-1])
        outcomes = [told for journal in journals.values() for told in journal]
        return {
            "statements": len(outcomes),
            "took effect": len(operations),
            "refused": sum(told.outcome != DONE for told in outcomes),
            "kills": sum(self.lives.values()) - self.processes,
            "killed statements that had taken effect": sum(told.found for told in outcomes),
            "repeated, because others were first for a minute": sum(told.repeats for told in outcomes),
        }

    def _check_log(self, metastore: Metastore, count: int) -> None:
        """Checks that each epoch is in the log exactly once, with a unique commit id."""
        rows = StoredTable(join(metastore.directory, "operations")).read(["epoch", "entry", "commit_id"]).to_pylist()
        committed = [row for row in rows if row["entry"] == "operation"]
        epochs = sorted(row["epoch"] for row in committed)
        assert epochs == list(range(1, count + 1)), f"epochs: {epochs}"
        assert len({row["commit_id"] for row in committed}) == count
        assert metastore.snapshot().epoch == count

    def _replayed(
        self, operations: Sequence[OperationRecord], journals: Mapping[int, Sequence[Told]]
    ) -> Sequence[Model]:
        """The model's state after each epoch. Checks that each operation is the next statement that its process has
        reported as done."""
        done = {
            process: [
                (tasks_of(self.seed, process, self.statements)[told.number], told)
                for told in journal
                if told.outcome == DONE
            ]
            for process, journal in journals.items()
        }
        states: list[Model] = [{}]
        for operation in operations:
            process = int(operation.actor.removeprefix("p"))
            assert done[process], f"process {process} does not tell of {operation.epoch}: {operation.statement}"
            task, told = done[process].pop(0)
            about = f"epoch {operation.epoch}, process {process}: {operation.statement!r}, {told}"
            begins, mark = task.text.split(" WITH ")[0], "" if task.verb == "DROP" else task.value
            assert operation.statement.startswith(begins), f"{about} is not {task.text!r}"
            assert mark in operation.statement, f"{about} is not {task.text!r}"
            assert told.since < operation.epoch <= told.upto, about
            assert not refusals(states[-1], task), f"{about} cannot take effect: {states[-1]}"
            states.append(applied(states[-1], task))
        lost = {process: left for process, left in done.items() if left}
        assert not lost, f"these statements are told as done, but are not in the log: {lost}"
        return states

    def _check_catalog(self, metastore: Metastore, operations: Sequence[OperationRecord], model: Model) -> None:
        """Checks that three catalogs equal the model: the catalog of a process that opens the warehouse, the catalog in
        the projections, and the catalog that results from a replay of the log."""
        replayed = Snapshot()
        for operation in operations:
            changes = changes_from_json(operation.changes)
            replayed = fold(replayed, effect_of(replayed, operation.epoch, operation.actor, changes))
        tables = {name: StoredTable(join(metastore.directory, name)).read() for name in KEYS}
        projected = snapshot_from(tables, len(operations))
        for found in (replayed, projected, metastore.snapshot()):
            assert _objects(found) == model.keys()
            for (kind, name), (value, _) in model.items():
                (record,) = (record for record in found.all(kind) if record.name == name)
                assert value in repr(record), f"{kind} {name}: {record}, not {value}"
        for kind in sorted({kind for kind, _ in model}):
            for found in (projected, metastore.snapshot()):
                assert sorted(map(repr, found.all(kind))) == sorted(map(repr, replayed.all(kind)))
        assert projected.object_epochs == replayed.object_epochs == metastore.snapshot().object_epochs
        for record in replayed.all("source"):
            fragment = str(record.id)
            for found in (projected, metastore.snapshot()):
                assert found.splits(fragment) == replayed.splits(fragment)
                assert found.states(fragment) == replayed.states(fragment)


def _objects(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {
        (kind, record.name) for kind in ("secret", "connection", "source", "parameter") for record in snapshot.all(kind)
    }


def actor(process: int) -> str:
    """The user name under which a process runs its statements. The log contains this name."""
    return f"p{process}"


def main(warehouse: str, seed: int, process: int, statements: int, journal: str) -> None:
    """Runs the statements of a process whose outcomes have not been reported yet. If a predecessor of the process was
    killed, first determines from the log whether the predecessor's last statement took effect."""
    tasks = tasks_of(seed, process, statements)
    os.environ.update({f"V{task.value}": "a value" for task in tasks})
    file = Path(journal)
    known = read_journal(file)
    with sparkless(warehouse) as context, file.open("a", encoding="utf-8") as out:

        def tell(**told: object) -> None:
            out.write(json.dumps(asdict(Told(**told))) + "\n")  # type: ignore[arg-type]
            out.flush()

        made = [operation for operation in context.metastore.operations() if operation.actor == actor(process)]
        extra = len(made) - sum(told.outcome == DONE for told in known)
        assert extra in (0, 1), f"{extra} operations of this process are in the log, but not told"
        if extra:
            since = known[-1].upto if known else 0
            tell(number=len(known), outcome=DONE, since=since, upto=context.metastore.snapshot().epoch, found=True)
        for number in range(len(known) + extra, statements):
            since, outcome, repeats = context.metastore.snapshot().epoch, "", 0
            while not outcome:
                try:
                    answer(context, parse_statement(tasks[number].text))
                    outcome = DONE
                except ConcurrentCommit:  # Nothing was changed. The error's hint is to run it again.
                    repeats += 1
                except SqlError as error:
                    if error.code not in REFUSALS:
                        raise
                    outcome = error.code
            upto = context.metastore.snapshot().epoch
            tell(number=number, outcome=outcome, since=since, upto=upto, repeats=repeats)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
