"""Passes each command to the executor of its lane; errors become events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def lane_handlers(loader: BatchLoader, compute: ComputeLane, ps: PsLane) -> Handlers:
    """The commands of the lanes that need the model; ``InitialiseModel`` is the caller's."""
    return {
        commands.ReadBatch: loader.read,
        commands.ComputeBatch: compute.train,
        commands.EvaluateBatch: compute.evaluate,
        commands.CollectMetrics: lambda command: compute.collect(command.task),
        commands.DiscardMetrics: lambda command: compute.discard(command.task),
        commands.MergeStates: compute.merge,
        commands.ExportModel: compute.export,
        commands.SaveModel: compute.save,
        commands.AskProgress: ps.ask_progress,
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
        """Execute a command in its lane's thread.

        Returns:
            The event with the outcome; None for commands without one.

        Raises:
            InvariantError: a defect.
        """
        try:
            if isinstance(command, Issued):
                result = self._handlers[type(command.command)](command.command)
                return CommandDone(number=command.number, result=result)
            event: Event | None = self._handlers[type(command)](command)
        except InvariantError:
            raise
        except ElasticDLError as error:
            if isinstance(command, Issued):
                return CommandFailed(number=command.number, error=error)
            return ExecutionFailed(error=error)
        return event
