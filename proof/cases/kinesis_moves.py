"""Random moves of a source over a Kinesis stream that is resharded, and kills of a process that reads such a stream."""

from __future__ import annotations

import atexit
import base64
import json
import os
import random
import signal
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, spark
from rw_sql.runtime.observe import upstream_watcher
from tests.crash.lives import Lives
from tests.crash.upstream_child import POINTS
from tests.integration.kinesis_moves import MovedStream
from tests.support.ageing import Pauses
from tests.support.kinesis_server import KinesisServer, kinesis_running
from tests.support.waits import LIFE_SECONDS

SEEDS = 5
MOVES = 50 // SEEDS
KILLS = 10 // SEEDS
_RECORDS = 400


@cache
def _server() -> KinesisServer:
    """The Kinesis server of this process, which ends together with the process."""
    ending = ExitStack()
    server = ending.enter_context(kinesis_running())
    atexit.register(ending.close)
    return server


def _check(seed: int, folder: Path) -> Facts:
    upstream_watcher.DISCOVERY_SECONDS = 0.5
    os.environ.setdefault("RW_SQL_SECRET_KEY", base64.b64encode(bytes(32)).decode())
    with attached(folder / "moves") as session:
        session.allow_unsafe()
        session.sql("CREATE SECRET kinesis_key WITH (backend = 'meta') AS 'tests-secret'")
        moved = MovedStream(session, _server(), f"p{seed}", seed)
        total = moved.run(MOVES)
        moved.drop()
    return {
        "moves": total.moves,
        "reshardings while the source runs": total.reshardings,
        "rows read": total.rows,
        "duplicates": total.duplicates,
        "gaps": total.gaps,
        "kills": _kill(seed, folder),
    }


def _kill(seed: int, folder: Path) -> int:
    """Kills several processes that read one stream, while the stream is resharded. Afterwards, each record must be in
    the view exactly once. Returns the number of kills."""
    stream, dump = f"k{seed}", folder / "rows"
    server = _server()
    server.create(stream)
    dice = random.Random(seed)
    lives = Lives(
        module="tests.crash.upstream_child",
        folder=folder,
        seconds=LIFE_SECONDS,
        pauses=Pauses(seed=seed),
        spark=spark(),
    )
    create = (
        "CREATE SECRET IF NOT EXISTS kinesis_key WITH (backend = 'meta') AS 'tests-secret'",
        f"CREATE SOURCE IF NOT EXISTS s (id INT) WITH (connector = 'kinesis', stream = '{stream}', "
        f"endpoint = '{server.endpoint}', aws.region = 'eu-central-1', aws.credentials.access_key_id = 'tests', "
        "aws.credentials.secret_access_key = SECRET kinesis_key, kinesis.reader.eof_retry_interval_ms = '50', "
        "source_rate_limit = '50') FORMAT PLAIN ENCODE JSON",
    )
    task = {"warehouse": str(folder / "warehouse"), "create": create, "dump": str(dump)}
    sent = 0
    for _ in range(KILLS):
        server.put(stream, *((f"key{at % 50}", b'{"id": %d}' % at) for at in range(sent, sent + _RECORDS)))
        sent += _RECORDS
        status = lives.live({**task, "point": dice.choice(POINTS)}, is_killed=True)
        assert status == -signal.SIGKILL, lives.said()
        server.split(stream, dice.choice(server.open_shards(stream)))
    assert lives.live({**task, "point": ""}, is_killed=False) == os.EX_OK
    assert sorted(json.loads(dump.read_text())) == list(range(sent))
    return KILLS


PROOF = Proof(
    name="kinesis-moves",
    claim=(
        "A source over a Kinesis stream that is resharded moves as previewed, and every record is read once despite "
        "kills."
    ),
    method=(
        f"A source over a stream of moto's server, with sequence numbers of 56 digits, is moved {SEEDS * MOVES} times "
        "at random: VALUES, EARLIEST, LATEST, TIMESTAMP, RESET. Shards split and merge while the source runs or is "
        "paused. After each move every row is compared: exactly the records from the predicted first one on have "
        "arrived, and the preview shows GAP or DUPLICATES for every split that has them. Then "
        f"{SEEDS * KILLS} processes that read another stream are killed within a batch, before and after its commit, "
        "and a shard splits after each kill; each record is in the view once."
    ),
    seeds=range(SEEDS),
    check=_check,
)
