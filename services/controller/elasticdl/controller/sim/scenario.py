"""Scenarios: the nodes, the jobs and the services of one experiment, read from a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from elasticdl.controller.core import Curve, Group
from elasticdl.controller.core.resources import Resources
from elasticdl.shared.errors import UserError

_SCENARIOS = resources.files("elasticdl.controller.sim") / "scenarios"
_SCALE = {"cpu": 1000}
"""Files have CPU in cores; the core counts millicores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job that is submitted at a time."""

    name: str
    submit_s: float
    master: Group
    ps: Group
    worker: Group
    curve: Curve
    workers_per_ps: float
    """Workers that keep one ps busy all the time."""
    work: float | None
    """Seconds of one worker. None: the job trains until the experiment ends."""
    priority: int
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Pods that the plain scheduler places, for example of a web service."""

    name: str
    request: Resources
    priority: int
    replicas: tuple[tuple[float, int], ...]
    """(second, number of pods from then on)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long things take, in seconds."""

    start: float = 4.0
    """A process of a job, from its node to its first work."""
    service_start: float = 3.0
    drain: tuple[float, float] = (1.0, 5.0)
    """Least and most; drains are spread evenly between them."""
    move_pause: float = 0.5
    """Training pauses when a ps hands over its last groups."""
    reaction: float = 0.5
    """From a change to the decision about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One experiment."""

    name: str
    about: str
    seconds: float | None
    """None: until all jobs have finished."""
    nodes: tuple[Resources, ...]
    system: Resources
    """What pods of the system take on each node."""
    jobs: tuple[JobSpec, ...]
    services: tuple[Service, ...] = ()
    times: Times = field(default_factory=Times)
    windows: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Name -> from and to second: measured apart."""


def shipped() -> list[str]:
    """Names of the scenarios in the package."""
    return sorted(each.name.removesuffix(".yaml") for each in _SCENARIOS.iterdir() if each.name.endswith(".yaml"))


def load(name: str) -> Scenario:
    """Read a scenario of the package, or a file.

    Raises:
        UserError: there is none, or it is wrong.
    """
    import yaml

    if name in shipped():
        text = (_SCENARIOS / f"{name}.yaml").read_text()
    elif Path(name).is_file():
        text = Path(name).read_text()
    else:
        raise UserError(f"There is no scenario {name}. Give a file, or one of: {', '.join(shipped())}.")
    try:
        return _scenario(yaml.safe_load(text), Path(name).stem)
    except (yaml.YAMLError, TypeError, KeyError, ValueError, AttributeError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"Scenario {name} is wrong: {what}. docs/fleet.md describes scenarios.") from error


def _scenario(data: Any, name: str) -> Scenario:
    _check(data, {"about", "seconds", "nodes", "system", "jobs", "services", "times", "windows"}, "the scenario")
    times = dict(data.get("times", {}))
    if "drain" in times:
        times["drain"] = tuple(times["drain"])
    return Scenario(
        name=name,
        about=str(data.get("about", "")).strip(),
        seconds=data.get("seconds"),
        nodes=tuple(amounts for each in data["nodes"] for amounts in _nodes(each)),
        system=_amounts(data.get("system", {})),
        jobs=tuple(job for each in data["jobs"] for job in _jobs(each)),
        services=tuple(_service(each) for each in data.get("services", [])),
        times=Times(**times),
        windows={key: (float(start), float(end)) for key, (start, end) in data.get("windows", {}).items()},
    )


def _check(data: Mapping[str, Any], known: set[str], what: str) -> None:
    if unknown := set(data) - known:
        raise ValueError(f"{what} has unknown fields: {', '.join(sorted(unknown))}")


def _amounts(data: Mapping[str, Any]) -> Resources:
    return {name: round(float(amount) * _SCALE.get(name, 1)) for name, amount in data.items()}


def _nodes(data: Mapping[str, Any]) -> list[Resources]:
    return [_amounts({name: amount for name, amount in data.items() if name != "count"})] * data.get("count", 1)


def _jobs(data: Mapping[str, Any]) -> list[JobSpec]:
    known = {"name", "count", "submit", "every", "master", "ps", "worker", "curve", "workers_per_ps", "work"}
    _check(data, known | {"priority", "weight"}, f"job {data['name']}")
    number = data.get("count", 1)
    return [
        JobSpec(
            name=f"{data['name']}-{index:02}" if number > 1 else data["name"],
            submit_s=data.get("submit", 0) + index * data.get("every", 0),
            master=_group(data["master"]),
            ps=_group(data["ps"]),
            worker=_group(data["worker"]),
            curve=Curve(tuple((int(workers), float(speed)) for workers, speed in data.get("curve", []))),
            workers_per_ps=float(data.get("workers_per_ps", 7)),
            work=data.get("work"),
            priority=data.get("priority", 0),
            weight=data.get("weight", 1.0),
        )
        for index in range(number)
    ]


def _group(data: Mapping[str, Any]) -> Group:
    amounts = _amounts({name: amount for name, amount in data.items() if name not in ("min", "max")})
    least = data.get("min", 1)
    return Group(request=amounts, min=least, max=data.get("max", least))


def _service(data: Mapping[str, Any]) -> Service:
    _check(data, {"name", "request", "priority", "replicas"}, f"service {data['name']}")
    return Service(
        name=data["name"],
        request=_amounts(data["request"]),
        priority=data.get("priority", 1000),
        replicas=tuple((float(second), int(number)) for second, number in data["replicas"]),
    )
