"""How a command reaches the NATS server of a namespace: directly if it can, else through the API server."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from elasticdl.shared.addresses import Address
from elasticdl.shared.bus.nats_bus.connection import addresses_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import POD, SECRET, SERVICE, Manifest
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT, selector
from elasticdl.shared.kubernetes.refusals import ApiRefusedError
from elasticdl.shared.process.settings import variable

PORT = 4222
CONNECT_S = 1.0
"""Seconds in which a NATS server that can be reached directly accepts a connection."""


def service_of(url: Address) -> tuple[str, str, int]:
    """The Service of a cluster that a URL names: its name, namespace (empty: that of the job) and port.

    Such a URL is ``nats://NAME``, ``nats://NAME.NAMESPACE`` or ``nats://NAME.NAMESPACE.svc.cluster.local``.

    Raises:
        UserError: the host is an IP address.
    """
    if _is_ip_address(url.host):
        raise UserError(
            f"the NATS server {url.host} can't be reached from here, and an address names no Service to forward to",
            hint=f"Give a URL that works here in the variable {variable('nats_url')}.",
        )
    name, _, rest = url.host.partition(".")
    return name, rest.partition(".")[0], url.port or PORT


@contextmanager
def reachable_url(api: KubernetesApi, job: str) -> Iterator[str]:
    """A URL of the job's NATS server that works here, as long as the context is open."""
    given = os.environ.get(variable("nats_url"), "")
    servers = addresses_of(given or _url_of(api, job))
    for server in servers:
        if _accepts(server.host, server.port or PORT):
            yield server.url
            return
    if given:
        raise UserError(f"the NATS server of {variable('nats_url')} can't be reached ({servers[0].host})")
    # It imports a package that comes with kubernetes. Commands for jobs on this machine import this module, too.
    from elasticdl.shared.kubernetes.port_forward import forwarded

    service, namespace, service_port = service_of(servers[0])
    own = api if namespace in ("", api.namespace) else api.connect(namespace=namespace)
    with contextlib.nullcontext() if own is api else contextlib.closing(own):
        pod, port = _pod_of(own, service, service_port)
        with forwarded(lambda: own.port_forward(pod, port)) as local:
            yield servers[0].at("127.0.0.1", local).url


def _url_of(api: KubernetesApi, job: str) -> str:
    """What the pods of the job use."""
    for name in (job, NAMESPACE_OBJECT):
        try:
            content: Mapping[str, str] = api.get(SECRET, name).get("data") or {}
        except ApiRefusedError as refusal:
            if refusal.is_not_found:
                continue
            raise UserError(
                f"the address of the job's NATS server can't be read: {refusal}",
                hint=f"Give its URL in the variable {variable('nats_url')}.",
            ) from refusal
        if encoded := content.get(variable("nats_url")):
            return base64.b64decode(encoded).decode()
    raise UserError(f"Secret {NAMESPACE_OBJECT} in namespace {api.namespace} has no {variable('nats_url')}")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError:
        return False
    return True


def _pod_of(api: KubernetesApi, name: str, port: int) -> tuple[str, int]:
    """A ready pod of a Service, and its port."""
    try:
        service = api.get(SERVICE, name)
    except ApiRefusedError as refusal:
        raise UserError(
            f"the NATS server {name} can't be reached from here, and not through the API server: {refusal}",
            hint=f"Give a URL that works here in the variable {variable('nats_url')}.",
        ) from refusal
    pods = api.list(POD, labels=selector(service["spec"].get("selector") or {})).items
    for pod in pods:
        if _is_ready(pod):
            return pod["metadata"]["name"], _target_port(service, pod, port)
    raise UserError(
        f"no pod of Service {name} in namespace {api.namespace} is ready, so NATS can't be reached",
        hint=f"See why: kubectl get pods --namespace={api.namespace}",
    )


def _is_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _target_port(service: Manifest, pod: Manifest, port: int) -> int:
    """The port of a pod to which a port of its Service leads."""
    target = next((each.get("targetPort", port) for each in service["spec"]["ports"] if each["port"] == port), port)
    if isinstance(target, int):
        return target
    ports = [each for container in pod["spec"]["containers"] for each in container.get("ports") or ()]
    return next((int(each["containerPort"]) for each in ports if each.get("name") == target), port)
