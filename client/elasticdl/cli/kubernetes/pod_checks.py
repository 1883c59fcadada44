"""``python -m elasticdl.cli.kubernetes.pod_checks``: what only a pod can check for ``elasticdl doctor``.

Prints each result as a line of JSON. Its exit code is 0, whatever the results are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict

from elasticdl.cli.kubernetes.checks import Finding, master_rights_finding
from elasticdl.cli.submission.preflight import check_writable
from elasticdl.shared.bus.nats_bus import check_server
from elasticdl.shared.bus.server import PAYLOAD_BYTES_MAX
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT
from elasticdl.shared.names import JobId
from elasticdl.shared.process.logs import hide_details
from elasticdl.shared.process.settings import variable
from elasticdl.shared.words import size


def pod_findings(storage: str, nats_url: str, namespace: str) -> Iterator[Finding]:
    """Check NATS and storage from here."""
    secret = (
        f"The address and the credentials are in Secret {NAMESPACE_OBJECT}: "
        f"kubectl edit secret {NAMESPACE_OBJECT} --namespace={namespace}"
    )
    pods = f"Check that it runs: kubectl get pods --selector=app.kubernetes.io/name=nats --namespace={namespace}"
    yield _nats_finding(nats_url, f"{pods}\n{secret}")
    yield _storage_finding(storage, secret)


def _nats_finding(url: str, remedy: str) -> Finding:
    subject = "NATS from a pod"
    try:
        accepted = asyncio.run(check_server(url, JobId("doctor")))
    except ElasticDLError as error:
        return Finding(subject=subject, problem=_sentence(error), remedy=remedy)
    if accepted < PAYLOAD_BYTES_MAX:
        return Finding(
            subject=subject,
            problem=f"it accepts messages of {accepted} bytes, and jobs need {PAYLOAD_BYTES_MAX}",
            remedy=f"Set max_payload: {PAYLOAD_BYTES_MAX} in the configuration of the nats-server.",
        )
    return Finding(subject=subject, detail=f"with JetStream, messages up to {size(accepted)}")


def _storage_finding(storage: str, remedy: str) -> Finding:
    subject = "storage from a pod"
    try:
        check_writable(storage, storage)
    except ElasticDLError as error:
        return Finding(subject=subject, problem=_sentence(error), remedy=remedy)
    return Finding(subject=subject, detail=f"{storage} can be written")


def _rights_findings(namespace: str) -> Iterator[Finding]:
    """Check the rights of this pod, which has the service account of the masters."""
    try:
        with contextlib.closing(KubernetesApi.connect()) as api:
            yield master_rights_finding(api.is_allowed, namespace)
    except ElasticDLError as error:
        remedy = "Pods need connections to the API server: check the NetworkPolicies of the namespace."
        yield Finding(subject="API server from a pod", problem=_sentence(error), remedy=remedy)


def _sentence(error: ElasticDLError) -> str:
    """The error without its hint: a finding has a remedy of its own."""
    return str(error.args[0])


def main() -> int:
    """Entry point of the pod; its arguments are the URI of the storage, and the namespace."""
    # The log of a pod contains both streams, and each failed attempt to connect is one of the findings already.
    hide_details()
    storage, namespace = sys.argv[1:]
    found = pod_findings(storage, os.environ[variable("nats_url")], namespace)
    for finding in itertools.chain(found, _rights_findings(namespace)):
        sys.stdout.write(json.dumps(asdict(finding)) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
