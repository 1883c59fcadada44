"""A small synchronous client of the Kubernetes API: the one module that imports the package ``kubernetes``.

That package finds the cluster, logs in and keeps connections. Objects are their JSON (``Manifest``), because classes of
the package declare every field as optional and add nothing. Every request has a time-out, and every refusal becomes an
error of ``elasticdl.shared.errors``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlencode

import urllib3

from elasticdl.shared.errors import ElasticDLError, PermanentError, TransientError, UserError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.kinds import Kind, Manifest, kind_of
from elasticdl.shared.kubernetes.refusals import ApiRefusedError, Request, error_of_answer, error_of_status

if TYPE_CHECKING:
    import websocket  # Comes with the package kubernetes, which a master of a job on one machine does without.

CONNECT_S = 10.0
REQUEST_S = 30.0
WATCH_S = 60
"""Seconds after which the API server ends a watch; the next one continues where it ended."""
CONNECTIONS_MAX = 16
LOG_SILENCE_S = 4 * 3600.0
"""Seconds without a new line after which following a log ends; the kubelet ends it earlier."""

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MERGE_PATCH = "application/merge-patch+json"
_JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """Objects at one moment; ``resource_version``: the moment, from which a watch can continue."""

    items: tuple[Manifest, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a watch reports.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, whose object has only a version.
    """

    type: str
    object: Manifest

    @property
    def resource_version(self) -> str:
        """The moment of the change, from which a later watch can continue."""
        return str(self.object["metadata"]["resourceVersion"])


class KubernetesApi:
    """A connection to one cluster. All methods may be called from any thread.

    Every method that sends a request raises ``TransientError`` if the API server can't be reached or is overloaded, and
    ``ApiRefusedError``, a ``PermanentError``, if it refuses.

    Args:
        configuration: a ``kubernetes.client.Configuration``.
        namespace: the namespace of all objects, unless a manifest names another one.
    """

    def __init__(self, configuration: Any, namespace: str) -> None:
        from kubernetes.client.rest import RESTClientObject

        configuration.connection_pool_maxsize = CONNECTIONS_MAX
        self.namespace = namespace
        self._configuration = configuration
        self._pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self._rate = RequestRate()

    @classmethod
    def connect(cls, *, kubeconfig: str = "", context: str = "", namespace: str = "") -> Self:
        """Connect as ``kubectl`` does: with a kubeconfig file, or within a pod with its service account.

        Args:
            kubeconfig: the file; empty: ``KUBECONFIG``, else in a pod its service account, else ``~/.kube/config``.
            context: a context of the file; empty: its current one.
            namespace: empty: that of the context or of the pod.
        """
        configuration, default_namespace = _load(kubeconfig, context)
        return cls(configuration, namespace or default_namespace)

    def in_namespace(self, namespace: str) -> Self:
        """The same connection, for the objects of another namespace."""
        other = copy(self)
        other.namespace = namespace
        return other

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._configuration.host)

    # --- objects ----------------------------------------------------------------------------------------------------

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object; ``dry_run``: only check whether the API server would accept it."""
        metadata = manifest.get("metadata", {})
        request = self._request("create", kind_of(manifest), metadata.get("name", ""), metadata.get("namespace", ""))
        query = {"dryRun": "All"} if dry_run else {}
        return self._send("POST", request, request.kind.path(request.namespace), query, manifest)

    def get(self, kind: Kind, name: str) -> Manifest:
        """Get one object."""
        return self._send_to_object("GET", "get", kind, name)

    def find(self, kind: Kind, name: str) -> Manifest | None:
        """Get one object; None: there is none of this name."""
        try:
            return self.get(kind, name)
        except ApiRefusedError as refusal:
            if refusal.is_not_found:
                return None
            raise

    def list(self, kind: Kind, *, labels: str = "", fields: str = "", everywhere: bool = False) -> ObjectList:
        """Get all objects of a kind in the namespace.

        Args:
            labels: a label selector, see ``names.selector``.
            fields: a field selector, such as ``involvedObject.name=NAME``.
        """
        kind = replace(kind, is_namespaced=kind.is_namespaced and not everywhere)
        request = self._request("list", kind)
        answer = self._send("GET", request, kind.path(request.namespace), _selectors(labels, fields))
        return ObjectList(items=tuple(answer["items"] or ()), resource_version=answer["metadata"]["resourceVersion"])

    def watch(
        self,
        kind: Kind,
        resource_version: str,
        *,
        labels: str = "",
        fields: str = "",
        everywhere: bool = False,
        timeout_s: int = WATCH_S,
    ) -> Iterator[Change]:
        """Changes since a moment, as they happen; ends after ``timeout_s`` seconds. Selects as ``list`` does.

        Raises:
            WatchExpiredError: the moment is too long ago: list again.
            TransientError: the connection broke: watch again from the last change.
        """
        kind = replace(kind, is_namespaced=kind.is_namespaced and not everywhere)
        request = self._request("watch", kind)
        query = _selectors(labels, fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        silence_s = timeout_s + CONNECT_S
        with self._stream(request, kind.path(request.namespace), query, silence_s) as answer:
            for line in _lines(answer):
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise error_of_status(request, change["object"])
                yield Change(type=change["type"], object=change["object"])

    def delete(self, kind: Kind, name: str, *, uid: str = "", grace_s: int | None = None) -> None:
        """Delete an object and what belongs to it.

        Args:
            uid: only the object with this uid; otherwise the refusal ``is_conflict``.
            grace_s: a pod's grace period in seconds; 0: remove it at once; None: what the pod says.
        """
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        self._send_to_object("DELETE", "delete", kind, name, options)

    def patch(self, kind: Kind, name: str, patch: Manifest, *, subresource: str = "") -> Manifest:
        """Change some fields of an object, or of a subresource such as ``status``, by a JSON merge patch.

        None removes a field. With the ``resourceVersion`` of the object in the patch, an object that has changed
        meanwhile is refused: ``is_conflict``.
        """
        return self._send_to_object("PATCH", "patch", kind, name, patch, subresource)

    # --- pods -------------------------------------------------------------------------------------------------------

    def log(self, pod: str, *, container: str = "", tail_lines: int | None = None, bytes_max: int | None = None) -> str:
        """The log of a container so far.

        Args:
            container: name of the container; empty: the pod has only one.
            tail_lines: only the last lines.
            bytes_max: only the first bytes of those.
        """
        request = self._request("get", kinds.POD, pod)
        query = _log_query(container, tail_lines) | ({"limitBytes": str(bytes_max)} if bytes_max else {})
        path = kinds.POD.path(self.namespace, pod, "log")
        with self._stream(request, path, query, REQUEST_S) as answer, _translated(request, self.server):
            return answer.read().decode(errors="replace")

    def follow_log(self, pod: str, *, container: str = "", tail_lines: int | None = None) -> Iterator[str]:
        """The lines of a container's log, and new ones until the container ends; without line breaks."""
        request = self._request("get", kinds.POD, pod)
        query = _log_query(container, tail_lines) | {"follow": "true"}
        with self._stream(request, kinds.POD.path(self.namespace, pod, "log"), query, LOG_SILENCE_S) as answer:
            for line in _lines(answer):
                yield line.decode(errors="replace")

    def port_forward(self, pod: str, port: int) -> websocket.WebSocket:
        """A connection to a port of a pod through the API server, for ``port_forward.forwarded``.

        A port on which nothing listens ends the connection.
        """
        import websocket
        from kubernetes.stream.ws_client import create_websocket, get_websocket_url

        request = Request(verb="forward a port of", kind=kinds.POD, namespace=self.namespace, name=pod)
        url = self.server + kinds.POD.path(self.namespace, pod, "portforward")
        self._rate.wait()
        try:
            connection: websocket.WebSocket = create_websocket(
                self._configuration, get_websocket_url(url, [("ports", str(port))]), self._headers()
            )
        except websocket.WebSocketBadStatusException as error:
            raise error_of_answer(request, error.status_code, {}, error.resp_body or b"") from error
        except (websocket.WebSocketException, OSError) as error:
            raise TransientError(f"can't {request}: {error}") from error
        return connection

    # --- the cluster ------------------------------------------------------------------------------------------------

    def version(self) -> str:
        """The version of the API server, such as ``v1.36.3``."""
        request = Request(verb="get the version of", kind=Kind(name="API server", plural="the API server"))
        return str(self._send("GET", request, "/version")["gitVersion"])

    def is_allowed(self, verb: str, kind: Kind, *, subresource: str = "") -> bool:
        """Whether this user may do something with the objects of a kind in the namespace."""
        attributes = {"verb": verb, "group": kind.group, "resource": kind.plural, "subresource": subresource}
        if kind.is_namespaced:
            attributes["namespace"] = self.namespace
        review = {"resourceAttributes": attributes}
        manifest = {"apiVersion": kinds.ACCESS_REVIEW.api_version, "kind": kinds.ACCESS_REVIEW.name, "spec": review}
        return bool(self.create(manifest)["status"]["allowed"])

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()

    # --- requests ---------------------------------------------------------------------------------------------------

    def _request(self, verb: str, kind: Kind, name: str = "", namespace: str = "") -> Request:
        wanted = (namespace or self.namespace) if kind.is_namespaced else ""
        return Request(verb=verb, kind=kind, namespace=wanted, name=name)

    def _send_to_object(
        self, method: str, verb: str, kind: Kind, name: str, content: Manifest | None = None, subresource: str = ""
    ) -> Manifest:
        request = self._request(verb, kind, name)
        return self._send(method, request, kind.path(request.namespace, name, subresource), content=content)

    def _send(
        self,
        method: str,
        request: Request,
        path: str,
        query: Mapping[str, str] | None = None,
        content: Manifest | None = None,
    ) -> Manifest:
        body = None if content is None else json.dumps(content).encode()
        headers = self._headers() | {"Accept": _JSON, "Content-Type": _MERGE_PATCH if method == "PATCH" else _JSON}
        timeout = urllib3.Timeout(connect=CONNECT_S, read=REQUEST_S)
        self._rate.wait()
        with _translated(request, self.server):
            answer = self._pool.request(
                method, self._url(path, query), body=body, headers=headers, timeout=timeout, retries=False
            )
        _check(request, answer)
        return cast(Manifest, json.loads(answer.data))

    @contextmanager
    def _stream(
        self, request: Request, path: str, query: Mapping[str, str], silence_s: float
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=silence_s)
        self._rate.wait()
        with _translated(request, self.server):
            answer = self._pool.request(
                "GET",
                self._url(path, query),
                headers=self._headers(),
                timeout=timeout,
                retries=False,
                preload_content=False,
            )
        try:
            with _translated(request, self.server):
                _check(request, answer)
                yield answer
        finally:
            answer.close()  # Not back to the pool: the rest of the stream is unread.

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return self.server + path + (f"?{urlencode(query)}" if query else "")

    def _headers(self) -> dict[str, str]:
        """Log in; tokens expire, so every request asks for the present one."""
        headers = {"User-Agent": "elasticdl"}
        for setting in self._configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        return headers


def _load(kubeconfig: str, context: str) -> tuple[Any, str]:
    """The configuration of the package ``kubernetes``, and the default namespace."""
    try:
        import yaml
        from kubernetes import config
        from kubernetes.client import Configuration
    except ImportError as error:
        raise UserError(
            "The Python package kubernetes is not installed", hint="Run: pip install 'elasticdl[kubernetes]'"
        ) from error
    configuration = Configuration()
    is_in_pod = not os.environ.get("KUBECONFIG") and _NAMESPACE_FILE.exists() and not kubeconfig and not context
    try:
        if is_in_pod:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, _NAMESPACE_FILE.read_text().strip()
        chosen = kubeconfig or None
        config.load_kube_config(chosen, context or None, configuration, persist_config=False)
        contexts, current = config.list_kube_config_contexts(chosen)
        used = next((each for each in contexts if each["name"] == context), current)
        return configuration, used["context"].get("namespace") or "default"
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError) as error:
        named = kubeconfig or os.environ.get("KUBECONFIG", "") or "~/.kube/config"
        raise UserError(
            f"the kubeconfig {named} does not describe a Kubernetes cluster: {error}",
            hint="Check it with: kubectl cluster-info. The variable KUBECONFIG names the file to use.",
        ) from error


def _selectors(labels: str, fields: str) -> dict[str, str]:
    named = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in named.items() if value}


def _log_query(container: str, tail_lines: int | None) -> dict[str, str]:
    query = {"container": container} if container else {}
    return query | ({"tailLines": str(tail_lines)} if tail_lines is not None else {})


def _check(request: Request, answer: urllib3.BaseHTTPResponse) -> None:
    if not 200 <= answer.status < 300:
        raise error_of_answer(request, answer.status, answer.headers, answer.data)


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of a stream, as they arrive."""
    rest = b""
    for chunk in answer.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


@contextmanager
def _translated(request: Request, server: str) -> Iterator[None]:
    """Errors of the connection as ours."""
    try:
        yield
    except ElasticDLError:
        raise
    except urllib3.exceptions.SSLError as error:
        raise PermanentError(f"can't {request}: the certificate of {server} is not accepted: {error}") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise TransientError(f"can't {request}: the API server {server} can't be reached: {error}") from error


REQUESTS_PER_SECOND_MAX = 40.0
REQUESTS_AT_ONCE_MAX = 10


class RequestRate:
    """A token bucket for any number of threads; ``at_once``: requests without delay after a pause."""

    def __init__(self, per_second: float = REQUESTS_PER_SECOND_MAX, at_once: int = REQUESTS_AT_ONCE_MAX) -> None:
        self._interval_s = 1 / per_second
        self._burst_s = (at_once - 1) * self._interval_s
        self._next_s = 0.0
        self._lock = threading.Lock()

    def delay_s(self, now_s: float) -> float:
        """Take a place for one request, and say how many seconds from now it is."""
        with self._lock:
            self._next_s = max(self._next_s, now_s - self._burst_s) + self._interval_s
            return max(self._next_s - self._interval_s - now_s, 0.0)

    def wait(self) -> None:
        """Sleep until one more request may be sent."""
        delay_s = self.delay_s(time.monotonic())
        if delay_s:
            time.sleep(delay_s)
