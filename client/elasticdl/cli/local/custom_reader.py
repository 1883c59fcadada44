"""Plans data that the model file reads itself (``custom_data_reader``).

Only processes of workers run user code, so one of them reads the data, and the launcher takes over what it has found.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from elasticdl.cli.local.model_check import CheckRuntime, plan_with_reader
from elasticdl.cli.local.processes.fork_server import ForkServers
from elasticdl.cli.local.processes.imports import import_environment
from elasticdl.cli.local.processes.logs import NewLines
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.cli.submission.flag_items import parse_envs, reader_options
from elasticdl.shared.data import PlannedData
from elasticdl.shared.data.custom.exchange import PlanningRequest, read_planned
from elasticdl.shared.job import model_file
from elasticdl.shared.job.kind_options import TrainedModelFlags, TrainFlags
from elasticdl.shared.job.spec import ModelSpec, ReaderSpec
from elasticdl.shared.names import PodName, Service

Flags = TrainFlags | TrainedModelFlags


def plan_custom_data(
    flags: Flags,
    model: ModelSpec,
    origins: tuple[str, ...],
    show: Callable[[str], None],
    forks: ForkServers | None,
) -> list[PlannedData]:
    """Have a process read data sets with a reader of the model file.

    Args:
        flags: the values of the flags. ``custom_data_reader`` is the result of ``reader_function``.
        forks: their server of the workers starts the process, once it is ready; None: it is started without one.

    Raises:
        UserError: the reader, a record or a value is wrong, or the reader raised; says what to do.
        UnfinishedError: the process crashed.
    """
    minibatch = flags.records_per_minibatch if isinstance(flags, TrainFlags) else flags.minibatch_size
    params = model_file.parse_params(flags.data_reader_params, "data_reader_params")
    seed = (flags.seed if isinstance(flags, TrainFlags) else 0) or 0
    request = PlanningRequest(
        model=model.path,
        symbol=model.symbol,
        functions=model.functions,
        readers=tuple(
            ReaderSpec(
                function=flags.custom_data_reader,
                origin=origin,
                params=params,
                records_per_task=minibatch * flags.num_minibatches_per_task,
            )
            for origin in origins
        ),
        options=reader_options(flags),
        stride=minibatch,
        seed=seed,
    )
    with tempfile.TemporaryDirectory(prefix="elasticdl-data-") as name:
        folder = Path(name)
        request.write(folder)
        runtime = CheckRuntime(
            starter=forks or Spawner(),
            environment=_environment(flags, seed, name),
            logs=folder,
            show=show,
            logs_stay=False,
        )
        if forks:
            forks.begin(None, [Service.WORKER])
            forks.servers[Service.WORKER].wait()
        printed = NewLines(folder)
        try:
            plan_with_reader(folder, runtime)
        finally:
            for _, line in printed.take():
                show(line)
        return [read_planned(folder, number) for number in range(len(origins))]


def _environment(flags: Flags, seed: int, temporary: str) -> Callable[[str, PodName, Service], Mapping[str, str]]:
    processes = flags.processes
    imports = import_environment(os.environ, processes=processes, seed=seed)
    environment = {**imports, "TMPDIR": temporary, **parse_envs(flags.envs)}
    return lambda _url, _pod, _service: environment
