"""Settings of each service: one frozen dataclass per service, read from ``ELASTICDL_*`` environment variables.

The launcher writes a process's settings into its environment with ``to_environment``; the process reads them with
``from_environment``. Settings of the whole job are in the JobSpec on the event log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.errors import UserError
from elasticdl.shared.failure_detection.heartbeats import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S
from elasticdl.shared.job.spec import LEASE_S
from elasticdl.shared.names import NO_INSTANCE, NOBODY, Incarnation, JobId, PodInstance, PodName

PREFIX = "ELASTICDL_"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_SECRET = MappingProxyType({"secret": True})
_NOT_NEGATIVE = MappingProxyType({"minimum": 0})
_POSITIVE = MappingProxyType({"minimum": 1})

S = TypeVar("S", bound="ProcessSettings")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings of every process of a job."""

    nats_url: str = field(repr=False, metadata=_SECRET)
    """URL of the NATS server, ``nats://[token@]host:port``; required. May contain a secret."""
    job: JobId
    """Id of the job; required."""
    pod: PodName
    """Name of this process in the job, kept across restarts; required."""
    token: str = field(default="", repr=False, metadata=_SECRET)
    """Secret that workers show the ps; a ps does not start without it. Never printed."""
    run: Incarnation = NOBODY
    """Incarnation of the launcher that opened this run of the job; events of earlier runs are ignored."""
    instance: PodInstance = NO_INSTANCE
    """Id of this process under its name, as its platform names it; empty: process id and start time."""
    run_dir: str = ""
    """Folder for this job's files on this machine; empty: none, as on Kubernetes, where pods have no disk."""
    log_level: str = "INFO"
    """Lowest level that is logged: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``."""
    lease_s: float = field(default=LEASE_S, metadata=_NOT_NEGATIVE)
    """Seconds after which a worker loses a task whose lease it does not renew; the same in all processes of a job."""
    clock_zero_s: float = 0.0
    """See ``SystemClock``: the launcher gives its own to all processes of its machine. 0: each reads the wall clock."""
    heartbeat_interval_s: float = field(default=HEARTBEAT_INTERVAL_S, metadata=_NOT_NEGATIVE)
    """Seconds between heartbeats."""
    metrics_port: int = field(default=0, metadata=_NOT_NEGATIVE)
    """Port of ``/metrics`` for Prometheus, or the first free one after it: on one machine each process takes its own.
    0: none."""
    broker_connect_s: float = field(default=15.0, metadata=_NOT_NEGATIVE)
    """Seconds to try the first connection to NATS; after that this process exits and is restarted."""
    nats_replicas: int = field(default=1, metadata=_POSITIVE)
    """Copies of each stream that is created, in a cluster of NATS servers: 3 survives the loss of a server's disk."""
    broker_retry_s: float = field(default=300.0, metadata=_NOT_NEGATIVE)
    """Seconds to retry while NATS is unreachable; long enough to restart the server by hand."""

    def __post_init__(self) -> None:
        if self.log_level not in LOG_LEVELS:
            raise UserError(
                f"{PREFIX}LOG_LEVEL={self.log_level!r} is not a log level",
                hint=f"Use one of {', '.join(LOG_LEVELS)}.",
                usage=True,
            )
        for each in dataclasses.fields(self):
            minimum = each.metadata.get("minimum")
            if minimum is not None and getattr(self, each.name) < minimum:
                raise UserError(f"{variable(each.name)}={getattr(self, each.name)} is below {minimum}", usage=True)

    @property
    def bus(self) -> BusSettings:
        """The settings of the bus."""
        return BusSettings(
            lease_s=self.lease_s,
            connect_s=self.broker_connect_s,
            absence_is_final=False,
            retry_s=self.broker_retry_s,
            replicas=self.nats_replicas,
            dedupe_window_s=max(600.0, 2 * self.broker_retry_s),
            run_directory=self.run_dir,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings(ProcessSettings):
    """Settings of the master."""

    heartbeat_timeout_s: float = field(default=HEARTBEAT_TIMEOUT_S, metadata=_NOT_NEGATIVE)
    """Seconds without a heartbeat after which a process is restarted."""
    return_deliveries: bool = True
    """Whether the tasks of a worker that has ended return to the queue at once. Otherwise they return when their leases
    expire after ``lease_s``, as they do while no master is running; for tests of that."""
    pod_templates: str = ""
    """File with the templates of the pods that this master creates on Kubernetes; empty: the launcher starts them."""
    core_snapshot_records: int = field(default=5000, metadata=_NOT_NEGATIVE)
    """Log records between two snapshots of the master's state, so the most that a successor has to read. 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(ProcessSettings):
    """Settings of a worker."""

    compute_threads: int = field(default=0, metadata=_NOT_NEGATIVE)
    """TensorFlow's threads within an operation; 0: TensorFlow's default. The launcher divides a host's cores."""
    gpus: int = field(default=0, metadata=_NOT_NEGATIVE)
    """GPUs that the pod was given. With one, the worker refuses to start if TensorFlow finds none."""
    idle_poll_s: float = field(default=1.0, metadata=_NOT_NEGATIVE)
    """Seconds between polls of the queue by an idle worker; bounds the wait for a task whose lease has expired."""
    master_wait_s: float = field(default=0.0, metadata=_NOT_NEGATIVE)
    """Seconds that a pod which was created before its master waits for it. 0: the master has created it."""
    staleness: int = field(default=0, metadata=_NOT_NEGATIVE)
    """How many of its own batches a worker's weights may lack: 0 or 1. 1 hides the network behind computation, at the
    cost of gradients that are one batch old."""
    host: str = "127.0.0.1"
    """A ring: address to listen on; by default loopback, which the network can't reach."""
    advertised_host: str = ""
    """A ring: host name for other workers to connect to; empty: ``host``."""
    node: str = ""
    """A ring: the machine that this worker runs on; empty: the machine of all workers that say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PsSettings(ProcessSettings):
    """Settings of a parameter server."""

    host: str = "127.0.0.1"
    """Address to listen on; by default loopback, which the network can't reach."""
    advertised_host: str = ""
    """Host name for workers to connect to; empty: ``host``."""
    port: int = field(default=0, metadata=_NOT_NEGATIVE)
    """Port to listen on; 0: a free one."""
    master_wait_s: float = field(default=0.0, metadata=_NOT_NEGATIVE)
    """Seconds that a pod which was created before its master waits for it. 0: the master has created it."""
    memory_bytes_max: int = field(default=0, metadata=_NOT_NEGATIVE)
    """Memory for weights and optimizer slots, bytes; above it new rows are refused. 0: no limit."""


def variable(name: str) -> str:
    """``nats_url`` -> ``ELASTICDL_NATS_URL``."""
    return PREFIX + name.upper()


def from_environment(cls: type[S], environment: Mapping[str, str]) -> S:
    """Read a service's settings; ``environment``: usually ``os.environ``; empty variables count as unset."""
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for each in dataclasses.fields(cls):
        name = variable(each.name)
        text = environment.get(name, "")
        if text:
            shown = "..." if each.metadata.get("secret") else text
            values[each.name] = _parse(hints[each.name], name, text, shown)
        elif each.default is dataclasses.MISSING:
            raise UserError(f"{name} is not set", hint="Services are started by `elasticdl train`, which sets it.")
    return cls(**values)


def to_environment(settings: ProcessSettings) -> dict[str, str]:
    """The environment variables for these settings; contains secrets."""
    values = {each.name: getattr(settings, each.name) for each in dataclasses.fields(settings)}
    return {variable(name): str(value) for name, value in values.items() if value != ""}


def describe(settings: ProcessSettings) -> dict[str, Any]:
    """The settings for the log, secrets replaced."""

    def shown(each: dataclasses.Field[Any]) -> Any:
        value = getattr(settings, each.name)
        return "***" if each.metadata.get("secret") and value else value

    return {each.name: shown(each) for each in dataclasses.fields(settings)}


def _parse(hint: Any, name: str, text: str, shown: str) -> Any:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    try:
        if hint is bool:
            return _TRUTH[text.lower()]
        return hint(text)
    except (ValueError, KeyError) as error:
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(hint, hint.__name__)
        raise UserError(f"{name}={shown!r} is not {wanted}", usage=True) from error
