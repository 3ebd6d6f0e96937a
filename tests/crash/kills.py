"""The points at which processes are killed, and the chain of kills that one warehouse must survive."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from tests.crash.chain import END, START, Kill
from tests.crash.child import SPARK_APPEND
from tests.crash.scenario import LABELS
from tests.support.seeds import one_of

PYTHON, JVM, BOTH = "python", "jvm", "both"

_UNSAFE = (
    "add_topic_running",
    "unsafe_set",
    "reset",
    "inject",
    "inject_again",
    "reset_running",
    "move_back_running",
    "move_on_running",
)
_MOVES_RUNNING = ("add_topic_running", "reset_running", "move_back_running", "move_on_running")
_STARTS = ("resume_large", "resume_midway", "resume", "resume_again", *_MOVES_RUNNING)
_STOPS = ("pause_before_large", "pause_midway", "pause", "pause_again", *_MOVES_RUNNING)
_SMALL = ("after allow_unsafe", "after add_topic_running", "after resume", "after move_on_running")
_LARGE = ("resume_large", "move_back_running")

POINTS: Mapping[str, tuple[str, ...]] = {
    "statement.planned": _UNSAFE,
    "statement.before_commit": _UNSAFE,
    "metastore.before_append": _UNSAFE,
    "metastore.after_append": _UNSAFE,
    "metastore.after_objects": _UNSAFE,
    "metastore.after_fragment_splits": _UNSAFE,
    "metastore.after_source_state": _UNSAFE,
    "statement.after_commit": _UNSAFE,
    "statement.applied": _UNSAFE,
    "statement.told": _UNSAFE,
    "owner.after_lease": (START,),
    "owner.before_applied": (*_STARTS, *_STOPS),
    "owner.after_applied": (*_STARTS, *_STOPS),
    "owner.before_discovery": ("after add_topic_running",),
    "reconciler.before_start": (START, *_STARTS),
    "reconciler.after_start": (START, *_STARTS),
    "ingest.before_claim": _STARTS,
    "ingest.after_claim": _STARTS,
    "ingest.after_first_note": _STARTS,
    # A run needs no fence if the run before it belonged to the same process.
    "fence.before": (START,),
    "fence.after": (START,),
    "ingest.after_position": _STARTS,
    "ingest.before_query": _STARTS,
    "ingest.after_query": _STARTS,
    "ingest.in_batch": (*_SMALL, *_LARGE),
    "batch.before_append": (*_SMALL, *_LARGE),
    SPARK_APPEND: _LARGE,
    "batch.written": _LARGE,
    "batch.after_append": (*_SMALL, *_LARGE),
    "ingest.before_stop": _STOPS,
    "ingest.after_stop": _STOPS,
    "ingest.after_note": _STOPS,
    "view.before_claim": (START,),
    "view.after_claim": (START,),
    "view.before_query": (START,),
    "view.after_query": (START,),
    "view.in_batch": (*_SMALL, *_LARGE),
    "batch.before_merge": (*_SMALL, *_LARGE),
    "batch.after_merge": (*_SMALL, *_LARGE),
    "view.after_batch": (*_SMALL, *_LARGE),
    "view.before_stop": (END,),
    "view.after_stop": (END,),
}
"""Maps every fault point to the places in the workflow at which a process certainly passes the point."""

UPKEEP_POINTS = (
    "upkeep.noted",
    "upkeep.compacted",
    "upkeep.dropped",
    "upkeep.checkpointed",
    "upkeep.listed",
    "upkeep.cleaning",
    "upkeep.cleaned",
    "upkeep.removing",
    "upkeep.done",
)
"""The fault points of a run of upkeep. ``tests/runtime/upkeep/test_table_upkeep.py`` ends a run of upkeep at each of
these points."""

SINK_POINTS = (
    "sink.before_claim",
    "sink.after_claim",
    "sink.before_query",
    "sink.after_query",
    "sink.in_batch",
    "sink.after_write",
    "sink.after_batch",
    "sink.before_stop",
    "sink.after_stop",
)
"""The points of a sink's job, which has a separate test."""

KINDS: Mapping[str, tuple[Kill, ...]] = {
    "a small batch": (
        Kill(point="batch.before_append", at="create_keyed"),
        Kill(point="batch.after_append", at="after allow_unsafe", kills=BOTH),
        Kill(point="batch.after_merge", at="after allow_unsafe", kills=JVM),
        Kill(point="view.after_batch", at="after allow_unsafe"),
    ),
    "a large batch": (
        Kill(point=SPARK_APPEND, at="resume_large"),
        Kill(point="ingest.in_batch", at="move_back_running", kills=JVM, reconnects=True),
    ),
    "a stop": (
        Kill(point="ingest.after_stop", at="pause_again", kills=JVM),
        Kill(point="ingest.before_stop", at="pause_midway"),
    ),
    "a statement before its commit": (
        Kill(point="metastore.before_append", at="unsafe_set", kills=BOTH),
        Kill(point="statement.planned", at="reset", kills=BOTH),
        Kill(point="statement.before_commit", at="inject", kills=BOTH),
    ),
    "a statement after its commit": (
        Kill(point="statement.after_commit", at="add_topic_running"),
        Kill(point="metastore.after_append", at="unsafe_set"),
        Kill(point="metastore.after_objects", at="reset", kills=JVM),
        Kill(point="metastore.after_fragment_splits", at="inject"),
        Kill(point="metastore.after_source_state", at="inject_again", kills=JVM),
        Kill(point="statement.applied", at="reset_running", kills=BOTH),
    ),
    "a start": (
        Kill(point="ingest.after_claim", at="resume", kills=BOTH),
        Kill(point="fence.before", at=START),
        Kill(point="owner.after_lease", at=START),
    ),
}
"""Kills in the middle of small and large batches and between the steps of UNSAFE SET, RESET and INJECT, by kind.

If a process dies before the commit of a statement, the next process issues the statement again. If only the JVM dies
before the commit, the statement is refused. If only the JVM dies after the append, the statement is committed, and the
next process completes it. The last process whose JVM is killed connects again by itself. The proof ``kill-chains`` uses
every point with every target.
"""

DRAWS = math.lcm(*map(len, KINDS.values()))
"""The number of consecutive seeds that together draw each of these kills."""


def drawn_chain(seed: int) -> tuple[Kill, ...]:
    """One kill of each kind, in the order of the workflow."""
    # A kill at the start of a process comes late in the order, when all statements except the last few have been run.
    late = Kill(point="", at="after resume_again").step - 0.5

    def when(kill: Kill) -> float:
        return late if kill.at == START else kill.step

    return tuple(sorted(one_of(list(KINDS.values()), seed), key=when))


_DEALT_KILLS = 8

_PAIRS = tuple(
    (point, victim)
    for point, places in POINTS.items()
    for victim in (PYTHON, JVM, BOTH)
    if not (places == (END,) and victim == JVM)  # nothing is left then to notice it
)

DEALT = -(-len(_PAIRS) // _DEALT_KILLS)
"""The number of consecutive seeds, beginning at a multiple of this number, that together use every point with every
target once."""


def dealt_chain(seed: int) -> tuple[Kill, ...]:
    """A chain of kills at random places. Two kills are at the same place only if there are too few places."""
    dice = random.Random(seed // DEALT)
    pairs = dice.sample(_PAIRS, len(_PAIRS))
    dice = random.Random(seed)
    order = {END: float(len(LABELS))}
    for at, label in enumerate(LABELS):
        order[label], order[f"after {label}"] = float(at), at + 0.5
    placed: list[tuple[float, Kill]] = []
    part = pairs[seed % DEALT :: DEALT]
    for point, victim in sorted(part, key=lambda pair: len(POINTS[pair[0]])):
        taken = {kill.at for _, kill in placed if kill.at != START}
        places = [place for place in POINTS[point] if place not in taken] or POINTS[point]
        place = dice.choice(places)
        when = order[place] if place != START else dice.uniform(LABELS.index("create_appended") + 0.6, len(LABELS))
        placed.append((when, Kill(point=point, at=place, kills=victim)))
    return tuple(kill for _, kill in sorted(placed, key=lambda pair: pair[0]))
