"""The controller of a ps: what follows from each event, and which procedure runs next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import assert_never

from elasticdl.ps.controller import commands, events
from elasticdl.ps.controller.moves import Moves
from elasticdl.ps.controller.registration import Registration
from elasticdl.ps.controller.settings import ControllerSettings
from elasticdl.ps.controller.snapshots import Snapshots
from elasticdl.ps.controller.startup import Startup
from elasticdl.ps.shard.admission import RefusedError, check_known
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.snapshots.requests import HoldRequest, SnapshotRequest
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import InvariantError, NoSpaceError, PermanentError, TransientError, UnreadableError
from elasticdl.shared.messages.commands import ClosePin, Command, HoldGroup, OpenPin, TakeSnapshot
from elasticdl.shared.messages.events import ModelPinned, StepReached, StopRequested
from elasticdl.shared.messages.registers import decode_register
from elasticdl.shared.model.placement import decode_placement
from elasticdl.shared.process.core_runner import SetTimer, TimerFired
from elasticdl.shared.process.procedures import Issued, Procedure, Procedures

_TIMER = "snapshots"


class PsController:
    """Decides everything that a ps does besides answering requests. Not thread-safe; ``is_notable`` alone is.

    At most one procedure at a time takes snapshots, copies, loads or drops rows (the *sequence*). Pins, new versions of
    the placement and announcements of steps run beside it.
    """

    def __init__(self, core: PsCore, writer: SnapshotWriter, settings: ControllerSettings) -> None:
        self._core = core
        self._settings = settings
        self._registration = Registration(settings.ps, settings.incarnation, settings.address)
        self._snapshots = Snapshots(core, self._registration, writer, settings.policy)
        self._moves = Moves(core, settings.ps, self._snapshots)
        self._procedures: Procedures[commands.PsCommand] = Procedures()
        self._orders: deque[SnapshotRequest | HoldRequest] = deque()
        self._sequence_runs = False
        self._has_joined = False
        self._has_garbage = False
        self._has_rows_to_drop = False
        self._lacks_space = False
        self._retry_at_s = 0.0
        self._timer_s = 0.0
        """When the timer that was set last fires; 0: none is set."""
        self._failed = False

    # --- called by the shell ------------------------------------------------------------------------------------------

    def handle(self, event: events.PsEvent, now_s: float) -> Sequence[Issued[commands.PsCommand] | SetTimer]:
        """Decide what follows from an event.

        Args:
            now_s: monotonic time in seconds.

        Returns:
            Commands in the order in which they have to be passed to their lanes; none after an error.

        Raises:
            ElasticDLError: this process has to end. FencedError: because another incarnation has taken over.
        """
        if self._failed:
            return ()
        if isinstance(event, TimerFired):
            now_s = max(now_s, event.due_s)  # Clocks round, so a timer can fire a little early.
        self._snapshots.now_s = now_s
        try:
            self._on_event(event)
            timers = self._continue(now_s)
        except BaseException:
            self._failed = True
            raise
        return [*self._procedures.drain(), *timers]

    def admit(self, command: Command) -> None:
        """Accept or refuse an order; the master repeats a refused one. Any thread may call.

        Raises:
            PermanentError: the order is not for this ps, or assumes a version of the placement that is not known yet.
            RefusedError: the command needs a model, and this ps has none yet.
        """
        check_known(command, self._core.placement.version)
        ps = self._settings.ps
        match command:
            case TakeSnapshot(ps=target) | HoldGroup(ps=target) | ClosePin(ps=target) if target == ps:
                pass
            case OpenPin(ps=target) if target == ps:
                self._core.check_serves()  # A ps that serves keeps serving, so the order will succeed.
            case _:
                raise PermanentError(f"{ps} can't execute {command}")

    def is_notable(self, step: int) -> bool:
        """Whether the shell has to report ``BatchAbsorbed``. Any thread may call; takes no lock."""
        every = self._settings.evaluation_steps
        return step >= self._snapshots.notify_step or (every > 0 and step % every == 0)

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator, between two events."""
        version = self._core.placement.version
        if 0 < self._core.frozen <= version:
            raise InvariantError(f"pushes wait for version {self._core.frozen} of the placement, and it is {version}")
        if self._core.shard is not None:
            for group in self._core.shard.held:
                if group.move <= version:
                    raise InvariantError(f"a group is held for move {group.move} at version {version}")
        if self._has_joined:  # Before that, the register may name what retention will delete.
            if self._registration.register is None:
                raise InvariantError("the ps takes part in the job without owning its name")
            self._snapshots.check()

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_event(self, event: events.PsEvent) -> None:
        match event:
            case events.ProcessStarted():
                self._start_sequence(self._start_up())
            case events.CommandSucceeded(number=number, result=result):
                self._procedures.done(number, result)
            case events.CommandFailed(number=number, error=error):
                self._procedures.failed(number, error)
            case events.OrderReceived(command=command, cause=cause):
                self._on_order(command, cause)
            case events.KeyChanged(name=name, entry=entry) if name == PLACEMENT:
                self._procedures.start(self._adopt(entry))
            case events.KeyChanged(name=name, entry=entry):
                if name == self._settings.ps:
                    self._procedures.start(self._registration.check_owner(entry))
            case events.BatchAbsorbed(step=step):
                self._snapshots.on_step(step)
                every = self._settings.evaluation_steps
                if every and step % every == 0:
                    self._procedures.start(self._publish(StepReached(step=step)))
            case TimerFired():
                self._timer_s = 0.0
            case events.ModelCreated():
                pass  # ``_continue`` takes the first snapshot.
            case _:
                assert_never(event)

    def _on_order(self, command: Command, cause: str) -> None:
        match command:
            case TakeSnapshot():
                self._core.tasks = command.tasks or self._core.tasks
                self._orders.append(SnapshotRequest.of(command, cause))
            case HoldGroup():
                self._procedures.start(self._find_copy(command, cause))
            case OpenPin(evaluation=evaluation):
                self._procedures.start(self._pin(evaluation, cause))
            case ClosePin(evaluation=evaluation):
                self._procedures.start(self._unpin(evaluation))
            case _:
                raise InvariantError(f"an order that was not admitted: {command}")

    # --- what comes next ----------------------------------------------------------------------------------------------

    def _continue(self, now_s: float) -> Sequence[SetTimer]:
        """Start the most urgent sequence, if none runs; returns the timer that makes the next one start."""
        while self._has_joined and not self._sequence_runs and now_s >= self._retry_at_s:
            following = self._next_sequence(now_s)
            if following is None:
                break
            self._start_sequence(following)
        if self._sequence_runs or not self._has_joined:
            return ()
        due_s = self._wake_up_s(now_s)
        if due_s == self._timer_s or not due_s:
            return ()
        self._timer_s = due_s
        return (SetTimer(name=_TIMER, due_s=due_s),)

    def _next_sequence(self, now_s: float) -> Procedure[None] | None:
        if self._has_garbage:
            return self._tidy()
        if self._is_due(now_s):
            return self._attend()
        return self._drop_rows() if self._has_rows_to_drop else None

    def _is_due(self, now_s: float) -> bool:
        snapshots = self._snapshots
        if snapshots.initialised and self._orders:
            return True
        if not self._core.has_model:
            return False
        return not snapshots.initialised or snapshots.has_unannounced or snapshots.is_due(now_s)

    def _wake_up_s(self, now_s: float) -> float:
        """When to check again without an event; 0: never."""
        if now_s < self._retry_at_s:
            return self._retry_at_s
        by_time = self._settings.policy.interval_s > 0 and self._core.has_model and self._snapshots.due_s > now_s
        return self._snapshots.due_s if by_time else 0.0

    def _start_sequence(self, procedure: Procedure[None]) -> None:
        def run() -> Procedure[None]:
            yield from procedure
            self._sequence_runs = False

        self._sequence_runs = True
        self._procedures.start(run())

    # --- procedures: the sequence -------------------------------------------------------------------------------------

    def _start_up(self) -> Procedure[None]:
        yield from Startup(self._core, self._settings, self._registration, self._snapshots).run()
        self._has_joined = True
        self._has_garbage = bool(self._snapshots.history)  # Otherwise it is not known which snapshots are needed.

    def _tidy(self) -> Procedure[None]:
        self._has_garbage = False
        yield from self._snapshots.delete_garbage()

    def _attend(self) -> Procedure[None]:
        """Execute the oldest order, or take the snapshot that the policy asks for."""
        snapshots, order = self._snapshots, self._orders[0] if self._orders and self._snapshots.initialised else None
        try:
            yield from snapshots.announce()
            if not snapshots.initialised:
                yield from snapshots.take_first()
            elif isinstance(order, HoldRequest):
                yield from self._moves.hold(order)
            elif order is not None:
                yield from self._execute(order)
            else:
                yield from snapshots.take(None)
            if order is not None:
                self._orders.popleft()
            yield from snapshots.announce()
            yield from snapshots.delete_obsolete()
        except (TransientError, NoSpaceError) as error:
            retry_s = self._settings.policy.retry_s
            self._retry_at_s = snapshots.now_s + retry_s
            facts = {"reason": str(error), "retry_s": retry_s}
            yield commands.Log(level="warning", message="snapshot postponed", facts=facts)
            if isinstance(error, NoSpaceError) and not self._lacks_space:
                # The job stops. Until its end, each try saves what this ps has absorbed if there is space by then.
                self._lacks_space = True
                yield from self._publish(StopRequested(reason=str(error)))
        self._has_rows_to_drop = True

    def _execute(self, request: SnapshotRequest) -> Procedure[None]:
        snapshots = self._snapshots
        answer = snapshots.answers.get(request.request)
        if not self._core.has_model:
            # The order was for a former incarnation, and the groups that it is about have moved away since.
            facts = {"request": request.request, "move": request.move}
            yield commands.Log(level="warning", message="there is nothing to take a snapshot of", facts=facts)
        elif answer is not None and answer.manifest != request.damaged:
            snapshots.answer(answer, request)
        elif request.copy:
            yield from self._moves.copy(request, request.copy)
        else:
            yield from snapshots.take(request)

    def _drop_rows(self) -> Procedure[None]:
        """Drop rows that belong to other ps now, some at a time, until something else is due."""
        while not self._is_due(self._snapshots.now_s):
            if not (yield commands.DropRows()):
                # Nothing is left, or a pin or cut is open. In that case, rows are dropped after the next snapshot.
                self._has_rows_to_drop = False
                return

    # --- procedures beside the sequence -------------------------------------------------------------------------------

    def _adopt(self, entry: KeyValueEntry) -> Procedure[None]:
        try:
            placement = decode_placement(entry.value)
        except UnreadableError as error:  # The earlier version stays valid; the master publishes later ones.
            facts = {"reason": str(error)}
            yield commands.Log(level="warning", message="the published placement can't be read: ignored", facts=facts)
            return
        if (yield commands.AdoptPlacement(placement=placement)):
            self._has_rows_to_drop = True
            yield commands.Log(
                level="info",
                message="placement changed",
                facts={"version": placement.version, "partitions": self._core.owned},
            )

    def _find_copy(self, command: HoldGroup, cause: str) -> Procedure[None]:
        """Queue the order to hold a group; a donor that is gone is read from the snapshot that it registered."""
        manifest = command.manifest
        if not manifest:
            entry = yield commands.ReadKey(name=command.donor)
            manifest = decode_register(entry.value).manifest if entry else ""
        request = HoldRequest(move=command.move, partitions=command.partitions, manifest=manifest, cause=cause)
        self._orders.append(request)

    def _pin(self, evaluation: int, cause: str) -> Procedure[None]:
        try:
            step = yield commands.PinModel(evaluation=evaluation)
        except RefusedError as error:
            facts = {"evaluation": evaluation, "reason": str(error)}
            yield commands.Log(level="warning", message="the model was not pinned", facts=facts)
            return
        if step is not None:
            yield commands.PublishEvent(event=ModelPinned(evaluation=evaluation, step=step), cause=cause)

    def _unpin(self, evaluation: int) -> Procedure[None]:
        yield commands.UnpinModel(evaluation=evaluation)
        self._has_rows_to_drop = self._has_rows_to_drop or self._core.has_undropped

    def _publish(self, event: StepReached | StopRequested) -> Procedure[None]:
        yield commands.PublishEvent(event=event)
