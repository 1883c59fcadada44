"""ElasticDL's core with what Pollux knows of the jobs: fitted times of steps and the noise of gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticdl.controller.core import Curve, Group, Job
from elasticdl.controller.sim.pollux.applications import Placement
from elasticdl.controller.sim.pollux.gangs import Gang
from elasticdl.controller.sim.pollux.jobs import SimJob, split
from elasticdl.controller.sim.pollux.model import Model
from elasticdl.controller.sim.pollux.rescaling import PausePolicy, Rescalable, rescale

POLICY = PausePolicy()
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64)
"""Numbers of GPUs that are compared: parts of a node, then whole nodes."""
START_GPUS = 4
"""Most GPUs of a job of which nothing is known yet."""
GROWTH = 4
"""A job gets at most this many times the GPUs with which it was measured."""
_NODE_GPUS = 4
_FIXED_BATCHES = {"ncf": 32768}
"""Pollux' simulator runs this application with one batch size, on one GPU."""
_MASTER = Group(request={})
_NO_PS = Group(request={}, min=0, max=0)


class Ours:
    """Chooses GPUs by goodput, and for each job the batch size with the most goodput.

    Args:
        node_gpus: GPUs of each node.
        pause_s: how long a job does not train after its GPUs have changed.
        policy: what a number of workers is worth.
    """

    def __init__(self, node_gpus: Sequence[int], pause_s: int, policy: PausePolicy = POLICY) -> None:
        self._node_gpus, self._pause_s, self._policy = node_gpus, pause_s, policy
        self._models: dict[str, Model] = {}

    def batches(self, job: SimJob, placement: Placement) -> tuple[int, int]:
        """(batch on each GPU, steps that only add up gradients)."""
        model, application, gpus = self._model(job), job.application, sum(placement)
        if model.known:
            return model.best([(len(placement), gpus)])[0][1:]
        least = max(application.batch_min, application.local_min * gpus)
        return split(application, _FIXED_BATCHES.get(application.name, least), gpus)

    def decide(self, now_s: int, jobs: Mapping[str, SimJob], held: Mapping[str, Gang]) -> dict[str, Gang]:
        """The GPUs of each job from now on."""
        wanted = [self._rescalable(job, held.get(name, ())) for name, job in jobs.items()]
        return rescale(wanted, self._node_gpus, now_s, self._policy)

    def _model(self, job: SimJob) -> Model:
        """With what was measured until now."""
        if (model := self._models.get(job.spec.name)) is None:
            fixed = _FIXED_BATCHES.get(job.application.name)
            model = self._models[job.spec.name] = Model(job.application, fixed)
        model.learn(job)
        return model

    def _rescalable(self, job: SimJob, gang: Gang) -> Rescalable:
        sizes = _sizes(job, len(gang))
        nodes = [len(set(gang)) if size == len(gang) else -(-size // _NODE_GPUS) for size in sizes]
        model, speeds = self._model(job), list(map(float, sizes))
        if model.known:
            speeds = [goodput for goodput, _, _ in model.best(list(zip(nodes, sizes, strict=True)))]
        worker = Group(request={"nvidia.com/gpu": 1}, min=0, max=sizes[-1])
        spec = Job(
            name=job.spec.name,
            master=_MASTER,
            ps=_NO_PS,
            worker=worker,
            created_s=job.spec.submit_s,
            curve=Curve(tuple(zip(sizes, speeds, strict=True))),
            pause_s=self._pause_s,
        )
        return Rescalable(job=spec, gang=gang, restarts=max(job.restarts, 0), service_s=job.gpu_s)


def _sizes(job: SimJob, held: int) -> list[int]:
    """Numbers of GPUs that a job may have."""
    application = job.application
    measured = max((gpus for _, gpus, _ in job.measured), default=0)
    most = min(SIZES[-1], application.batch_max // application.local_min, max(START_GPUS, GROWTH * measured))
    if application.name in _FIXED_BATCHES:
        most = 1
    return sorted({size for size in SIZES if size <= most} | ({held} if held else set()))
