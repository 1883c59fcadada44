"""One simulated run: a job, its processes, the faults, and the judgement at the end."""

from __future__ import annotations

import contextvars
from dataclasses import dataclass
from random import Random

import numpy as np
from tests.sim.clocks import ProcessClock
from tests.sim.faults import Fault, Faults
from tests.sim.job import LEASE_S, Shape, SimJob
from tests.sim.loop import VirtualLoop
from tests.sim.master import Launcher, MasterProcess
from tests.sim.metric_oracle import MetricOracle
from tests.sim.network import BROKER, Network, Weather
from tests.sim.oracle import Oracle
from tests.sim.process import Process
from tests.sim.ps import PsProcess
from tests.sim.staleness import StalenessWatch
from tests.sim.store import SimStore
from tests.sim.worker import Hang, WorkerProcess

from elasticdl.cli.jobs.run_directory import LogEnd
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.bus.stored_events import StoredEvent, unreadable
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.ledger import Verdict
from elasticdl.shared.messages.events import Envelope, LogRecord, ScaleRequested
from elasticdl.shared.messages.registers import decode_register
from elasticdl.shared.model.manifests import MANIFEST_NAME, chunk_uri
from elasticdl.shared.names import MASTER, PodName, Purpose
from elasticdl.shared.wire.message_codec import encode_request
from elasticdl.shared.wire.messages import Push
from elasticdl.worker.core.commands import MergeResult
from elasticdl.worker.ps_client.splitter import Splitter

GARBAGE = b"\xff\x00garbage"

CALM_S_MAX = 400.0
"""Virtual seconds after the end of the faults within which the job must be done."""
EVENTS_MAX = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All that decides a run.

    Attributes:
        seed: of everything that is not written here.
        shape: the job.
        weather: the network while faults are on.
        faults: what goes wrong.
        horizon_s: when faults end.
    """

    seed: int
    shape: Shape
    weather: Weather
    faults: tuple[Fault, ...]
    horizon_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run.

    Attributes:
        problems: what is wrong, one sentence each; empty: all is well.
        story: what happened, line by line.
        ended_s: virtual seconds.
        events: callbacks that were run.
        computed: batches computed by all workers.
        masters: lives of the master.
    """

    problems: tuple[str, ...]
    story: tuple[str, ...]
    ended_s: float
    events: int
    computed: int
    masters: int


class World:
    """Everything there is.

    Args:
        schedule: decides the run.
        added_epochs: that a user adds with a resume when the job has finished.
        is_cluster: whether masters create and watch pods themselves; otherwise the launcher does.
    """

    def __init__(self, schedule: Schedule, added_epochs: int = 0, *, is_cluster: bool = False) -> None:
        self.is_cluster = is_cluster
        self.random = Random(schedule.seed)
        self.loop = VirtualLoop()
        self._clocks: dict[str, ProcessClock] = {}
        weather = schedule.weather
        self.disks_lost = 0
        """How often the broker's disk has forgotten everything."""
        self.is_undisturbed = not (schedule.faults or weather.lost or weather.unanswered or weather.late)
        self.network = Network(self.loop, Random(schedule.seed + 1), schedule.weather)
        settings = BusSettings(lease_s=LEASE_S, part_bytes_max=schedule.shape.part_bytes_max)
        self.broker = MemoryBroker(settings, self.clock_of(BROKER))
        self.full_until_s: dict[PodName, float] = {}
        """Until when there is no room for pods of these names."""
        self.store = SimStore()
        self.job = SimJob(schedule.shape, added_epochs)
        self.adds_epochs = False
        """Whether the job has finished and was resumed with more epochs."""
        self._context = contextvars.copy_context()
        self.oracle = Oracle(self.job)
        self.metric_oracle = MetricOracle(self.job)
        self.staleness = StalenessWatch()
        self.processes: list[Process] = []
        self.faults = Faults(self, schedule.faults, schedule.horizon_s)
        self.results = Random(schedule.seed + 2)
        """Draws the results of evaluations."""
        self.callback_results: dict[int, MergeResult] = {}
        """Task of callbacks -> the result in the job's storage."""
        self.story: list[str] = []
        self.computed = 0
        self._problems: list[str] = []
        self._schedule = schedule
        self._pids = 0
        self._envelopes: dict[StoredEvent, Envelope] = {}
        self.log_end = LogEnd()
        self.launchers: list[Launcher] = []
        self._launcher: Launcher | None = None

    def run(self) -> Outcome:
        """From submission to judgement."""
        self.start_launcher(False)
        self.faults.start()
        limit_s = self._schedule.horizon_s + CALM_S_MAX
        self.loop.run(limit_s=limit_s, events_max=EVENTS_MAX)
        if not self.loop.is_stopped:
            self._problems += [f"{type(error).__name__}: {error}" for error in self.loop.errors]
            if not self.loop.errors:
                self._problems.append(self._stuck())
        masters = [each for each in self.processes if isinstance(each, MasterProcess)]
        return Outcome(
            problems=tuple(self._problems),
            story=tuple(self.story),
            ended_s=self.loop.time(),
            events=self.loop.events,
            computed=self.computed,
            masters=len(masters),
        )

    # --- what processes need ---------------------------------------------------------------------------------------

    def next_pid(self) -> int:
        """A fresh process id."""
        self._pids += 1
        return self._pids

    def last_record(self) -> LogRecord | None:
        """The last record of the log."""
        data = self.broker.records.data
        return self._record(len(data), data[-1]) if data else None

    def records(self) -> list[LogRecord]:
        """The log."""
        data = self.broker.records.data
        return [self._record(seq, data[seq - 1]) for seq in range(1, len(data) + 1)]

    def _record(self, seq: int, data: StoredEvent) -> LogRecord:
        """A record, decoded once for all who judge the run; processes decode for themselves."""
        if data not in self._envelopes:
            try:
                self._envelopes[data] = self.broker.envelope(data)
            except ProtocolError as error:
                return unreadable(seq, data, str(error))
        return LogRecord(seq=seq, envelope=self._envelopes[data])

    def garbage(self, subject: str) -> None:
        """A client publishes unreadable bytes: as a task, as a heartbeat, or as an event of a process."""
        match subject:
            case "task":
                self.broker.queue.publish_bytes(Purpose.TRAIN, GARBAGE)
            case "heartbeat":
                for _, listener in self.broker.subscriptions.heartbeats:
                    listener.put_nowait(GARBAGE)
            case "master":
                records = self.broker.records
                records.append_fenced(StoredEvent(MASTER, "", GARBAGE), records.last_fenced())
            case _:
                self.broker.records.append(StoredEvent(PodName(subject), "", GARBAGE))

    def clock_of(self, name: str) -> ProcessClock:
        """The clock of a process' machine; it outlives the process."""
        if name not in self._clocks:
            self._clocks[name] = ProcessClock(self.loop)
        return self._clocks[name]

    def note(self, text: str) -> None:
        """A line of the story."""
        self.story.append(f"{self.loop.time():9.3f}  {text}")

    def fail(self, problem: str) -> None:
        """The job can't succeed any more."""
        self._problems.append(problem)
        self.loop.is_stopped = True

    def ended(self, process: Process, exit_code: int) -> None:
        """A process has ended: its connections break, the launcher notices."""
        self.note(f"{process.incarnation} ended ({exit_code})")
        if isinstance(process, MasterProcess):
            self._problems += self.oracle.replayed(self.records(), process)
        if isinstance(process, PsProcess):
            self._problems += self.metric_oracle.wrong_sums(process.incarnation, process.core.shard)
            for connection in process.connections:
                connection.reset(still_arrives=False)
        if isinstance(process, WorkerProcess):
            for ps in self.processes:
                for connection in ps.connections if isinstance(ps, PsProcess) else ():
                    if connection.client is process:
                        connection.reset(still_arrives=True)
        self._notify_launcher(process, exit_code)

    def succeeded(self, process: MasterProcess) -> None:
        """A master says that the job is over. A user may have it train more epochs then."""
        if self.job.epochs > self.job.plan.epochs and not self.adds_epochs:
            self.adds_epochs = True
            self.loop.call_soon(self._add_epochs, context=self._context)
            return
        self.store.heal()
        self._problems += self.oracle.judge(self, process)
        self.loop.is_stopped = True

    def _add_epochs(self) -> None:
        self.lose_everything()
        self.start_launcher(True)

    def ps_at(self, address: str) -> PsProcess | None:
        """Who listens at an address; behind a shared one it may be any of several lives."""
        found = [p for p in self.processes if isinstance(p, PsProcess) and p.address == address and p.instance.alive]
        return found[int(self.random.random() * len(found))] if found else None

    # --- what faults need -----------------------------------------------------------------------------------------

    def running(self, name: str) -> Process | None:
        """The process that the launcher runs under a name, if it has been started."""
        if self._launcher is None:
            return None
        return self._launcher.kept.get(PodName(name))

    @property
    def launcher(self) -> Launcher | None:
        """The present launcher."""
        return self._launcher

    def lose_sight(self, process: Process) -> None:
        """The launcher loses sight of a process."""
        self._notify_launcher(process, -9)

    def hang(self, name: str, how: Hang) -> None:
        """The next step of a worker never ends."""
        process = self.running(name)
        if isinstance(process, WorkerProcess):
            process.hangs = how

    def reset_connections(self, worker: str, ps: str) -> None:
        """All connections between two names break."""
        still_arrives = self.random.random() < 0.5
        for process in self.processes:
            if isinstance(process, PsProcess) and process.name == ps:
                for connection in process.connections:
                    if connection.client.name == worker:
                        connection.reset(still_arrives=still_arrives)

    def garble(self, process: Process) -> None:
        """A ps gets a push that only its last array spoils."""
        shard = process.core.shard if isinstance(process, PsProcess) else None
        if shard is None or not shard.groups or not isinstance(process, PsProcess):
            return
        splitter = Splitter(self.job.signature, self.job.plan.fingerprint, process.core.placement)
        plan = self.job.plan
        for task, batch in self.job.batches:
            wanted = shard.groups[0].ledger.judge(task, batch, plan.batches_of(task)) is Verdict.APPLIED
            if wanted and not self.job.is_empty(self.job.numbers[task, batch]):
                requests = dict(zip(splitter.ps, splitter.push(self.job.push(task, batch)).requests, strict=True))
                spoiled = requests.get(process.name)
                for table in spoiled.tables if isinstance(spoiled, Push) else ():
                    table.gradients[-1, -1] = np.nan
                if isinstance(spoiled, Push) and spoiled.tables:
                    process.answer(*encode_request(spoiled), sender=0)
                return

    def damage(self, ps: str, part: str) -> None:
        """Storage damages an object of the newest snapshot chain of a ps; never snapshot 0, so there is a way out."""
        entry = self.broker.registers.present(ps)
        newest = decode_register(entry.value).manifest if entry else ""
        chain = self.store.chain(newest)
        if not chain:
            return
        uri, manifest = chain[-1] if part == "newest" else chain[int(self.random.random() * len(chain))]
        if manifest.step == 0:
            return
        first = chain[0][0] if chain[0][1].step == 0 else ""
        objects = [(uri, MANIFEST_NAME), *((chunk.of or uri, chunk.name) for chunk in manifest.chunks)]
        objects = [(where, name) for where, name in objects if where != first]
        where, name = objects[0] if part == "newest" else objects[int(self.random.random() * len(objects))]
        self.note(f"{name} of snapshot {manifest.number} by {manifest.incarnation} is damaged")
        self.store.damage(chunk_uri(where, name), int(self.random.random() * 3))

    def lose_everything(self) -> None:
        """The machine of the launcher dies with all processes."""
        last = self.last_record()
        if self._launcher:
            if last is not None:  # Without a launcher, no process has seen it.
                self.log_end = LogEnd(seq=last.seq, time_s=last.envelope.time_s)
            self._launcher.instance.kill()
            self._launcher = None
        for process in self.processes:
            process.end(-9)

    def lose_log(self, whole: bool) -> None:
        """The broker's disk forgets all of its streams, or the ends of log and registers; of the queue nothing."""
        if whole:
            self.disks_lost += 1
            self.broker.records.cut(0)
            self.broker.payloads.former.clear()
            self.broker.registers.former.clear()
            return
        self.broker.records.cut(1 + int(self.random.random() * len(self.broker.records.data)))
        for name, values in list(self.broker.registers.former.items()):
            self.broker.registers.cut(name, int(self.random.random() * (len(values) + 1)))

    def start_launcher(self, resumed: bool, ps: int = 0) -> None:
        """A user types ``elasticdl train`` or ``elasticdl resume``, perhaps with another number of ps."""
        if self._launcher is None and not self.loop.is_stopped:
            self._launcher = Launcher(self, resumed=resumed, ps=ps)
            self.launchers.append(self._launcher)
            self._launcher.start()

    def scale(self, ps: int) -> None:
        """A user types ``elasticdl scale``."""
        if self._launcher is not None:
            self._launcher.pass_on(ScaleRequested(ps=ps))

    def _notify_launcher(self, process: Process, exit_code: int) -> None:
        if self._launcher and self._launcher.instance.alive:
            launcher = self._launcher
            self.loop.call_later(0.01, launcher.exited, process, exit_code, context=launcher.instance.context)

    def _stuck(self) -> str:
        masters = [each for each in self.processes if isinstance(each, MasterProcess) and each.instance.alive]
        if not masters:
            return "the job is stuck: there is no master"
        state = masters[-1].master.state
        training = state.training
        pods = ", ".join(f"{pod.name} {pod.phase.value}" for pod in state.pods.values())
        facts = f"state {state.job_state.value}; {pods}; timers {state.timers}"
        facts += f"; pending commands {len(state.pending_commands)}"
        if training:
            facts += f"; outstanding {sorted(training.outstanding)}, lacking {sorted(training.lacking)}"
        return f"the job is stuck: {facts}"


def simulate(schedule: Schedule, added_epochs: int = 0, *, is_cluster: bool = False) -> Outcome:
    """Run one schedule; arguments as ``World``."""
    return World(schedule, added_epochs, is_cluster=is_cluster).run()
