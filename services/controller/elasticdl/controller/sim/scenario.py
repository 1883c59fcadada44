"""Scenarios: the nodes, the jobs and the services of one experiment, read from a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from elasticdl.controller.core import ANYWHERE, Constraint, Curve, Group, Queue
from elasticdl.controller.core.resources import Resources, has_room, plus
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.words import did_you_mean

_SCENARIOS = resources.files("elasticdl.controller.sim") / "scenarios"
_SCALE = {"cpu": 1000}
"""Files have CPU in cores; the core counts millicores."""
_NUMBER_MAX = 1e15
_WHOLE_MAX = 100_000
"""Of nodes, pods and jobs: more would take hours to simulate."""


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
    queue: str = ""


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
    queues: tuple[Queue, ...] = ()
    node_labels: tuple[Mapping[str, str], ...] = ()
    """Of each node; without it, nodes have no labels."""


def shipped() -> list[str]:
    """Names of the scenarios in the package."""
    return sorted(each.name.removesuffix(".yaml") for each in _SCENARIOS.iterdir() if each.name.endswith(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Workloads that were published with Pollux, on the cluster of its simulator (``sim/pollux``)."""

    name: str
    about: str
    load: float
    workloads: tuple[int, ...]
    pause_s: int
    """How long a job does not train after its GPUs have changed."""


def load(name: str) -> Scenario:
    """Read a scenario of the package, or a file.

    Raises:
        UserError: there is none, or it is wrong; names the field.
    """
    if isinstance(scenario := read(name), Published):
        raise UserError(f"Scenario {name} has published workloads. Its jobs are not in its file.")
    return scenario


def read(name: str) -> Scenario | Published:
    """Read a scenario of either kind.

    Raises:
        UserError: as above.
    """
    import yaml

    if name in shipped():
        text, stem = (_SCENARIOS / f"{name}.yaml").read_text(), name
    elif Path(name).is_file():
        with file_errors(f"Scenario {name} can't be read"):
            text, stem = Path(name).read_bytes().decode(errors="replace"), Path(name).stem
    else:
        known = f"Give a file, or one of: {', '.join(shipped())}."
        raise UserError(f"There is no scenario {name}.", hint=did_you_mean(name, shipped(), known))
    try:
        data = _Fields.of(yaml.safe_load(text), "the scenario")
        if "published" in data.values:
            return _published(data, stem)
        scenario = _scenario(data, stem)
        _check_room(scenario)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split()).rstrip(".")
        raise UserError(f"Scenario {name} is wrong: {problem}", hint="docs/fleet.md describes scenarios.") from error
    return scenario


@dataclass(frozen=True, slots=True)
class _Fields:
    """A mapping of a scenario, whose fields are read with their type and limits.

    A ``ValueError`` names the field: ``job a, worker: max must be a whole number, 1 or more, not 'x'``.
    """

    values: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, values: Any, where: str) -> _Fields:
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise ValueError(f"{where} must be fields with names, not {values!r:.80}")
        return cls(values, where)

    def check(self, *known: str) -> None:
        if unknown := sorted(set(self.values) - set(known)):
            raise ValueError(
                f"{self.where} has unknown fields: {', '.join(unknown)}. It may have: {', '.join(sorted(known))}"
            )

    def needed(self, name: str) -> Any:
        if name not in self.values:
            raise ValueError(f"{self.where} has no {name}")
        return self.values[name]

    def fields(self, name: str) -> _Fields:
        return _Fields.of(self.needed(name), f"{self.where}, {name}")

    def list(self, name: str) -> list[Any]:
        """At least one item; none if there is no such field."""
        found = self.values.get(name, ())
        if name in self.values and not (isinstance(found, list) and found):
            raise ValueError(f"{self.where}: {name} must be a list with at least one item, not {found!r:.80}")
        return list(found)

    def text(self, name: str) -> str:
        found = self.needed(name)
        if not isinstance(found, str) or not found:
            raise ValueError(f"{self.where}: {name} must be a text, not {found!r:.80}")
        return found

    def number(self, name: str, default: float, *, positive: bool = False) -> float:
        return _number(self.values.get(name, default), f"{self.where}: {name}", positive=positive)

    def optional(self, name: str) -> float | None:
        """A positive number, or None without the field."""
        return None if self.values.get(name) is None else self.number(name, 0, positive=True)

    def whole(self, name: str, default: int, least: int | None = 0, most: int = _WHOLE_MAX) -> int:
        return _whole(self.values.get(name, default), f"{self.where}: {name}", least, most)

    def amounts(self, *others: str) -> Resources:
        """The amounts of resources, which all fields are but ``others``."""
        names = [name for name in self.values if name not in others]
        return {name: round(self.number(name, 0) * _SCALE.get(name, 1)) for name in names}


def _number(value: Any, what: str, *, positive: bool = False) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _NUMBER_MAX or (positive and not value):
        limit = f"above 0 and at most {_NUMBER_MAX:g}" if positive else f"from 0 to {_NUMBER_MAX:g}"
        raise ValueError(f"{what} must be a number {limit}, not {value!r:.80}")
    return float(value)


def _whole(value: Any, what: str, least: int | None = 0, most: int = _WHOLE_MAX) -> int:
    least = -most if least is None else least
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{what} must be a whole number from {least} to {most:,}, not {value!r:.80}")
    return value


def _pair(value: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{what} must be a pair [A, B], not {value!r:.80}")
    return value[0], value[1]


def _span(value: Any, what: str) -> tuple[float, float]:
    """A range of seconds."""
    start, end = (_number(each, what) for each in _pair(value, what))
    if start > end:
        raise ValueError(f"{what} must not begin after its end, as {value!r:.80} does")
    return start, end


def _published(data: _Fields, name: str) -> Published:
    data.check("about", "published", "pause")
    source = data.fields("published")
    source.check("load", "workloads")
    source.needed("load"), source.needed("workloads")
    return Published(
        name=name,
        about=str(data.values.get("about", "")).strip(),
        load=source.number("load", 1, positive=True),
        workloads=tuple(_whole(each, f"{source.where}: a workload", 1, 8) for each in source.list("workloads")),
        pause_s=data.whole("pause", 30),
    )


def _scenario(data: _Fields, name: str) -> Scenario:
    data.check("about", "seconds", "nodes", "system", "jobs", "services", "times", "windows", "queues")
    data.needed("nodes"), data.needed("jobs")
    jobs = tuple(job for each in data.list("jobs") for job in _jobs(_named(each, "job")))
    services = tuple(_service(_named(each, "service")) for each in data.list("services"))
    for what, names in (("jobs", [job.name for job in jobs]), ("services", [each.name for each in services])):
        if twice := [each for each in names if names.count(each) > 1]:
            raise ValueError(f"two {what} have the name {twice[0]}")
    windows = data.fields("windows").values if "windows" in data.values else {}
    queues = data.fields("queues").values if "queues" in data.values else {}
    if unknown := sorted({job.queue for job in jobs} - {"", *queues}):
        raise ValueError(f"there is no queue {unknown[0]}")
    nodes = [
        node for number, each in enumerate(data.list("nodes")) for node in _nodes(_Fields.of(each, f"nodes[{number}]"))
    ]
    return Scenario(
        name=name,
        about=str(data.values.get("about", "")).strip(),
        seconds=data.optional("seconds"),
        nodes=tuple(amounts for amounts, _ in nodes),
        node_labels=tuple(labels for _, labels in nodes),
        queues=tuple(_queue(key, _Fields.of(each, f"queue {key}")) for key, each in queues.items()),
        system=data.fields("system").amounts() if "system" in data.values else {},
        jobs=jobs,
        services=services,
        times=_times(data.fields("times")) if "times" in data.values else Times(),
        windows={key: _span(value, f"the window {key}") for key, value in windows.items()},
    )


def _named(value: Any, what: str) -> _Fields:
    """A job or a service, which errors name."""
    found = _Fields.of(value, f"a {what}")
    return _Fields(found.values, f"{what} {found.text('name')}")


def _times(data: _Fields) -> Times:
    known = [field.name for field in fields(Times)]
    data.check(*known)
    given = {name: data.number(name, 0) for name in known if name in data.values and name != "drain"}
    drain = {"drain": _span(data.values["drain"], f"{data.where}: drain")} if "drain" in data.values else {}
    return Times(**given, **drain)  # type: ignore[arg-type]


def _nodes(data: _Fields) -> list[tuple[Resources, Mapping[str, str]]]:
    """Amounts and labels of equal nodes."""
    amounts = data.amounts("count", "labels")
    if not amounts:
        raise ValueError(f"{data.where} has no resources, such as cpu")
    return [(amounts, _labels(data, "labels"))] * data.whole("count", 1, 1)


def _labels(data: _Fields, name: str) -> dict[str, str]:
    if name not in data.values:
        return {}
    return {key: str(value) for key, value in data.fields(name).values.items()}


def _queue(name: str, data: _Fields) -> Queue:
    data.check("quota", "limit")
    limit = data.fields("limit").amounts() if "limit" in data.values else None
    return Queue(name=name, quota=data.fields("quota").amounts(), limit=limit)


def _jobs(data: _Fields) -> list[JobSpec]:
    known = ("name", "count", "submit", "every", "master", "ps", "worker", "curve", "workers_per_ps", "work")
    data.check(*known, "priority", "weight", "queue")
    number, name = data.whole("count", 1, 1), data.text("name")
    curve = [_pair(each, f"{data.where}: a point of curve") for each in data.list("curve")]
    what = f"{data.where}: curve"
    try:
        measured = Curve(
            tuple((_whole(workers, what), _number(speed, what, positive=True)) for workers, speed in curve)
        )
    except ValueError as error:
        raise error if str(error).startswith(data.where) else ValueError(f"{what}: {error}") from error
    master = _group(data.fields("master"))
    if (master.min, master.max) != (1, 1):
        raise ValueError(f"{data.where}: a job has one master, not {master.min} to {master.max}")
    worker = _group(data.fields("worker"))
    if not worker.max:
        raise ValueError(f"{data.where}, worker: max must be 1 or more, not 0")
    return [
        JobSpec(
            name=f"{name}-{index:02}" if number > 1 else name,
            submit_s=data.number("submit", 0) + index * data.number("every", 0),
            master=master,
            ps=_group(data.fields("ps")),
            worker=worker,
            curve=measured,
            workers_per_ps=data.number("workers_per_ps", 7, positive=True),
            work=data.optional("work"),
            priority=data.whole("priority", 0, None),
            weight=data.number("weight", 1, positive=True),
            queue=data.text("queue") if "queue" in data.values else "",
        )
        for index in range(number)
    ]


def _group(data: _Fields) -> Group:
    least = data.whole("min", 1)
    most = data.whole("max", least)
    if least > most:
        raise ValueError(f"{data.where}: min is {least} and max is {most}")
    selector = tuple(sorted(_labels(data, "node_selector").items()))
    return Group(
        request=data.amounts("min", "max", "node_selector"),
        min=least,
        max=most,
        constraint=Constraint(selector=selector) if selector else ANYWHERE,
    )


def _service(data: _Fields) -> Service:
    data.check("name", "request", "priority", "replicas")
    data.needed("replicas")
    what = f"{data.where}: replicas"
    pairs = [_pair(each, what) for each in data.list("replicas")]
    replicas = tuple((_number(second, what), _whole(number, what)) for second, number in pairs)
    if list(replicas) != sorted(replicas, key=lambda each: each[0]):
        raise ValueError(f"{what} must be in the order of their seconds")
    return Service(
        name=data.text("name"),
        request=data.fields("request").amounts(),
        priority=data.whole("priority", 1000, None),
        replicas=replicas,
    )


def _check_room(scenario: Scenario) -> None:
    """Refuse pods for which there is no node, and jobs that would never end a scenario that lasts until they finish."""
    rooms = [plus(amounts, scenario.system, -1) for amounts in scenario.nodes]
    if any(left < 0 for room in rooms for left in room.values()):
        raise ValueError("system takes more than a node has")
    kinds = {tuple(sorted(room.items())): room for room in rooms}.values()
    requests = [(f"a pod of service {each.name}", each.request) for each in scenario.services]
    for job in scenario.jobs:
        groups = (("master", job.master), ("ps", job.ps), ("worker", job.worker))
        requests += [(f"the {role} of job {job.name}", group.request) for role, group in groups if group.max]
        if scenario.seconds is None and job.work is None:
            raise ValueError(f"job {job.name} never finishes: give it work, or give the scenario seconds")
    for what, request in requests:
        if not any(has_room(request, room) for room in kinds):
            asked = ", ".join(f"{name} {amount / _SCALE.get(name, 1):g}" for name, amount in request.items())
            raise ValueError(f"{what} fits on no node: it asks for {asked}")
    total: Resources = {}
    for room in rooms:
        total = plus(total, room)
    for job in scenario.jobs if scenario.seconds is None else ():
        least = plus(job.master.request, job.ps.request, job.ps.min)
        least = plus(least, job.worker.request, max(job.worker.min, 1))
        if not has_room(least, total):
            raise ValueError(f"job {job.name} never finishes: all nodes together have no room for its least pods")
