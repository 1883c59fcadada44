"""``python -m elasticdl.controller.service``: the controller's process, in the cluster or outside of it."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import typer

from elasticdl.controller.core import Planner
from elasticdl.controller.history.recording import RecordingPlanner
from elasticdl.controller.service.controller import Controller
from elasticdl.controller.service.leadership import RENEW_S, Leadership
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.monitoring.exposition import CONTENT_TYPE
from elasticdl.shared.names import Incarnation, JobId, PodName, Service, new_incarnation
from elasticdl.shared.process import logs
from elasticdl.shared.process.logs import get_logger

STUCK_S = 60.0
"""Seconds without a turn of the loop after which the process counts as dead."""

_log = get_logger()


def main(
    kubeconfig: Annotated[str, typer.Option("--kubeconfig", help="Outside of the cluster: its kubeconfig file.")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", help="Namespace whose TrainingJobs it acts on. Empty: all.")
    ] = "",
    port: Annotated[int, typer.Option("--port", help="Port of /healthz, /readyz and /metrics; 0: none.")] = 8080,
    fleet_log: Annotated[
        Path | None,
        typer.Option(
            "--fleet_log",
            help="Write what the controller sees and decides to this file, for elasticdl fleet replay.",
            metavar="FILE",
        ),
    ] = None,
    log_level: Annotated[str, typer.Option("--log_level", help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Start TrainingJobs, and scale them while they run, so that a shared cluster is full and jobs need not wait."""
    identity = f"{socket.gethostname()}-{new_incarnation()}"
    logs.configure(
        service=Service.CONTROLLER,
        job=JobId(""),
        pod=PodName("controller"),
        incarnation=Incarnation(identity),
        level=log_level,
    )
    try:
        api = KubernetesApi.connect(kubeconfig=kubeconfig)
        _serve(api, namespace, identity, port, fleet_log)
    except ElasticDLError as error:
        _log.error("the controller can't continue", reason=str(error))
        raise typer.Exit(1) from error


def _serve(api: KubernetesApi, namespace: str, identity: str, port: int, fleet_log: Path | None) -> None:
    planner = RecordingPlanner(fleet_log, _warn_of_log) if fleet_log else Planner()
    controller = Controller(api, namespace, planner)
    leadership = Leadership(api.in_namespace(namespace) if namespace else api, identity)
    is_ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: is_ending.set())
    if port:
        _answer_probes(controller, port)
    controller.watch()
    while not (is_ending.is_set() or leadership.attempt()):
        is_ending.wait(RENEW_S)
        controller.turned_s = time.monotonic()
    threading.Thread(target=leadership.keep, name="lease", daemon=True).start()
    controller.run(lambda: leadership.is_leader and not is_ending.is_set())
    controller.close()
    if isinstance(planner, RecordingPlanner):
        planner.close()
    if is_ending.is_set():
        leadership.release()
        return
    _log.error("another controller holds the lease")
    raise typer.Exit(1)  # Started again, it waits until it may act.


def _warn_of_log(problem: str) -> None:
    _log.warning("the log of the fleet ends", reason=problem)


def _answer_probes(controller: Controller, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.end_headers()
                self.wfile.write(controller.metrics.text().encode())
                return
            lives = time.monotonic() - controller.turned_s < STUCK_S
            fine = {"/healthz": lives or not controller.is_ready, "/readyz": controller.is_ready}.get(self.path)
            self.send_response(404 if fine is None else 200 if fine else 503)
            self.end_headers()
            self.wfile.write(json.dumps({"ready": controller.is_ready, "lives": lives}).encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()


if __name__ == "__main__":
    typer.run(main)
