"""CPU microseconds to encode and to decode an event, and how many events a second a master replays.

    python benchmarks/events.py [--rounds 20] [--tree FOLDER]

The events are those of tests/histories. ``--tree`` measures another checkout as well, in turns with this one: each turn
is a process of its own. Prints a line of JSON for each checkout, with the least of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PORTIONS = (".", "shared", "client", "services/master", "services/worker", "services/ps", "services/controller")


def one_turn() -> dict[str, float]:
    """Microseconds per event of the checkout that is imported."""
    from tests.histories.logs import FOLDER, SUFFIX, read_log

    from elasticdl.master.core.fold import fold
    from elasticdl.shared.messages import codec
    from elasticdl.shared.messages.events import LogRecord

    logs = [list(read_log(path)) for path in sorted(FOLDER.glob(f"*{SUFFIX}"))]
    envelopes = [record.envelope for log in logs for record in log]
    stored = [[codec.encode_envelope(record.envelope) for record in log] for log in logs]
    flat = [data for log in stored for data in log]

    def replay(data: list[bytes]) -> None:
        fold([LogRecord(seq=seq, envelope=codec.decode_envelope(each)) for seq, each in enumerate(data, 1)])

    return {
        "encode_us": _spent_us(codec.encode_envelope, envelopes),
        "decode_us": _spent_us(codec.decode_envelope, flat),
        "replay_us": _spent_us(replay, stored) * len(stored) / len(flat),
    }


def _spent_us(work: Callable[[Any], object], inputs: Iterable[Any]) -> float:
    each = list(inputs)
    work(each[0])
    began_s = time.process_time()
    for one in each:
        work(one)
    return 1e6 * (time.process_time() - began_s) / len(each)


def _turn_of(tree: Path) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(tree / portion) for portion in PORTIONS)}
    command = [sys.executable, __file__, "--turn"]
    turn: dict[str, float] = json.loads(subprocess.check_output(command, env=environment, cwd=tree))
    return turn


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--turn", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        rounds = [one_turn() for _ in range(5)]
        sys.stdout.write(json.dumps({name: min(each[name] for each in rounds) for name in rounds[0]}))
        return
    trees = [tree.resolve() for tree in (arguments.tree, HERE) if tree]
    turns: dict[Path, list[dict[str, float]]] = {tree: [] for tree in trees}
    for _ in range(arguments.rounds):
        for tree in trees:
            turns[tree].append(_turn_of(tree))
    for tree, rounds in turns.items():
        least = {name: round(min(each[name] for each in rounds), 2) for name in rounds[0]}
        facts = {"tree": str(tree), **least, "replay_per_s": round(1e6 / least["replay_us"])}
        sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
