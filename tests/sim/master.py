"""The master on the virtual clock: the shipped shell, outbox and core; and the launcher with its shipped rules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.process import Process
from tests.sim.ps import PsProcess
from tests.sim.worker import WorkerProcess

from elasticdl.cli.jobs.resumption import lost_part, resume_event
from elasticdl.cli.local.restart_policy import RestartPolicy
from elasticdl.master.core.fold import fold
from elasticdl.master.service import Master, MasterOptions
from elasticdl.ps.snapshots.job_recovery import recover_job
from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages.events import Event, ExitCause, GroupLedger, JobResumed, JobSubmitted
from elasticdl.shared.model.manifests import read_manifest
from elasticdl.shared.names import LAUNCHER, MASTER, Incarnation, PodName, Service
from elasticdl.shared.pods.memory import MemoryPods
from elasticdl.shared.pods.ports import Ended, Pods, PodStatus
from elasticdl.shared.pods.supervisor import PodSupervisor
from elasticdl.shared.process.event_publisher import QueuedEventPublisher

if TYPE_CHECKING:
    from tests.sim.world import World

BOOT_S = {Service.MASTER: 0.3, Service.PS: 0.3, Service.WORKER: 0.6}
REACTION_S = 0.25
"""Seconds that the launcher takes to start another master, besides the backoff."""
AGAIN_S = 0.5
PENDING_SHARE, PENDING_S_MAX = 0.3, 5.0
"""Share of the pods of a cluster for which there is no room at once, and the longest time until there is."""
REMOVED_SHARE = 0.3
"""Share of those that are removed while they are pending: by a user, or with a master that waited for quota."""


class MasterProcess(Process):
    """One instance of the master."""

    service = Service.MASTER

    def __init__(self, world: World) -> None:
        super().__init__(world, MASTER)
        options = MasterOptions(snapshot_records=1 + 7 * self.pid % 40, pods=self._pods if world.is_cluster else None)
        self.master = Master(self.bus, self.clock, self.incarnation, self._read_ledgers, options)

    def _pods(self, run: Incarnation) -> Pods:
        """What this master sees of its cluster, on which a former master may run, too."""
        launcher = self.world.launcher
        if launcher is None or launcher.incarnation != run:
            raise TransientError("there is no such run")
        return launcher.pods.view()

    async def main(self) -> None:
        self.spawn(self.heartbeat)
        await self.master.run()
        self.world.succeeded(self)

    def _read_ledgers(self, manifest: str) -> tuple[GroupLedger, ...]:
        return read_manifest(self.world.store, manifest).ledgers


class Launcher(Process):
    """The launcher: the shipped supervisor of pods, rules of restarts and resume, on simulated processes.

    On a cluster it stands for the batch Job, which starts masters; they create and watch the other pods themselves.
    """

    service = Service.LAUNCHER

    def __init__(self, world: World, *, resumed: bool, ps: int = 0) -> None:
        super().__init__(world, LAUNCHER)
        self.kept: dict[PodName, Process] = {}
        self._resumed = resumed
        self._ps = ps
        self._publisher = QueuedEventPublisher(self.bus.log, self.envelopes)
        self.pods = MemoryPods(SimNode(self))
        self._supervisor = PodSupervisor(self.pods, self._publisher.publish)
        self._restart_policy = RestartPolicy()

    async def main(self) -> None:
        self.probe("starts")
        await self._open()
        if not self.world.is_cluster:
            await self.bus.signals.serve_orders(LAUNCHER, self._supervisor.execute)
            self.spawn(self._supervisor.run)
        self._start_master()
        await self._publisher.run()

    async def _open(self) -> None:
        """Append what the user's command does. A resume is typed again while it ends because something is away."""
        while True:
            try:
                opening = await self._resumption() if self._resumed else [JobSubmitted(spec=self.world.job.spec)]
                for event in opening:
                    await self._publisher.open(event)
                return
            except TransientError:
                if not self._resumed:
                    raise
                await asyncio.sleep(AGAIN_S)

    async def _resumption(self) -> list[Event]:
        """Follows ``elasticdl resume``: what the snapshots tell counts, where the log does not know it."""
        store, spec = self.world.store, self.world.job.spec
        submitted = JobSubmitted(spec=spec)
        recovered = recover_job(store, spec.storage, spec.job)
        begun = (state := fold(self.world.records())).spec is not None
        if not begun and recovered is None:
            return [submitted]  # Nothing was learned: the user trains anew.
        lost, adds = lost_part(self.world.last_record(), self.world.log_end), self.world.adds_epochs
        resumed = JobResumed(
            reason="resumed",
            lost=lost,
            ps=self._ps,
            continues=state.run,
            epochs=self.world.job.epochs if adds and (lost or not begun or state.is_final) else 0,
        )
        resumed = await resume_event(self.bus.registers, store, spec, recovered, resumed, self.clock.now())
        await self.bus.tasks.purge(await self.bus.tasks.last_seq())
        return [resumed] if begun else [JobSubmitted(spec=recovered.spec if recovered else spec), resumed]

    def pass_on(self, event: Event) -> None:
        """Append what a user requested."""
        self._publisher.publish(event)

    def exited(self, process: Process, exit_code: int) -> None:
        """A process that is kept has ended, or is taken for dead."""
        if self.kept.get(process.name) is not process:
            return
        del self.kept[process.name]
        if process.service is not Service.MASTER:
            batches = process.running_batches if isinstance(process, WorkerProcess) else ()
            traces = Ended(cause=ExitCause.FINISHED, running_batches=batches)
            self.pods.exit(process.name, exit_code, process.exit_reason, traces=traces)
            return
        decision = self._restart_policy.decide(exit_code, self.clock.monotonic(), lambda lines: "")
        if not decision.ends:
            delay_s = REACTION_S + decision.delay_s
            self.world.loop.call_later(delay_s, self._start_master, context=self.instance.context)
        elif decision.message:
            self.world.fail(f"{process.incarnation} ended the job")

    def lose_node(self, process: Process) -> None:
        """The node of a pod is lost, and its process with it."""
        if process.service is not Service.MASTER and self.kept.get(process.name) is process:
            del self.kept[process.name]
            self.pods.vanish(process.name)
            process.end(-9)

    def begin(self, process: Process) -> None:
        """Run a process under its name."""
        self.kept[process.name] = process
        self.world.note(f"{process.incarnation} starts")
        self.world.processes.append(process)
        boot_s = BOOT_S[process.service] * (0.5 + self.world.random.random())
        self.world.loop.call_later(boot_s, process.start, context=process.instance.context)

    def _start_master(self) -> None:
        self.begin(MasterProcess(self.world))


class SimNode:
    """See ``Node``: starts and stops simulated processes."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._world = launcher.world

    def start(self, pod: PodName, service: Service) -> None:
        """See ``Node``."""
        wait_s = self._world.full_until_s.get(pod, 0.0) - self._world.loop.time()
        if wait_s > 0:
            self._wait_for_room(pod, wait_s)
        elif self._world.is_cluster and self._world.random.random() < PENDING_SHARE:
            self._wait_for_room(pod, PENDING_S_MAX * self._world.random.random())
        else:
            self._start(pod, service)

    def _wait_for_room(self, pod: PodName, wait_s: float) -> None:
        self._launcher.pods.pend(pod, "no room")
        pending = self._launcher.pods.get(pod)
        self._world.loop.call_later(wait_s, self._start_pending, pending, context=self._launcher.instance.context)

    def _start_pending(self, pending: PodStatus) -> None:
        """There is room for a pod now, if it is still wanted; some are removed before."""
        if self._launcher.pods.get(pending.pod) != pending:
            return
        if self._world.random.random() < REMOVED_SHARE:
            self._launcher.pods.vanish(pending.pod)
        else:
            self._start(pending.pod, pending.service)

    def _start(self, pod: PodName, service: Service) -> None:
        kind = PsProcess if service is Service.PS else WorkerProcess
        process = kind(self._world, pod, self._launcher.incarnation)
        self._launcher.begin(process)
        self._launcher.pods.run(pod, process.pod_instance)

    def stop(self, pod: PodName, *, kill: bool) -> None:
        """See ``Node``."""
        kept = self._launcher.kept.get(pod)
        if kept and kill:
            kept.end(-9)
        elif kept:
            self._world.loop.call_soon(kept.terminate, context=kept.instance.context)
