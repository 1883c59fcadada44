"""Passes each command to its handler; results and errors become events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from elasticdl.shared.errors import ElasticDLError, InvariantError
from elasticdl.shared.process.procedures import Issued
from elasticdl.worker.core import commands
from elasticdl.worker.core.commands import Command
from elasticdl.worker.core.events import CommandDone, CommandFailed, Event, ExecutionFailed
from elasticdl.worker.execution.compute_lane import ComputeLane
from elasticdl.worker.execution.input_lane import BatchLoader
from elasticdl.worker.execution.ps_lane import PsLane

Handlers = Mapping[type, Callable[[Any], Any]]
Coroutines = Mapping[type, Callable[[Any], Awaitable[Any]]]


def lane_handlers(loader: BatchLoader, compute: ComputeLane, ps: PsLane) -> Handlers:
    """The commands of the lanes that need the model; ``InitialiseModel`` is the caller's."""
    return {
        commands.ReadBatch: loader.read,
        commands.ComputeBatch: compute.train,
        commands.EvaluateBatch: compute.evaluate,
        commands.CollectMetrics: lambda _: compute.collect(),
        commands.DiscardMetrics: lambda _: compute.discard(),
        commands.SumStates: compute.sum,
        commands.MergeStates: compute.merge,
        commands.ComputeEpochMetrics: compute.merge_epoch,
        commands.RunCallbacks: compute.run_callbacks,
        commands.ExportModel: compute.export,
        commands.SaveModel: compute.save,
        commands.AskProgress: ps.ask_progress,
        commands.ReadEpochMetrics: ps.read_metrics,
        commands.PullBatch: ps.pull,
        commands.PushBatch: ps.push,
        commands.ReleaseBatch: ps.release,
    }


class Executor:
    """Executes commands; threads of all lanes call it.

    Args:
        handlers: command -> function; what is added later (``add``) needs the model.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = dict(handlers)

    def add(self, handlers: Handlers) -> None:
        """Handle more kinds of commands from now on."""
        self._handlers.update(handlers)

    def execute(self, command: Command) -> Event | None:
        """Execute a command in its lane's thread. Returns the event with the outcome; None for commands without one."""
        inner = _unwrapped(command)
        try:
            return _done(command, self._handlers[type(inner)](inner))
        except InvariantError:
            raise
        except ElasticDLError as error:
            return _failed(command, error)


class LoopExecutor:
    """Executes commands on the bus' loop; see ``Executor``. ``handlers``: command -> coroutine function."""

    def __init__(self, handlers: Coroutines) -> None:
        self._handlers = handlers

    async def execute(self, command: Command) -> Event | None:
        """Execute a command; see ``Executor.execute``."""
        inner = _unwrapped(command)
        try:
            return _done(command, await self._handlers[type(inner)](inner))
        except InvariantError:
            raise
        except ElasticDLError as error:
            return _failed(command, error)


def _unwrapped(command: Command) -> Any:
    return command.command if isinstance(command, Issued) else command


def _done(command: Command, result: Any) -> Event | None:
    if isinstance(command, Issued):
        return CommandDone(number=command.number, result=result)
    event: Event | None = result
    return event


def _failed(command: Command, error: ElasticDLError) -> Event:
    if isinstance(command, Issued):
        return CommandFailed(number=command.number, error=error)
    return ExecutionFailed(error=error)
