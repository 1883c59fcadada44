"""One life of a worker: connect, build the model, train until told to stop, say goodbye."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.errors import PermanentError, ProtocolError, TransientError, UserError
from elasticdl.shared.failure_detection.heartbeat_loop import keep_beating
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import WorkerFailed, WorkerStarted, WorkerStopped
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, PodName, Service, pod_name
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_REFUSED
from elasticdl.shared.process.running_batches import ENVIRONMENT_VARIABLE, RunningBatchesFile, file_of
from elasticdl.shared.process.settings import WorkerSettings
from elasticdl.worker import failures
from elasticdl.worker.evaluation.auxiliary_tasks import OtherTasks
from elasticdl.worker.evaluation.exporter import Exporter
from elasticdl.worker.heartbeat import keep_leases, metrics_of
from elasticdl.worker.input.batch_loader import Preparer
from elasticdl.worker.ps_client import PsClient
from elasticdl.worker.ps_client.addresses import Addresses
from elasticdl.worker.shutdown import Stop
from elasticdl.worker.training.context import WorkContext
from elasticdl.worker.training.leased_tasks import HeldTasks
from elasticdl.worker.training.leases import Leases
from elasticdl.worker.training.prefetcher import Puller
from elasticdl.worker.training.task_outcomes import Answers
from elasticdl.worker.training.task_source import Inbox
from elasticdl.worker.training.trainer import Meter, Trainer

if TYPE_CHECKING:
    from elasticdl.worker.model_builder import Built

_log = structlog.get_logger()

_WAITING_S = 1.0
"""Seconds between two looks for a stop while the ps have not started."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """The parts that live as long as the process.

    Attributes:
        settings: what the process was told.
        incarnation: this life.
        spec: the job.
        bus: the broker.
        loop: where the bus lives.
        stop: asks for the end.
        environment: for the place of the in-hand file.
    """

    settings: WorkerSettings
    incarnation: Incarnation
    spec: JobSpec
    bus: Bus
    loop: LoopThread
    stop: Stop
    environment: Mapping[str, str]
    clock: SystemClock = field(default_factory=SystemClock)
    meter: Meter = field(default_factory=Meter)
    envelopes: EnvelopeFactory = field(init=False)
    publisher: EventPublisher = field(init=False)
    answers: Answers = field(init=False)
    held: HeldTasks = field(init=False)
    leases: Leases = field(init=False)

    def __post_init__(self) -> None:
        self.envelopes = EnvelopeFactory(
            service=Service.WORKER, name=self.settings.pod, incarnation=self.incarnation, clock=self.clock
        )
        self.publisher = EventPublisher(lambda envelope: self.loop.call(self.bus.log.append(envelope)), self.envelopes)
        self.answers = Answers(self.publisher)
        deadline_s = self.spec.limits.batch_deadline_s
        self.leases = Leases(lease_s=self.spec.limits.lease_s, batch_deadline_s=deadline_s, clock=self.clock)
        self.held = HeldTasks(self.leases)

    def run(self) -> int:
        """Work until told to stop.

        Returns:
            The process' exit code.
        """
        metrics = partial(metrics_of, self.meter, self.leases)
        self.loop.spawn(keep_beating(self.bus.signals, self.envelopes, self.settings.beat_interval_s, metrics))
        try:
            with RunningBatchesFile(in_hand_path(self.settings, self.environment)) as hand:
                self._work(hand)
        except (UserError, PermanentError, ProtocolError) as error:
            self._report_failure(error)
            return EXIT_REFUSED
        except TransientError as error:
            _log.error("gave up", reason=str(error))
            self.stop.ask(str(error))
            with suppress(TransientError):
                self.say_goodbye()
            return EXIT_AWAY
        self.say_goodbye()
        self.stop.done()
        return 0

    def say_goodbye(self) -> None:
        """Give the tasks back and say so; any thread may call."""
        self.answers.give_back(self.held.give_away_all(), self.stop.reason)
        self.publisher.publish(WorkerStopped(reason=self.stop.reason))

    def _work(self, hand: RunningBatchesFile) -> None:
        spec = self.spec
        # Imported here: TensorFlow takes seconds, which pass while the bus connects (see main.py).
        from elasticdl.worker.model_builder import build

        addresses = Addresses(self.bus.registers, self.loop, Placement.even(spec.ps))
        built = build(spec, hand)
        while not addresses.wait_known(_holders(addresses.placement()), timeout_s=_WAITING_S):
            if self.stop.is_asked():
                return
            wanted = _holders(addresses.placement())
            _log.info("waiting for ps", known=sorted(addresses.resolve()), wanted=wanted)
        ps = PsClient(
            addresses.directory,
            token=self.settings.token,
            peer=self.settings.pod,
            plan=spec.plan.fingerprint,
            signature=built.runner.signature(),
        )
        first = ps.initialise(built.runner.initial_dense())
        _log.info("model initialised", first=first)
        self.publisher.publish(WorkerStarted(notes=tuple(notes(built, self.settings))))
        self._train(built, ps, hand)
        ps.close()

    def _train(self, built: Built, ps: PsClient, hand: RunningBatchesFile) -> None:
        context = WorkContext(
            model=built.runner,
            ps=ps,
            held=self.held,
            leases=self.leases,
            answers=self.answers,
            publisher=self.publisher,
            hand=hand,
            stop=self.stop,
        )
        preparer = Preparer(
            context,
            tasks=Inbox(self.bus.tasks, self.loop),
            records=built.records,
            feeder=built.feeder,
            idle_poll_s=self.settings.idle_poll_s,
        )
        others = OtherTasks(
            context,
            validation=built.validation,
            export=Exporter(ps=ps, write=built.write, output=self.spec.output).export,
        )
        trainer = Trainer(
            context,
            plan=self.spec.plan,
            puller=Puller(context, preparer.items),
            asides=others,
            meter=self.meter,
            rate_from_worker=built.runner.signature().optimizer.rate_from_worker,
        )
        keep_leases(self.leases, self.stop)
        preparer.start()
        trainer.run()

    def _report_failure(self, error: UserError | PermanentError | ProtocolError) -> None:
        failure = failures.of_start(error)
        _log.error("worker failed", kind=failure.kind.value, reason=failure.message)
        self.publisher.publish(WorkerFailed(kind=failure.kind, message=failure.message, traceback=failure.traceback))


def _holders(placement: Placement) -> list[PodName]:
    return [pod_name(Service.PS, number) for number in placement.holders]


def notes(built: Built, settings: WorkerSettings) -> list[str]:
    """The start-up lines that a user sees."""
    threads = str(settings.compute_threads) if settings.compute_threads else "TensorFlow's choice of"
    lines = [*built.runner.describe(), f"{threads} compute threads", *built.export_notes]
    if built.runner.signature().tables:
        lines.append("rows move only when touched: momentum and weight decay of a row wait for its next batch")
    return lines


def in_hand_path(settings: WorkerSettings, environment: Mapping[str, str]) -> Path:
    """Where the batches in hand are noted: where the launcher says, or in a file that nobody reads."""
    told = environment.get(ENVIRONMENT_VARIABLE, "")
    return file_of(
        told or Path(tempfile.gettempdir()) / f"elasticdl-{settings.job}-{settings.pod}.running_batches", os.getpid()
    )
