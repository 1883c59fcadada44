"""One member of an all-reduce by Gloo, PyTorch's CPU backend. Started by ``benchmarks/allreduce.py``.

    PYTHON benchmarks/peers/gloo.py RANK SIZE PORT

PYTHON has PyTorch; nothing of ElasticDL is needed. Each line of the input asks for all-reduces: ``[elements,
repeats]``. Each line of the output answers: ``[seconds of each, CPU seconds of all together]``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time


def main() -> None:
    rank, size, port = map(int, sys.argv[1:])
    torch, distributed = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=size)
    print("ready", flush=True)
    for line in sys.stdin:
        elements, repeats = json.loads(line)
        array = torch.empty(elements)
        seconds, filling_s, cpu_s = [], 0.0, time.process_time()
        for _ in range(repeats):
            filled_s = time.thread_time()
            array.fill_(1.0)
            filling_s += time.thread_time() - filled_s
            started_s = time.perf_counter()
            distributed.all_reduce(array)
            seconds.append(time.perf_counter() - started_s)
        cpu_s = time.process_time() - cpu_s - filling_s
        if not bool((array == size).all()):
            raise SystemExit("the sum is wrong")
        print(json.dumps([seconds, cpu_s]), flush=True)


if __name__ == "__main__":
    main()
