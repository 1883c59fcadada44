"""``python -m elasticdl.worker.main``: one instance of a worker, configured by the environment.

Graceful shutdown on SIGTERM: stop after the running batch, or at a time limit if the batch takes longer.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from elasticdl.shared.bus import nats_bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.reading import read_spec
from elasticdl.shared.names import Incarnation, Service
from elasticdl.shared.pods.early import wait_for_master
from elasticdl.shared.process.entry import run_service
from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.settings import WorkerSettings, describe
from elasticdl.worker.model_imports import import_model_code
from elasticdl.worker.service import Worker

if TYPE_CHECKING:
    from elasticdl.worker.model_builder import Built

_log = get_logger()
STOP_LIMIT_S = 1.8
"""Seconds between a signal and the end of the process: the grace of the running batch (``CoreSettings.stop_grace_s``),
and the time to return the tasks."""
_SIGNALS = frozenset({int(signal.SIGTERM), int(signal.SIGINT)})


def main(built: Built | None = None) -> int:
    """Entry point.

    Returns:
        0 after a stop, 1 when the user or the environment has to change something, 70 after a defect of ElasticDL, 75
        when the broker or a ps was unavailable for too long.
    """
    signals, ended = catch_signals(), threading.Event()
    try:
        return run_service(Service.WORKER, WorkerSettings, partial(run, signals=signals, ended=ended, built=built))
    finally:
        ended.set()


def run(
    settings: WorkerSettings,
    incarnation: Incarnation,
    *,
    signals: socket.socket,
    ended: threading.Event,
    built: Built | None,
) -> int:
    """Connect and work; returns the exit code."""
    _log.info("worker started", **describe(settings))
    created: list[Worker] = []
    ready = threading.Event()

    def stop(reason: str) -> None:
        ready.wait()  # Before there is a worker, nothing has to be returned.
        created[0].stop(reason)

    watch(signals, stop=stop, ended=ended, limit_s=STOP_LIMIT_S)
    imported = import_ahead(settings)
    loop = LoopThread()
    bus = loop.call(nats_bus.connect(settings.nats_url, settings.job, settings.bus))
    if settings.master_wait_s:
        wait_for_master(bus.log, loop, settings.pod, settings.instance, settings.master_wait_s)
    spec = loop.call(read_spec(bus.log))
    imported()
    created.append(
        Worker(
            settings=settings,
            incarnation=incarnation,
            spec=spec,
            bus=bus,
            loop=loop,
            environment=os.environ,
            built=built,
        )
    )
    ready.set()
    return created[0].run()


def import_ahead(settings: WorkerSettings) -> Callable[[], None]:
    """Begin to import TensorFlow, which takes seconds, on another thread; call the result to wait for it."""
    if settings.compute_threads:
        # TensorFlow reads it when its first operation runs.
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(settings.compute_threads))
    thread = threading.Thread(target=import_model_code, name="import", daemon=True)
    thread.start()
    return thread.join


def prepare() -> None:
    """Import what ``main`` would import on a thread of its own."""
    import_model_code()


def catch_signals() -> socket.socket:
    """Have SIGTERM and SIGINT written to a socket instead of ending the process; call it on the main thread, once.

    Python runs signal handlers on the main thread only, which may be inside a compiled step for long; the number of the
    signal is written to the socket at once. Blocking the signals for a thread that waits for them is no alternative:
    numpy's threads exist before any code of ours can run.

    Returns:
        Where the numbers come out, one byte each; for ``watch``.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda _number, _frame: None)
    return reading


def watch(
    signals: socket.socket, *, stop: Callable[[str], None], ended: threading.Event, limit_s: float
) -> threading.Thread:
    """Pass a signal on, and end the process if it has not ended by itself in time.

    Abandoning a batch is safe at any moment: the ledgers lack it, so it is computed again.

    Args:
        stop: told the name of the signal, on a thread of its own; it may block, for example while the broker is away.
    """

    def run() -> None:
        while (number := signals.recv(1)[0]) not in _SIGNALS:
            pass  # Another signal that has a handler of its own.
        name = signal.Signals(number).name
        threading.Thread(target=stop, args=(name,), name="stop", daemon=True).start()
        if not ended.wait(limit_s):
            _log.warning("running batch abandoned", limit_s=limit_s)
            os._exit(0)

    thread = threading.Thread(target=run, name="signals", daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    leave(main())
