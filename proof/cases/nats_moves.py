"""Random moves of a source over streams of a real NATS server, and kills of a process that reads such a stream."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, nats, spark
from rw_sql.runtime.observe import upstream_watcher
from tests.crash.lives import Lives
from tests.crash.upstream_child import POINTS
from tests.integration.nats_moves import MovedStreams
from tests.support.ageing import Pauses
from tests.support.waits import LIFE_SECONDS

SEEDS = 5
MOVES = 50 // SEEDS
KILLS = 10 // SEEDS
_MESSAGES = 400


def _check(seed: int, folder: Path) -> Facts:
    upstream_watcher.DISCOVERY_SECONDS = 0.5
    with attached(folder / "moves") as session:
        session.allow_unsafe()
        moved = MovedStreams(session, nats(), f"p{seed}", seed)
        total = moved.run(MOVES)
        moved.drop()
    return {
        "moves": total.moves,
        "rows read": total.rows,
        "duplicates": total.duplicates,
        "gaps": total.gaps,
        "kills": _kill(seed, folder),
    }


def _kill(seed: int, folder: Path) -> int:
    """Kills several processes that read one stream, one after the other. Afterwards, each message must be in the view
    exactly once. Returns the number of kills."""
    stream, dump = f"k{seed}", folder / "rows"
    nats().create(stream)
    dice = random.Random(seed)
    lives = Lives(
        module="tests.crash.upstream_child",
        folder=folder,
        seconds=LIFE_SECONDS,
        pauses=Pauses(seed=seed),
        spark=spark(),
    )
    create = (
        f"CREATE SOURCE IF NOT EXISTS s (id INT) WITH (connector = 'nats', server_url = '{nats().url}', "
        f"stream = '{stream}', subject = '>', source_rate_limit = '50') FORMAT PLAIN ENCODE JSON"
    )
    task = {"warehouse": str(folder / "warehouse"), "create": [create], "dump": str(dump)}
    sent = 0
    for _ in range(KILLS):
        nats().publish(stream, [b'{"id": %d}' % (sent + number) for number in range(_MESSAGES)])
        sent += _MESSAGES
        status = lives.live({**task, "point": dice.choice(POINTS)}, is_killed=True)
        assert status == -signal.SIGKILL, lives.said()
    assert lives.live({**task, "point": ""}, is_killed=False) == os.EX_OK
    assert sorted(json.loads(dump.read_text())) == list(range(sent))
    return KILLS


PROOF = Proof(
    name="nats-moves",
    claim="A source over NATS streams moves as previewed, and every message is read once despite kills.",
    method=(
        f"A source over two streams is moved {SEEDS * MOVES} times at random: VALUES, EARLIEST, LATEST, OFFSET, "
        "TIMESTAMP, SHIFT, a durable consumer's position, RESET, and streams that are created again. Before each move, "
        "messages are added, deleted and purged, including unread ones. One stream also has messages of a subject "
        "that the source does not read. After each move every row is compared: exactly the messages from the predicted "
        "first one on have arrived. Duplicates and gaps are those predicted, or at most as many if offsets do not "
        f"count messages. Then {SEEDS * KILLS} processes that read another stream are killed within a batch, before "
        "and after its commit; each message is in the view once."
    ),
    seeds=range(SEEDS),
    check=_check,
)
