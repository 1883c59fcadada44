"""What a namespace needs so that a job can run in it. Each check says what is wrong, and what repairs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from elasticdl.cli.kubernetes.manifests.job_objects import JobManifest
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import (
    CONFIG_MAP,
    EVENT,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    PRIORITY_CLASS,
    RESOURCE_QUOTA,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    Manifest,
)
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT
from elasticdl.shared.kubernetes.quantities import amount
from elasticdl.shared.kubernetes.refusals import ApiRefusedError
from elasticdl.shared.process.settings import variable

CLIENT_RIGHTS: tuple[tuple[Kind, str, str], ...] = (
    *((JOB, "", verb) for verb in ("create", "get", "list", "patch", "delete")),
    *((CONFIG_MAP, "", verb) for verb in ("create", "get", "list")),
    *((SECRET, "", verb) for verb in ("create", "get")),
    *((POD, "", verb) for verb in ("create", "get", "list")),
    (POD, "log", "get"),
    (POD, "portforward", "create"),
    (SERVICE, "", "get"),
    (EVENT, "", "list"),
)
"""Kind, subresource and verb that the commands of users need."""
MASTER_RIGHTS: tuple[tuple[Kind, str, str], ...] = (
    *((POD, "", verb) for verb in ("create", "delete", "get", "list", "watch")),
    (POD, "log", "get"),
    *((JOB, "", verb) for verb in ("get", "patch")),
)
"""What the service account of a master needs."""
_SETUP = "kubectl apply -k deploy/kustomize/overlays/OVERLAY"
_FORBIDDEN = 403
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a check; ``problem`` is empty if nothing is wrong."""

    subject: str
    detail: str = ""
    problem: str = ""
    remedy: str = ""


def setup_findings(api: KubernetesApi) -> Iterator[Finding]:
    """Check what a namespace provides for all jobs; ends at a namespace that does not exist."""
    name = api.namespace
    if _is_missing(api, NAMESPACE, name):
        create = f"Create it: kubectl create namespace {name}"
        yield Finding(subject="namespace", problem=f"namespace {name} does not exist", remedy=create)
        return
    yield Finding(subject="namespace", detail=name)
    yield _content_finding(api, SECRET, (variable("nats_url"),))


def defaults_finding(api: KubernetesApi, given: Collection[str] = ()) -> Finding:
    """Check the namespace's defaults of flags; jobs that give these flags need no defaults."""
    return _content_finding(api, CONFIG_MAP, tuple(name for name in ("image_name", "storage") if name not in given))


def job_findings(api: KubernetesApi, manifest: JobManifest) -> Iterator[Finding]:
    """Check what a certain job needs: service account, priority classes, nodes that are large enough, and quota."""
    yield from name_findings(api, manifest.settings.service_account, _priority_classes(manifest))
    nodes = _allowed(lambda: api.list(NODE).items)
    if nodes is not None:
        yield node_finding(manifest, nodes)
    quotas = _allowed(lambda: api.list(RESOURCE_QUOTA).items)
    if quotas:
        yield quota_finding(manifest, quotas)


def name_findings(api: KubernetesApi, account: str, classes: Iterable[str]) -> Iterator[Finding]:
    """Check that a service account and priority classes exist."""
    missing = _is_missing(api, SERVICE_ACCOUNT, account)
    yield Finding(
        subject="service account",
        detail=account,
        problem=f"service account {account} does not exist in namespace {api.namespace}" if missing else "",
        remedy=f"Create it with its rights: {_SETUP}. Or give another one with --service_account_name.",
    )
    for name in sorted(classes):
        missing = _is_missing(api, PRIORITY_CLASS, name)
        yield Finding(
            subject="priority class",
            detail=name,
            problem=f"PriorityClass {name} does not exist" if missing else "",
            remedy="Create it: kubectl apply -f deploy/kustomize/base/priority-classes.yaml. "
            "Or give others: --master_pod_priority, --worker_pod_priority, --ps_pod_priority.",
        )


def rights_finding(is_allowed: Callable[..., bool]) -> Finding:
    """Check the rights of this user."""
    lacking = _lacking(CLIENT_RIGHTS, is_allowed)
    return Finding(
        subject="rights",
        detail=f"all {len(CLIENT_RIGHTS)} that commands need",
        problem=f"you may not: {', '.join(lacking)}" if lacking else "",
        remedy="Ask an administrator for the Role in deploy/kustomize/base/rbac.yaml.",
    )


def master_rights_finding(is_allowed: Callable[..., bool], namespace: str) -> Finding:
    """Check the rights of the master's service account, in a pod that has it."""
    lacking = _lacking(MASTER_RIGHTS, is_allowed)
    return Finding(
        subject="rights of the master",
        detail=f"all {len(MASTER_RIGHTS)} that it needs",
        problem=f"its service account may not: {', '.join(lacking)} in namespace {namespace}" if lacking else "",
        remedy=f"Give it the Role elasticdl-master: {_SETUP}",
    )


def _lacking(rights: Iterable[tuple[Kind, str, str]], is_allowed: Callable[..., bool]) -> list[str]:
    return [
        f"{verb} {kind.plural}{f'/{subresource}' if subresource else ''}"
        for kind, subresource, verb in rights
        if not is_allowed(verb, kind, subresource=subresource)
    ]


def node_finding(manifest: JobManifest, nodes: tuple[Manifest, ...]) -> Finding:
    """Check that some node is large enough for each pod, if it were empty."""
    sizes = [each["status"].get("allocatable", {}) for each in nodes]
    for pod in (manifest.master, manifest.worker, manifest.ps):
        requests = pod.resources.requests
        if any(all(amount(size.get(name, "0")) >= amount(text) for name, text in requests.items()) for size in sizes):
            continue
        asked = ", ".join(f"{name}={text}" for name, text in requests.items())
        largest = ", ".join(
            f"{name}={max((size.get(name, '0') for size in sizes), key=amount, default='0')}" for name in requests
        )
        return Finding(
            subject="nodes",
            problem=f"no node is large enough for a pod of {pod.service.value} ({asked}); the largest have {largest}",
            remedy=f"Ask for less: --{pod.service.value}_resource_request.",
        )
    return Finding(subject="nodes", detail=f"{len(nodes)}, large enough")


def quota_finding(manifest: JobManifest, quotas: tuple[Manifest, ...]) -> Finding:
    """Check that the quotas of the namespace have room for a master, a ps and a worker."""
    pods = (manifest.master, manifest.worker, manifest.ps)
    for quota in quotas:
        status = quota.get("status", {})
        for key, hard in (status.get("hard") or {}).items():
            field, _, name = f"requests.{key}".partition(".") if key in ("cpu", "memory") else key.partition(".")
            if field not in ("requests", "limits") or not name:
                continue
            needed = sum(amount(getattr(pod.resources, field).get(name, "0")) for pod in pods)
            free = amount(hard) - amount((status.get("used") or {}).get(key, "0"))
            if needed > free:
                return Finding(
                    subject="quota",
                    problem=f"quota {quota['metadata']['name']} has too little {key} left for a master, a worker and a "
                    f"parameter server: {free:g} of {hard}, and they need {needed:g}",
                    remedy="See what is used: kubectl describe resourcequota "
                    f"--namespace={quota['metadata'].get('namespace', '')}. Or ask for less.",
                )
    return Finding(subject="quota", detail="has room for a master, a worker and a parameter server")


@contextlib.contextmanager
def rights_named(api: KubernetesApi) -> Iterator[None]:
    """Name all rights that this user lacks once the API server refuses the first request."""
    try:
        yield
    except ApiRefusedError as refusal:
        lacking = rights_finding(api.is_allowed) if refusal.is_lacking_right else None
        if lacking is None or not lacking.problem:
            raise
        raise UserError(f"{lacking.problem} in namespace {api.namespace}", hint=lacking.remedy) from refusal


def refuse_problems(findings: Iterator[Finding]) -> None:
    """Refuse a job at the first problem."""
    for finding in findings:
        if finding.problem:
            raise UserError(finding.problem, hint=finding.remedy)


def _priority_classes(manifest: JobManifest) -> set[str]:
    share = manifest.worker_priority
    named = {pod.priority_class for pod in (manifest.master, manifest.worker, manifest.ps)} | {manifest.spare_priority}
    return {name for name in (*named, *((share.high, share.low) if share else ())) if name}


def _content_finding(api: KubernetesApi, kind: Kind, keys: tuple[str, ...]) -> Finding:
    subject = f"{kind.name} {NAMESPACE_OBJECT}"
    content = _allowed(lambda: _content(api, kind))
    lacking = [key for key in keys if content is not None and key not in content]
    problem = f"{subject} in namespace {api.namespace} has no {' and no '.join(lacking)}" if lacking else ""
    return Finding(subject=subject, detail=", ".join(keys), problem=problem, remedy=f"Create it: {_SETUP}")


def _content(api: KubernetesApi, kind: Kind) -> Mapping[str, str]:
    found = api.find(kind, NAMESPACE_OBJECT) or {}
    return found.get("data") or {}


def _is_missing(api: KubernetesApi, kind: Kind, name: str) -> bool:
    """Whether an object does not exist, as far as this user may know."""
    try:
        _allowed(lambda: api.get(kind, name))
    except ApiRefusedError as refusal:
        if refusal.is_not_found:
            return True
        raise
    return False


def _allowed(ask: Callable[[], Result]) -> Result | None:
    """The result of a request; None if this user has no right to it."""
    try:
        return ask()
    except ApiRefusedError as refusal:
        if refusal.status == _FORBIDDEN:
            return None
        raise
