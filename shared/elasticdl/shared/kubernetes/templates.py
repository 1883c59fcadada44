"""The file ``pods.json``: from which templates the master creates the pods of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.names import Service

MEMORY_RAISES_MAX = 3
"""By default a pod gets at most 1.5 ** 3 = 3.4 times the memory of its template."""
IMAGE_PULL_S = 300
"""By default a job ends if the image of a pod can't be pulled for this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPriority:
    """The priority classes of workers.

    Attributes:
        high: the class of the first workers.
        high_share: share of the job's workers that are in the first class, 0 to 1.
    """

    high: str
    low: str
    high_share: float

    def __post_init__(self) -> None:
        if not 0 <= self.high_share <= 1:
            raise ValueError(f"high_share={self.high_share} is not in [0, 1]")

    def class_of(self, number: int, workers: int) -> str:
        """The priority class of a worker.

        Args:
            number: the worker's number, from 0.
            workers: how many workers the job was submitted with; later ones are in the class ``low``.
        """
        return self.high if number < ceil(workers * self.high_share) else self.low


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplates:
    """What ``pods.json`` contains.

    A template is a complete ``PodTemplateSpec`` with image, command, resources, volumes, security context and the
    environment that is the same in all pods: ``ELASTICDL_NATS_URL``, ``ELASTICDL_TOKEN``, and what the user wants. Its
    main container is named after the service. The master adds name, labels, owner and priority class, and sets
    ``restartPolicy: Never`` and the variables ``ELASTICDL_JOB``, ``_POD``, ``_RUN``, ``_INSTANCE``, ``_HOST`` and
    ``_ADVERTISED_HOST``.

    Attributes:
        worker_priority: priority classes of the workers; None: that of the template.
        spare_priority: priority class of workers that are created as spares; empty: that of other workers.
        memory_raises_max: how often all pods of a service get 1.5 times the memory after one of them ran out of it.
        image_pull_s: seconds after which the job ends if a pod has a node and its containers can't be created.
    """

    worker: Manifest
    ps: Manifest
    workers: int = 0
    worker_priority: WorkerPriority | None = None
    memory_raises_max: int = MEMORY_RAISES_MAX
    image_pull_s: float = IMAGE_PULL_S
    spare_priority: str = ""

    def __post_init__(self) -> None:
        for service, template in ((Service.WORKER, self.worker), (Service.PS, self.ps)):
            containers = template.get("spec", {}).get("containers", ())
            if service.value not in [container.get("name") for container in containers]:
                raise ValueError(f"the pod template of {service.value} has no container named {service.value!r}")

    def template(self, service: Service) -> Manifest:
        """The template of a service's pods."""
        return self.worker if service is Service.WORKER else self.ps

    def to_json(self) -> str:
        """The content of the file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> PodTemplates:
        """Inverse of ``to_json``."""
        try:
            content: Mapping[str, Any] = json.loads(text)
            priority = content.get("worker_priority")
            return cls(**{**content, "worker_priority": WorkerPriority(**priority) if priority else None})
        except (TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"pods.json is not usable: {error}", hint="Create the job again with: elasticdl train."
            ) from error
