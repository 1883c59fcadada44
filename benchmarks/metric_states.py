"""Large metric states on a real nats-server: what they take on disk, and what summing and removing them costs.

    python -m benchmarks.metric_states [--reports 2000] [--thresholds 1000]

Each report has the states of an AUC with T thresholds, generated as from 16 batches of 512 records. As in a job,
every 64 stored states are replaced by their sum, and the states of the evaluation are removed at its end. Prints a line
of JSON: bytes of a stored state, the most that the stream and its folder took, what they take at the end, and the CPU
seconds of this process and of the server for one report. The same reports as payloads beside the log, which are never
removed, take ``payloads_mb``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from array import array
from bisect import bisect_right
from pathlib import Path
from random import Random

import psutil

from elasticdl.shared.bus import nats_bus
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.job.spec import Limits
from elasticdl.shared.job.tasks import MetricStates, states_of_evaluation
from elasticdl.shared.model.metric_states import add_parts, pack_states
from elasticdl.shared.names import JobId
from elasticdl.worker.core.commands import LoadStates, StoreStates
from elasticdl.worker.execution.broker_lane import load_states, store_states

RECORDS = 16 * 512


def report(random: Random, thresholds: int) -> MetricStates:
    """The four state variables of an AUC: how many predictions of each class are above each threshold."""
    positives = sorted(random.betavariate(3, 2) for _ in range(RECORDS // 4))
    negatives = sorted(random.betavariate(2, 3) for _ in range(RECORDS - RECORDS // 4))
    true, false = (
        [float(len(values) - bisect_right(values, place / (thresholds - 1))) for place in range(thresholds)]
        for values in (positives, negatives)
    )
    variables = (true, [len(negatives) - value for value in false], false, [len(positives) - value for value in true])
    return {"auc": tuple(array("d", variable).tobytes() for variable in variables)}


def folder_bytes(folder: Path) -> int:
    """What the streams of metric states take on disk."""
    return sum(path.stat().st_size for path in folder.glob("**/EDL-*-STATES/**/*") if path.is_file())


async def run(reports: int, thresholds: int, folder: Path) -> dict[str, float]:
    """Store, sum and remove the states of an evaluation."""
    server = NatsServer(folder)
    url = server.start()
    bus = await nats_bus.connect(url, JobId("benchmark-1"))
    process = next(each for each in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(each.info["cmdline"]))
    made = [report(Random(seed), thresholds) for seed in range(8)]
    group, limit = states_of_evaluation(1), Limits().stored_states_max
    packed = sum(len(part) for states in made for part in pack_states(states)) / len(made)
    numbers: list[int] = []
    most = folder_most = 0
    own_s, server_s = time.process_time(), _cpu_s(process)
    for place in range(reports):
        numbers += await store_states(bus.stored_states, StoreStates(group=group, states=made[place % len(made)]))
        most = max(most, len(numbers))
        if len(numbers) >= limit:
            parts = await load_states(bus.stored_states, LoadStates(numbers=tuple(numbers)))
            sums = await store_states(bus.stored_states, StoreStates(group=group, states=add_parts({}, parts)))
            folder_most = max(folder_most, folder_bytes(folder))
            await bus.stored_states.remove(numbers)
            numbers = list(sums)
    total = add_parts({}, await load_states(bus.stored_states, LoadStates(numbers=tuple(numbers))))
    await bus.stored_states.remove_group(group)
    own_s, server_s = time.process_time() - own_s, _cpu_s(process) - server_s
    await bus.close()
    server.stop()
    expected = sum(array("d", made[place % len(made)]["auc"][0])[0] for place in range(reports))
    assert array("d", total["auc"][0])[0] == expected, "every report is in the sum once"
    return {
        "reports": reports,
        "state_bytes": packed,
        "stored_most": most + 1,
        "folder_most_mb": folder_most / 1e6,
        "folder_end_mb": folder_bytes(folder) / 1e6,
        "payloads_mb": reports * packed / 1e6,
        "cpu_ms_per_report": 1e3 * own_s / reports,
        "server_cpu_ms_per_report": 1e3 * server_s / reports,
    }


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=2000)
    parser.add_argument("--thresholds", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        facts = asyncio.run(run(arguments.reports, arguments.thresholds, Path(folder)))
    sys.stdout.write(json.dumps({name: round(value, 3) for name, value in facts.items()}) + "\n")


if __name__ == "__main__":
    main()
