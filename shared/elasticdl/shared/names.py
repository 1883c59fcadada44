"""Ids and names, each a type of its own so that they can't be mixed up."""

from __future__ import annotations

import re
import secrets
from enum import StrEnum
from functools import lru_cache
from typing import NewType

from elasticdl.shared.errors import UserError

JobId = NewType("JobId", str)
"""Job name plus a random suffix; part of every subject and of the run directory's name."""
PodName = NewType("PodName", str)
"""Name of one process of a job, e.g. ``worker-0``; kept across restarts."""
Incarnation = NewType("Incarnation", str)
"""Random id that a process gives itself when it starts; never reused. A run is named by that of its launcher."""
PodInstance = NewType("PodInstance", str)
"""Opaque id of one process under a pod's name, as its platform names it; see ``pod_instances``."""
NO_INSTANCE = PodInstance("")
"""No process, or one that was not reported yet."""
NO_POD = PodName("")
MASTER = PodName("master")
LAUNCHER = PodName("launcher")
"""A job has one master and one launcher, so their names have no number."""
SERVED_REPLICA = PodName("ps-0")
"""The name under which the leader of a ring serves its replica to the rest of the job."""
NOBODY = Incarnation("")
TaskId = NewType("TaskId", int)
"""Train: epoch x tasks per epoch + position. Other purposes have id spaces of their own."""
GroupId = NewType("GroupId", str)
"""Name of a group: the unit of model state that owns a ledger."""

JOB_NAME_CHARS_MAX = 50
_JOB_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Service(StrEnum):
    """The kind of a process."""

    MASTER = "master"
    WORKER = "worker"
    PS = "ps"
    LAUNCHER = "launcher"
    CLIENT = "client"
    CONTROLLER = "controller"


class Purpose(StrEnum):
    """The purpose of a task."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    MERGE = "merge"
    """Computes metrics from the summed metric states of an evaluation or an epoch."""
    EXPORT = "export"
    PREDICT = "predict"


def new_incarnation() -> Incarnation:
    """A new random incarnation id (48 bits)."""
    return Incarnation(secrets.token_hex(6))


def new_job_id(name: str) -> JobId:
    """Append a random suffix to a job name."""
    check_job_name(name)
    return JobId(f"{name}-{secrets.token_hex(3)}")


def check_job_name(name: str) -> None:
    """Check that Kubernetes and NATS accept a job name.

    Raises:
        UserError: the name is empty, too long or has other characters than ``a-z``, ``0-9`` and ``-``.
    """
    if len(name) > JOB_NAME_CHARS_MAX or not _JOB_NAME.fullmatch(name):
        raise UserError(
            f"--job_name={name!r} is not a valid job name",
            hint=f"Use at most {JOB_NAME_CHARS_MAX} characters of a-z, 0-9 and '-', beginning with a letter or digit.",
            usage=True,
        )


def job_name(text: str, *, otherwise: str = "job", suffix: str = "") -> str:
    """The name of a job whose user gives none.

    Args:
        text: the name of its model, or of a file; other characters than those of job names become ``-``.
        otherwise: the name if nothing of the text is left.
        suffix: its end, of characters of job names.
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[: JOB_NAME_CHARS_MAX - len(suffix)].strip("-")
    return (name or otherwise) + suffix


@lru_cache(maxsize=4096)
def pod_name(service: Service, number: int) -> PodName:
    """``worker-0``, ``ps-1``; see ``MASTER`` and ``LAUNCHER`` for those without a number."""
    return PodName(f"{service.value}-{number}")


@lru_cache(maxsize=64)
def pod_names(service: Service, count: int) -> tuple[PodName, ...]:
    """The names of the pods 0 to ``count - 1`` of a service."""
    return tuple(pod_name(service, number) for number in range(count))


def pod_number(pod: PodName) -> int:
    """Inverse of ``pod_name``: of a ps, its number in the placement. Raises ``ValueError``: the name has no number."""
    return int(pod.rpartition("-")[2])
