"""One instance of a worker: builds the model, then executes what the core decides until it says ``Exit``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.errors import ElasticDLError, PermanentError, ProtocolError, TransientError, UserError
from elasticdl.shared.exported.owner import OutputOwner
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.job.spec import ExportTables, JobSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.kubernetes.names import without_pod_folders
from elasticdl.shared.messages.events import ModelBuilt
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import Incarnation, Service, pod_number
from elasticdl.shared.pod_instances import own_instance
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.core_runner import CoreRunner, Lanes, LoopLanes
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.running_batches import (
    ENVIRONMENT_VARIABLE,
    TERMINATION_MESSAGE_VARIABLE,
    RunningBatchesFile,
    file_of,
)
from elasticdl.shared.process.settings import WorkerSettings
from elasticdl.shared.storage import join, open_store
from elasticdl.worker.core import CoreSettings, PipelineSettings, WorkerCore, commands
from elasticdl.worker.core.commands import Command, Exit
from elasticdl.worker.core.events import Event, ExecutionFailed, ProgressMade, SlowBatchSeen, Started, StopRequested
from elasticdl.worker.execution.batch_store import BatchStore
from elasticdl.worker.execution.broker_lane import PURPOSES, PURPOSES_OF_PREDICTION, BrokerLane, Deliveries
from elasticdl.worker.execution.callback_tasks import CallbackTasks, ModelAccess
from elasticdl.worker.execution.compute_lane import ComputeLane, ComputeSettings
from elasticdl.worker.execution.executor import Executor, LoopExecutor, lane_handlers
from elasticdl.worker.execution.exporter import Exporter, ExportWatch, ModelWriter
from elasticdl.worker.execution.input_lane import BatchLoader
from elasticdl.worker.execution.predictor import Predictor
from elasticdl.worker.execution.ps_lane import PsLane
from elasticdl.worker.execution.round_services import WorkerRoundServices
from elasticdl.worker.execution.round_steps import RoundSettings, RoundSteps
from elasticdl.worker.execution.saved_models import SavedModels
from elasticdl.worker.heartbeat import metrics_of
from elasticdl.worker.predictions.output import PredictionOutput
from elasticdl.worker.promotion import Promotion
from elasticdl.worker.ps_client import PsClient, PsClientSettings
from elasticdl.worker.ps_client.addresses import Addresses
from elasticdl.worker.ps_client.dense_and_tables import DenseAndTables
from elasticdl.worker.running_batches import RunningBatches
from elasticdl.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from elasticdl.worker.model.prediction.outputs import ModelOutputs
    from elasticdl.worker.model_builder import Built
    from elasticdl.worker.replica.ring_worker import RingWorker

_log = get_logger()
_WAITING_S = 1.0
"""Seconds between two log lines while the ps have not started."""
LAST_HEARTBEAT_S = 1.0
"""Seconds that the last heartbeat may take."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """A worker and its surroundings.

    Attributes:
        loop: where the bus lives.
        environment: tells where the running batches are recorded.
    """

    settings: WorkerSettings
    incarnation: Incarnation
    spec: JobSpec
    bus: Bus
    loop: LoopThread
    environment: Mapping[str, str]
    built: Built | None = None
    core: WorkerCore = field(init=False)
    store: BatchStore = field(default_factory=BatchStore)
    _clock: SystemClock = field(init=False)
    _envelopes: EnvelopeFactory = field(init=False)
    _publisher: EventPublisher = field(init=False)
    _executor: Executor = field(default_factory=lambda: Executor({}))
    _runner: CoreRunner[Event, Command] = field(init=False)
    _exit_code: int | None = None
    _fault: BaseException | None = None
    _ps: PsClient | DenseAndTables | None = None
    _round_steps: RoundSteps | None = None
    _loader: BatchLoader | None = None
    _ring: RingWorker | None = None

    def __post_init__(self) -> None:
        self._clock = SystemClock(self.settings.clock_zero_s)
        spec = self.spec
        self.core = WorkerCore(
            CoreSettings(
                plan=spec.plan,
                validation=spec.validation,
                pipeline=PipelineSettings.of(spec, staleness=self.settings.staleness),
                rounds=spec.rounds,
                lease_s=spec.limits.lease_s,
                lease_deadline_s=spec.limits.lease_deadline_s,
                idle_poll_s=self.settings.idle_poll_s,
            )
        )
        self._envelopes = EnvelopeFactory(
            service=Service.WORKER,
            name=self.settings.pod,
            incarnation=self.incarnation,
            run=self.settings.run,
            instance=self.settings.instance or own_instance(),
            clock=self._clock,
        )
        self._publisher = EventPublisher(self.bus.log, self._envelopes)
        purposes = PURPOSES_OF_PREDICTION if spec.prediction else PURPOSES
        broker = BrokerLane(
            Deliveries(self.bus.tasks, purposes, self.spec.has_task),
            self._publisher,
            self.bus.stored_states,
            self._read_ahead,
        )
        on_loop = LoopExecutor(
            {
                commands.PublishEvent: broker.publish,
                commands.PublishEvents: broker.publish_all,
                commands.StoreStates: broker.store_states,
                commands.LoadStates: broker.load_states,
                commands.TakeTasks: broker.take,
                commands.AckTask: broker.ack,
                commands.NakTask: broker.nak,
                commands.ExtendLease: broker.extend,
                commands.Exit: self._exit,
            }
        )
        self._runner = CoreRunner(
            self.core,
            execute=self._executor.execute,
            lanes=Lanes(
                threads=(commands.INPUT, commands.PS),
                of=commands.lane_of,
                own=commands.COMPUTE,
                on_loop=LoopLanes(names=commands.LANES_ON_LOOP, execute=on_loop.execute, call_soon=self.loop.call_soon),
                borrowed_after=self._borrowed_after,
                borrowed_max=3,  # Push, release, pull.
            ),
            clock=self._clock,
            failed=self._failed,
        )

    def run(self) -> int:
        """Work until the core exits; call it on the main thread. Raises ``BaseException``: a defect."""

        def metrics() -> dict[str, float]:
            return metrics_of(self.core, self.built.stores.usage if self.built else None)

        interval_s, port = self.settings.heartbeat_interval_s, self.settings.metrics_port
        sending = send_heartbeats(self.bus.signals, self._envelopes, interval_s, metrics, metrics_port=port)
        self.loop.spawn_endless(sending, self._background_failed)
        self._runner.start()
        with RunningBatchesFile(running_batches_path(self.settings, self.environment)) as file:
            running_batches = RunningBatches(file)
            watchdog = Watchdog(
                running_batches,
                deadline_s=self.spec.limits.batch_deadline_s,
                folder=Path(self.spec.model.path).parent,
                say=lambda slow: self._runner.post(SlowBatchSeen(event=slow)),
                clock=self._clock,
            )
            watchdog.start()
            try:
                with running_batches.starting(self.spec.limits.start_part_s):
                    notes = self._build(running_batches)
                if self.spec.spare_workers:
                    self._wait_for_promotion(notes)
                else:
                    self._begin(notes)
            except (UserError, PermanentError, ProtocolError, TransientError) as error:
                self._runner.post(ExecutionFailed(error=error))
            self._runner.run()
            watchdog.stop()
            # A short job ends before the next heartbeat is due, and its report says what its data has cost.
            last = self.bus.signals.send_heartbeat(self._envelopes.heartbeat(metrics()))
            with contextlib.suppress(TransientError):
                self.loop.call(last, LAST_HEARTBEAT_S)
            if self._ring is not None:
                self._ring.close()
            if self._ps is not None:
                self._ps.close()
            if self._fault is not None:
                raise self._fault
        return self._exit_code or 0

    def stop(self, reason: str) -> None:
        """Stop after the running batch; any thread may call."""
        self._runner.post(StopRequested(reason=reason))

    @property
    def has_said_stopped(self) -> bool:
        """Whether the tasks are returned and the log knows that the worker stops."""
        return self._exit_code is not None

    def _begin(self, notes: tuple[str, ...]) -> None:
        """Take part in the job."""
        if self._ring is not None:
            self._ring.start()
        self._runner.post(Started(notes=notes))

    def _borrowed_after(self, command: Command) -> str:
        """In a ring of one, the thread that computes a batch pushes it and pulls for the next one: it wakes no other.

        With other members the pull waits for them, and a thread has to wake anyway.
        """
        is_alone = self._ring is not None and self._ring.is_alone
        return commands.PS if is_alone and isinstance(command, commands.ComputeBatch) else ""

    def _wait_for_promotion(self, notes: tuple[str, ...]) -> None:
        """Take part as soon as the master says so; returns at once."""
        promotion = Promotion(self.incarnation, partial(asyncio.to_thread, self._begin, notes))
        self.loop.call(self.bus.signals.serve_orders(self.settings.pod, promotion.take_order))
        self.loop.call(self._publisher.publish(ModelBuilt()))

    def _build(self, running_batches: RunningBatches) -> tuple[str, ...]:
        """Load the model and the data; returns the start-up lines for the user."""
        # Imported here: TensorFlow takes seconds, which pass while the bus connects (see main.py).
        from elasticdl.worker.model.device import check_gpu, gpu_name
        from elasticdl.worker.model_builder import build

        gpu = gpu_name()
        check_gpu(self.settings.gpus, gpu)
        _log.info("compute device", device=gpu or "CPU")
        addresses = Addresses(self.bus.registers, self.loop, Placement.first_of(self.spec), self._background_failed)
        built = self.built or build(self.spec, running_batches)
        if self.spec.spare_workers and self.built is None:
            from elasticdl.worker.model_trial import try_model

            try_model(built, running_batches)  # TensorFlow compiles a function when it is called for the first time.
            built.runner.forget()
        self.built = built
        built.use_data_of(self.spec)
        self._check_callbacks(built)
        signature = built.runner.signature()
        ps = self._ps = self._ps_client(addresses, signature)
        exporter = self._exporter(built, ps, running_batches)
        loader = self._loader = BatchLoader(
            built.training, built.validation, model=built.runner, store=self.store, running_batches=running_batches
        )
        if self.spec.rounds and built.runner.synchronizes and isinstance(ps, PsClient):
            self._round_steps = RoundSteps(
                RoundSettings(plan=self.spec.plan.fingerprint, rounds=self.spec.rounds),
                built.runner,
                WorkerRoundServices(self.spec.plan, loader, ps, running_batches),
            )
        ring = self._ring = self._join_ring(built, signature, ps) if self.spec.has_ring else None
        servers = ring.servers if ring else cast("PsClient", ps)  # DenseAndTables is only with a ring.
        compute = ComputeLane(
            ComputeSettings(
                plan=self.spec.plan,
                rate_from_worker=signature.optimizer.rate_from_worker,
                callbacks=self._callbacks(built, exporter, running_batches).run,
                export=exporter.export,
                save=exporter.save,
                round_steps=self._round_steps,
            ),
            built.runner,
            self.store,
            running_batches,
            loader.name_record,
        )
        self._executor.add(lane_handlers(loader, compute, PsLane(servers, self.store, has_ring=ring is not None)))
        if built.outputs is not None:
            self._executor.add(self._predictor(built.outputs, running_batches, loader).handlers)
        self._executor.add({commands.InitialiseModel: lambda _: self._initialise(addresses, ps, built)})
        return tuple(start_notes(built, self.settings, gpu))

    def _ps_client(self, addresses: Addresses, signature: ModelSignature) -> PsClient | DenseAndTables:
        client = partial(
            PsClient,
            token=self.settings.token,
            peer=self.settings.pod,
            plan=self.spec.plan.fingerprint,
            settings=PsClientSettings(has_gate=self.spec.bounds_staleness),
        )
        if not self.spec.has_tables_beside_ring:
            return client(addresses.directory, signature=signature)
        return DenseAndTables(
            signature,
            client(addresses.directory_of_replica, signature=signature.without_tables),
            client(addresses.directory, signature=signature.without_dense),
        )

    def _join_ring(self, built: Built, signature: ModelSignature, ps: PsClient | DenseAndTables) -> RingWorker:
        # Imported here: other jobs need no part of a ps in their workers.
        from elasticdl.worker.replica.ring_worker import RingWorker, Surroundings

        return RingWorker(
            Surroundings(
                settings=self.settings,
                incarnation=self.incarnation,
                instance=self._envelopes.instance,
                spec=self.spec,
                bus=self.bus,
                loop=self.loop,
                store=open_store(self.spec.storage),
                clock=self._clock,
            ),
            signature,
            ps,
            publisher=self._publisher,
            failed=self._background_failed,
            updater=built.runner.updater,
        )

    def _exporter(self, built: Built, ps: PsClient | DenseAndTables, running_batches: RunningBatches) -> Exporter:
        in_parquet = built.export_tables is ExportTables.PARQUET
        return Exporter(
            ps=ps,
            saved=SavedModels(self.spec.storage),
            writer=ModelWriter(
                write=built.write,
                write_file=built.write_file,
                with_tables=partial(built.with_tables, self.spec) if in_parquet else None,
            ),
            output=self.spec.output,
            owner=OutputOwner(job=self.spec.job, started_s=self.spec.created_s),
            watch=ExportWatch(progress=lambda: self._on_progress(running_batches), waiting=running_batches.waiting),
        )

    def _read_ahead(self, tasks: Sequence[TaskRef]) -> None:
        if self._loader is not None and self.built is not None and self.built.stores.reads_ahead:
            self._loader.prefetch(tasks)

    def _callbacks(self, built: Built, exporter: Exporter, running_batches: RunningBatches) -> CallbackTasks:
        def save(uri: str, instances: Mapping[str, str]) -> None:
            exporter.write_file(uri, instances, built.write_file)

        def summarize(epoch: int, graph: bool, instances: Mapping[str, str]) -> None:
            encode = partial(built.summaries, epoch=epoch, graph=graph)
            exporter.write_summaries(weights_file(self.spec, epoch), instances, encode)

        def load(instances: Mapping[str, str]) -> Any:
            return built.whole_model(*exporter.weights(instances))

        return CallbackTasks(
            lambda: built.make_hooks(self.spec, ModelAccess(save=save, summarize=summarize, load=load)),
            self.spec.storage,
            waiting=running_batches.waiting,
        )

    def _on_progress(self, running_batches: RunningBatches) -> None:
        running_batches.step()
        self._runner.post(ProgressMade())

    def _predictor(self, outputs: ModelOutputs, running_batches: RunningBatches, loader: BatchLoader) -> Predictor:
        return Predictor(
            model=replace(outputs, worker=pod_number(self.settings.pod)),
            store=self.store,
            running_batches=running_batches,
            output=PredictionOutput.of(self.spec, open_store(self.spec.output)),
            progress=lambda: self._runner.post(ProgressMade()),
            name_record=loader.name_record,
        )

    def _check_callbacks(self, built: Built) -> None:
        """The job waits for the callbacks that its model check has found, and for no others."""
        if built.callbacks.names != self.spec.callbacks:
            raise UserError(
                f"{self.spec.model.path}: the callbacks are {_text(built.callbacks.names)}, but the job was started "
                f"with {_text(self.spec.callbacks)}",
                hint="Start a new job. If its model check does not finish, remove the callbacks.",
            )

    def _initialise(self, addresses: Addresses, ps: PsClient | DenseAndTables, built: Built) -> None:
        while not addresses.wait_known(wanted := addresses.placement().owner_names(self.spec), timeout_s=_WAITING_S):
            if self.has_said_stopped:
                return
            _log.info("waiting for ps", known=sorted(addresses.resolve()), wanted=wanted)
        first = ps.initialise(built.runner.initial_dense())
        while self._ring is not None and not self._ring.wait_until_member(_WAITING_S):
            if self.has_said_stopped:
                return
            _log.info("waiting for the ring")
        if not self.spec.kind.trains:
            # No batch is pulled before all ps have pinned the model. So a ps that died before its first snapshot would
            # not be offered the initial values again.
            ps.pull({}, dense=False).release()
        _log.info("model initialised", first=first)

    async def _exit(self, command: Exit) -> None:
        self._exit_code = command.exit_code
        if command.reason:
            _log.error("the worker can't continue", reason=command.reason)
        self._stop_lanes()

    def _stop_lanes(self) -> None:
        """Let every lane end, also one that waits for other workers; any thread may call."""
        if self._round_steps is not None:
            self._round_steps.close()
        if self._ring is not None:
            self._ring.ask_to_leave()
        self._runner.stop()

    def _background_failed(self, error: BaseException) -> None:
        if isinstance(error, ElasticDLError):
            self._runner.post(ExecutionFailed(error=error))
        else:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._fault = self._fault or error
        self._stop_lanes()


def weights_file(spec: JobSpec, epoch: int) -> str:
    """URI of the event file with the weights of an epoch, from 0. They are a run of their own beside the curves.

    TensorBoard reads the files of a run in the order of their names and returns to none of them.
    """
    name = f"events.out.tfevents.{int(spec.created_s)}.{epoch:06d}"
    return join(spec.tensorboard_log_dir, spec.job, "weights", name)


def _text(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def start_notes(built: Built, settings: WorkerSettings, gpu: str) -> list[str]:
    """The start-up lines that a user sees."""
    notes = [
        *built.describe(),
        _device(gpu, settings.compute_threads),
        *built.export_notes,
        *built.loading_notes,
        *built.callbacks.notes,
    ]
    return [without_pod_folders(note) for note in notes]


def _device(gpu: str, threads: int) -> str:
    if gpu:
        return f"each worker computes on a GPU ({gpu})"
    if not threads:
        return "each worker computes on the CPU, with as many threads as TensorFlow chooses"
    return f"each worker computes on the CPU, with {threads} thread{'s' if threads > 1 else ''}"


def running_batches_path(settings: WorkerSettings, environment: Mapping[str, str]) -> Path:
    """Where the running batches are recorded: where the master or the launcher says, or in a temporary file."""
    if message := environment.get(TERMINATION_MESSAGE_VARIABLE, ""):
        return Path(message)
    told = environment.get(ENVIRONMENT_VARIABLE, "")
    return file_of(
        told or Path(tempfile.gettempdir()) / f"elasticdl-{settings.job}-{settings.pod}.running_batches", os.getpid()
    )
