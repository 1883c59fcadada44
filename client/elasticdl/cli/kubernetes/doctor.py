"""``elasticdl doctor``: checks whether jobs can run in a namespace of a cluster, and says what repairs it."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.kubernetes.checks import (
    Finding,
    defaults_finding,
    name_findings,
    rights_finding,
    setup_findings,
)
from elasticdl.cli.kubernetes.lookup import connect
from elasticdl.cli.kubernetes.new_job.train import namespace_defaults
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.names import SERVICE_ACCOUNT


def doctor(namespace: str) -> int:
    """Print one line for each check.

    Args:
        namespace: value of ``--namespace``; may be empty.

    Returns:
        The exit code: ``FAILURE`` if there is a problem.

    Raises:
        ElasticDLError: the API server can't be reached, or refuses.
    """
    console, has_problem = plain_console(), False
    for finding in findings(connect(namespace)):
        if finding.problem:
            has_problem = True
            console.print(f"problem  {finding.subject}: {finding.problem}")
            console.print(f"         {finding.remedy}")
        else:
            console.print(f"ok       {finding.subject}: {finding.detail}")
    return exit_codes.FAILURE if has_problem else exit_codes.SUCCESS


def findings(api: KubernetesApi) -> Iterator[Finding]:
    """All checks that need no pod; after a namespace that does not exist there are no more.

    Raises:
        TransientError, PermanentError: the API server can't be reached, or refuses.
    """
    yield Finding(subject="API server", detail=f"{api.version()} at {api.server}")
    for finding in setup_findings(api):
        yield finding
        if finding.subject == "namespace" and finding.problem:
            return
    yield rights_finding(api.is_allowed)
    yield defaults_finding(api)
    defaults = namespace_defaults(api)
    classes = {defaults.get(f"priority_class_{level}", "") for level in ("high", "low")} - {""}
    yield from name_findings(api, SERVICE_ACCOUNT, classes)
