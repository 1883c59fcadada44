"""The shell of a member of a ring: executes the core's commands in threads, and serves the worker's ps lane."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.names import PodName, TaskId
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.core_runner import CoreRunner, Lanes
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.connection import Connection
from elasticdl.worker.ps_client.requests import PushOutcome, PushRequest, TaskProgress
from elasticdl.worker.ring.collective import RingBrokenError
from elasticdl.worker.ring.copies import Copies, Copy
from elasticdl.worker.ring.core import Phase, RingCore, commands, events
from elasticdl.worker.ring.core.contributions import key_of
from elasticdl.worker.ring.core.messages import BatchKey, State
from elasticdl.worker.ring.gradients import Gradients
from elasticdl.worker.ring.half import Half
from elasticdl.worker.ring.links import Links
from elasticdl.worker.ring.listener import Listener, RingSettings
from elasticdl.worker.ring.ports import BatchFacts, Generation, Leading, Membership, ReplicaState

JOIN_S = 5.0
"""Seconds for threads to end when a member closes."""


class RingClosedError(TransientError):
    """This member has left the ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingFigures:
    """What a heartbeat says about a member.

    Attributes:
        generation: number of the present one; 0: none is open for this member.
        step: committed rounds.
        ring_s: seconds spent in reductions so far.
        rounds: reductions so far.
        formations: generations that opened so far.
    """

    generation: int
    members: tuple[PodName, ...]
    step: int
    ring_s: float
    rounds: int
    formations: int


class ReplicaSet:
    """One member of a ring. Any thread may call.

    Args:
        state: the replica of this member; its calls are serialised here.
        leading: told when this member begins or ends to lead.
        failed: called once with an error that ends the process: a defect, or a state of another model.
    """

    def __init__(
        self,
        settings: RingSettings,
        state: ReplicaState,
        membership: Membership,
        leading: Leading,
        *,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._settings, self._state, self._membership, self._leading = settings, state, membership, leading
        self._log = get_logger().bind(part="ring")
        self._core = RingCore(settings.worker, settings.incarnation)
        self._listener = Listener(settings, self._serve)
        self._changed = threading.Condition(threading.RLock())
        """Held while the state is used; notified when it, the generation or the links have changed."""
        self._gradients = Gradients(is_double=settings.is_deterministic)
        self._decided_step, self._is_round_under_way = 0, False
        """Of the core: rounds that it has decided to commit, and whether another one is offered."""
        self._contributed: set[BatchKey] = set()
        """Batches of this member that are not committed: a worker must not compute them again."""
        self._open: Generation | None = None
        """The generation that is open for this member."""
        self._links: Links | None = None
        self._ended_links: list[Links] = []
        self._has_left = False
        self._unchecked, self._is_comparing = 0, False
        """Checksums that the core has not been told of, and whether it waits for those of other members."""
        self._copies = Copies()
        self._loads = 0
        self._ring_s, self._rounds, self._formations = 0.0, 0, 0
        self._runner: CoreRunner[events.RingEvent, commands.RingCommand] = CoreRunner(
            self,
            execute=self._execute,
            lanes=Lanes(
                threads=[f"ring-{lane.value}" for lane in commands.Lane],
                of=lambda command: f"ring-{command.lane.value}",
            ),
            clock=SystemClock(),
            failed=self._on_failed,
        )
        self._failed = failed

    # --- the process --------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """``host:port`` that other members connect to."""
        return self._listener.address

    @property
    def figures(self) -> RingFigures:
        """What a heartbeat says about this member."""
        with self._changed:
            generation = self._open
            return RingFigures(
                generation=generation.number if generation else 0,
                members=tuple([member.worker for member in generation.members]) if generation else (),
                step=self._state.step if self._state.has_model else 0,
                ring_s=self._ring_s,
                rounds=self._rounds,
                formations=self._formations,
            )

    @property
    def is_alone(self) -> bool:
        """Whether a generation is open that has no other member."""
        generation = self._open
        return generation is not None and len(generation.members) == 1

    @property
    def has_uncommitted(self) -> bool:
        """Whether batches are contributed, here or at another member, that this state lacks. A leader knows of all."""
        with self._changed:
            is_behind = self._state.has_model and self._state.step < self._decided_step
            return is_behind or self._is_round_under_way or bool(self._contributed)

    @property
    def is_checking(self) -> bool:
        """Whether weights of members are being compared, or will be once a generation is open. A leader knows."""
        with self._changed:
            return self._unchecked > 0 or self._is_comparing or self._open is None

    def start(self) -> None:
        """Accept connections, report that this member is ready, and follow the generations of the master."""
        self._listener.start()
        self._runner.start()
        with self._changed:
            has_model = self._state.has_model
            started = events.Started(has_model=has_model, step=self._state.step if has_model else 0)
        self._runner.post(started)
        self._membership.on_generation(self._on_generation)

    def model_ready(self) -> None:
        """The replica of a leader that had no model has one now."""
        with self._changed:
            step = self._state.step
            self._changed.notify_all()
        self._runner.post(events.ModelReady(step=step))

    def ask_to_leave(self) -> None:
        """Leave after the round that is reduced now, if one is. Returns at once."""
        if not self._has_left:
            self._runner.post(events.LeaveRequested())

    def leave(self) -> None:
        """``ask_to_leave``, and wait until this member takes no part any more."""
        self.ask_to_leave()
        with self._changed:
            self._changed.wait_for(lambda: self._has_left)

    def wait_until_member(self, timeout_s: float) -> bool:
        """Wait until a generation with this member is open; whether it is, or this member has left."""
        with self._changed:
            return self._changed.wait_for(lambda: self._has_left or self._open is not None, timeout_s)

    def close(self) -> None:
        """End at once: connections, threads and waiting calls."""
        with self._changed:
            self._has_left = True
            self._open = None
            self._changed.notify_all()
            links = self._links
        self._listener.close()
        if links is not None:
            links.close()
        self._runner.stop()
        self._runner.join(JOIN_S)
        self._free_ended_links()
        links = self._links  # Another one if a generation came in between.
        if links is not None:
            links.close()
            links.free()

    # --- the worker ---------------------------------------------------------------------------------------------------

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        """How far a task is, with what this member has contributed; waits until a generation is open.

        Raises:
            RingClosedError: this member has left.
        """
        with self._changed:
            generation = self._wait_for_generation()
            next_batch = self._state.next_batch(task, batches)
            while (task, next_batch) in self._contributed:
                next_batch += 1
        return TaskProgress(next_batch=next_batch, credits=self._leading.credits(generation))

    def wait_until_open(self, task: TaskId, batch: int, wait_s: float) -> bool:
        """Wait until the weights for a batch can be read: every earlier round is committed.

        Returns:
            Whether that is so; False: not within ``wait_s``.

        Raises:
            RingClosedError: this member has left.
        """
        with self._changed:
            is_open = self._changed.wait_for(lambda: self._has_left or self._is_open(task, batch), wait_s)
            if self._has_left:
                raise RingClosedError("this worker has left the ring")
            return is_open

    def push(self, request: PushRequest) -> PushOutcome:
        """Contribute a batch. May return before its round is committed.

        If it completes the round, this thread reduces and applies it: it would only wait for the thread that does.
        The gradient is not copied: it must not change afterwards.

        Raises:
            RingClosedError: this member has left.
        """
        facts = BatchFacts(
            task=request.task,
            batch=request.batch,
            batches=request.batches,
            records=request.records,
            checksum=request.checksum,
            is_empty=request.dense_gradient is None,
            rate=request.rate,
            statistics=request.statistics_update,
            metric_states=request.metric_states,
        )
        contributed: events.Contributed | None = None
        with self._changed:
            generation = self._wait_for_generation()
            step, next_batch = self._state.step, self._state.next_batch(request.task, request.batches)
            if next_batch <= request.batch and self._state.is_open(request.task, request.batch):
                if request.dense_gradient is not None:
                    self._gradients.keep(key_of(facts), request.records, request.dense_gradient)
                contributed = events.Contributed(
                    step=step,
                    loads=self._loads,
                    round=tuple(self._state.round_of(request.task, request.batch)),
                    facts=facts,
                )
                next_batch = request.batch + 1
                self._contributed.add(key_of(facts))
        if contributed is not None:
            self._runner.post(contributed, borrows=f"ring-{commands.Lane.STATE.value}")
        return PushOutcome(next_batch=next_batch, credits=self._leading.credits(generation), step=step)

    def _is_open(self, task: TaskId, batch: int) -> bool:
        return self._state.has_model and self._state.is_open(task, batch)

    def _wait_for_generation(self) -> Generation:
        self._changed.wait_for(lambda: self._has_left or self._open is not None)
        if self._open is None:
            raise RingClosedError("this worker has left the ring")
        return self._open

    def _on_failed(self, error: BaseException) -> None:
        """Let nothing wait for a core that decides nothing more, and end the process."""
        with self._changed:
            self._has_left = True
            self._changed.notify_all()
        self._failed(error)

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: events.RingEvent, now_s: float) -> Sequence[commands.RingCommand]:
        """Called by the runner, with one event at a time."""
        issued = self._core.handle(event, now_s)
        self._decided_step, self._is_round_under_way = self._core.position.step, self._core.is_round_under_way
        self._is_comparing = self._core.comparison.is_waiting
        with self._changed:
            self._unchecked -= isinstance(event, events.WeightsChecked)
            self._unchecked += sum(isinstance(command, commands.CheckLast) for command in issued)
        present = self._core.generation if self._core.phase is Phase.OPEN else None
        if present is not self._open:
            with self._changed:
                self._open = None if self._has_left else present
                self._formations += present is not None
                self._changed.notify_all()
        return issued

    def _on_generation(self, generation: Generation) -> None:
        self._runner.post(events.GenerationFormed(generation=generation))

    def _serve(self, hello: wire_pb2.RingHello, connection: Connection) -> None:
        """Hand a connection over to its generation, which this member may not know yet."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_left or self._number >= hello.generation)
            links = self._links
        if links is None or self._has_left or links.generation.number != hello.generation:
            connection.close()
        else:
            links.serve(hello, connection)

    @property
    def _number(self) -> int:
        return self._links.generation.number if self._links is not None else 0

    # --- commands -----------------------------------------------------------------------------------------------------

    def _execute(self, command: commands.RingCommand) -> events.RingEvent | None:
        match command:
            case commands.Reduce():
                return self._reduce(command)
            case commands.Apply():
                return self._apply(command)
            case commands.CheckLast():
                return self._check_last(command)
            case commands.Load(state=state):
                return self._load(state)
            case commands.Connect() | commands.Disconnect():
                self._connect_or_disconnect(command)
            case commands.Send() | commands.SendResult() | commands.SendState():
                self._send(command)
            case (
                commands.ReportReady()
                | commands.TellDifference()
                | commands.Lead()
                | commands.Follow()
                | commands.Left()
            ):
                self._tell_worker(command)
            case _:
                assert_never(command)
        return None

    def _connect_or_disconnect(self, command: commands.Connect | commands.Disconnect) -> None:
        if isinstance(command, commands.Disconnect):
            links = self._links
            if links is not None and links.generation.number == command.generation:
                links.close()
            return
        links = Links(self._settings, command.generation, command.rank, self._runner.post)
        with self._changed:
            if self._links is not None:
                self._ended_links.append(self._links)
            self._links = links
            self._changed.notify_all()
        links.start(is_again=command.is_again)

    def _send(self, command: commands.Send | commands.SendResult | commands.SendState) -> None:
        links = self._links
        if links is None or links.generation.number != command.generation:
            return
        match command:
            case commands.Send(rank=rank, message=message):
                links.send(rank, message)
            case commands.SendResult(rank=rank, result=result):
                links.send(rank, result)
            case commands.SendState(rank=rank, position=position, since=since):
                with self._changed:
                    copy = self._copies.take(position, links.generation.number, since=since, save=self._state.save)
                arguments = (links, rank, copy)
                threading.Thread(target=self._send_state, args=arguments, name="ring-copy", daemon=True).start()
            case _:
                assert_never(command)

    def _send_state(self, links: Links, rank: int, copy: Copy) -> None:
        """In a thread of its own: rounds are committed meanwhile."""
        try:
            links.send(rank, copy.state())
        except BaseException as error:  # The outermost frame of the thread.
            self._on_failed(error)

    def _tell_worker(
        self,
        command: commands.ReportReady | commands.TellDifference | commands.Lead | commands.Follow | commands.Left,
    ) -> None:
        match command:
            case commands.ReportReady(left=left, step=step, has_model=has_model, is_near=is_near, reason=reason):
                self._log.info("ready for a generation", left=left, step=step, reason=reason)
                self._membership.report_ready(left=left, step=step, has_model=has_model, is_near=is_near, reason=reason)
            case commands.TellDifference(step=step, tensor=tensor):
                self._membership.report_difference(step=step, tensor=tensor)
            case commands.Lead(generation=generation):
                self._leading.lead(generation)
            case commands.Follow(generation=generation):
                self._leading.follow(generation)
            case commands.Left():
                with self._changed:
                    self._has_left = True
                    self._changed.notify_all()
            case _:
                assert_never(command)

    def _reduce(self, command: commands.Reduce) -> events.ReduceFinished | events.ReduceFailed:
        self._free_ended_links()
        number, step = command.generation, command.step
        with self._changed:
            parts = self._gradients.select(command.own)
            size = self._state.gradient_size if command.has_gradient else 0
            magnitudes = self._state.magnitudes
            links = self._links
        started_s = time.perf_counter()
        is_alone = links is not None and len(links.generation.members) == 1
        total = self._gradients.weighted_sum(parts, size, command.records, is_alone=is_alone, magnitudes=magnitudes)
        try:
            if links is None or links.generation.number != number:
                raise RingBrokenError("the generation has ended")
            if not is_alone:
                half = Half.of(self._settings.precision)
                links.ring().all_reduce(total, number=step, block=self._gradients.block_of(total), half=half)
        except (RingBrokenError, ProtocolError) as error:
            self._gradients.discard(total)
            return events.ReduceFailed(generation=number, step=step, reason=str(error))
        self._ring_s += time.perf_counter() - started_s
        self._rounds += 1
        return events.ReduceFinished(
            generation=number,
            step=step,
            gradient=total if command.has_gradient else None,
            size_bytes=total.nbytes if command.has_gradient else 0,
        )

    def _apply(self, command: commands.Apply) -> events.WeightsChecked | None:
        with self._changed:
            self._state.apply(command.batches, command.gradient)
            self._gradients.drop(map(key_of, command.batches))
            self._contributed.difference_update(map(key_of, command.batches))
            for total in command.unneeded:
                self._gradients.recycle(total)
            self._changed.notify_all()
            number, every, step = command.generation, self._settings.check_steps, self._state.step
            if number is None or not every or not (step % every == 0 or self._state.is_complete):
                return None
            self._unchecked += 1
            return events.WeightsChecked(generation=number, step=step, checksums=self._state.checksums())

    def _check_last(self, command: commands.CheckLast) -> events.WeightsChecked | None:
        with self._changed:
            if self._settings.check_steps and self._state.is_complete:
                step, checksums = self._state.step, self._state.checksums()
                return events.WeightsChecked(generation=command.generation, step=step, checksums=checksums)
            self._unchecked -= 1
            return None

    def _load(self, state: State) -> events.StateLoaded:
        with self._changed:
            self._state.load(state.parts)
            self._gradients.clear()
            self._contributed.clear()
            self._loads += 1
            self._changed.notify_all()
            return events.StateLoaded(step=self._state.step)

    def _free_ended_links(self) -> None:
        with self._changed:
            ended, self._ended_links = self._ended_links, []
        for links in ended:
            links.free()
