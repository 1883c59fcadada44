"""Requests and limits: ``cpu=1,memory=4096Mi,gpu=1`` and what Kubernetes wants of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.quantities import amount
from elasticdl.shared.names import Service
from elasticdl.shared.words import listed

_NAMES = {"cpu": "cpu", "memory": "memory", "disk": "ephemeral-storage", "ephemeral-storage": "ephemeral-storage"}
_GPU = "nvidia.com/gpu"
_EXTENDED = re.compile(r"[a-z0-9][-a-z0-9.]*/[A-Za-z0-9][-A-Za-z0-9._]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of a container; ``requests``: quantity by name, as Kubernetes names them."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]

    @property
    def gpus(self) -> int:
        """How many GPUs the container gets, of any vendor."""
        return sum(int(text) for name, text in self.limits.items() if name.endswith("/gpu"))

    @property
    def threads(self) -> int:
        """How many threads have a CPU each, at least one."""
        return max(1, math.ceil(amount(self.limits.get("cpu", "1"))))

    def manifest(self) -> dict[str, dict[str, str]]:
        """The field ``resources`` of a container."""
        return {"requests": dict(self.requests), "limits": dict(self.limits)}


def parse_resources(service: str, request: str, limit: str) -> Resources:
    """Read ``--SERVICE_resource_request`` and ``--SERVICE_resource_limit``; a missing limit is the request."""
    request_flag, limit_flag = f"--{service}_resource_request", f"--{service}_resource_limit"
    requests, own_limits = _parse(request_flag, request), _parse(limit_flag, limit)
    limits = {**requests, **own_limits}
    for name, text in requests.items():
        if amount(text) > amount(limits[name]):
            raise UserError(
                f"{request_flag} asks for more {name} ({text}) than {limit_flag} ({limits[name]})", usage=True
            )
        if "/" in name and amount(text) != amount(limits[name]):
            raise UserError(f"{request_flag} and {limit_flag} must give the same number of {name}", usage=True)
    # Kubernetes does not share devices between containers: the request is the limit.
    requests |= {name: text for name, text in limits.items() if "/" in name}
    resources = Resources(requests=requests, limits=limits)
    _check_gpus(service, resources.gpus)
    return resources


def _check_gpus(service: str, gpus: int) -> None:
    if gpus and service != Service.WORKER:
        raise UserError(f"--{service}_resource_request asks for a GPU, but only workers compute on GPUs", usage=True)
    if gpus > 1:
        raise UserError(
            f"--worker_resource_request asks for {gpus} GPUs, but a worker computes on one",
            hint=f"Ask for gpu=1 and {gpus} times as many workers (--num_workers).",
            usage=True,
        )


def _parse(flag: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in listed(text):
        short, equals, quantity = (part.strip() for part in item.partition("="))
        name = _GPU if short == "gpu" else _NAMES.get(short, short if _EXTENDED.fullmatch(short) else "")
        if not equals or not name:
            raise UserError(
                f"{flag}: {item!r} is not a resource",
                hint="Use cpu, memory, disk, gpu or VENDOR/gpu, such as cpu=1,memory=4096Mi,gpu=1.",
                usage=True,
            )
        if name in found:
            raise UserError(f"{flag} names {short} twice", usage=True)
        try:
            (int if "/" in name else amount)(quantity)
        except ValueError as error:
            wanted = "a whole number" if "/" in name else "a quantity such as 500m, 2 or 4Gi"
            raise UserError(f"{flag}: {short}={quantity} is not {wanted}", usage=True) from error
        found[name] = quantity
    return found
