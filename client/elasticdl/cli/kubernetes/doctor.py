"""``elasticdl doctor``: checks whether jobs can run in a namespace of a cluster, and says what repairs it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.output import print_json
from elasticdl.cli.kubernetes.checks import (
    Finding,
    defaults_finding,
    name_findings,
    rights_finding,
    setup_findings,
)
from elasticdl.cli.kubernetes.ended_jobs.one_time_run import run_once
from elasticdl.cli.kubernetes.lookup import connect
from elasticdl.cli.kubernetes.manifests.job_objects import one_time_job
from elasticdl.cli.kubernetes.manifests.resources import Resources
from elasticdl.cli.kubernetes.manifests.templates import USER_ID, PodSettings, bare_container, bare_pod
from elasticdl.cli.kubernetes.new_job.planning import images_of, parse_user
from elasticdl.cli.kubernetes.new_job.start import namespace_defaults
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import SERVICE_ACCOUNT
from elasticdl.shared.names import Service

_POD = "pod"
WAIT_S_MAX = 60.0
"""Seconds that the pod may wait for a node, or for whatever else it waits for."""
PURPOSE = "doctor"
MODULE = "elasticdl.cli.kubernetes.pod_checks"
_RESOURCES = Resources(
    requests={"cpu": "10m", "memory": "128Mi"},
    limits={"cpu": "1", "memory": "512Mi"},
)


def doctor(namespace: str, image_name: str = "", pull_secrets: Sequence[str] = (), *, as_json: bool = False) -> int:
    """Print one line for each check.

    Args:
        namespace: value of ``--namespace``; may be empty.
        image_name: value of ``--image_name``: the image of the workers; empty: that of the namespace.

    Returns:
        The exit code: ``FAILURE`` if there is a problem.
    """
    api, console = connect(namespace), plain_console()
    found: list[Finding] = []

    def show(finding: Finding) -> None:
        found.append(finding)
        if not as_json:
            _show(finding)

    for finding in findings(api, image_name):
        show(finding)
    failed = any(each.problem for each in found)
    if not failed:
        say = (lambda _line: None) if as_json else console.print
        _run_pod(api, namespace_defaults(api), (image_name, pull_secrets), show, say)
    elif not as_json:
        console.print(f"skipped  {_POD}: first repair what is listed above")
    if as_json:
        print_json(console, {"namespace": api.namespace, "findings": list(map(asdict, found)), "skipped": failed})
    return exit_codes.FAILURE if any(each.problem for each in found) else exit_codes.SUCCESS


def findings(api: KubernetesApi, image_name: str = "") -> Iterator[Finding]:
    """All checks that need no pod; after a namespace that does not exist there are no more."""
    yield Finding(subject="API server", detail=f"{api.version()} at {api.server}")
    for finding in setup_findings(api):
        yield finding
        if finding.subject == "namespace" and finding.problem:
            return
    yield rights_finding(api.is_allowed)
    yield defaults_finding(api, ["image_name"] if image_name else [])
    defaults = namespace_defaults(api)
    classes = {defaults.get(f"priority_class_{level}", "") for level in ("high", "low", "spare")} - {""}
    yield from name_findings(api, SERVICE_ACCOUNT, classes)


def _run_pod(
    api: KubernetesApi,
    defaults: Mapping[str, str],
    given: tuple[str, Sequence[str]],
    show: Callable[[Finding], None],
    say: Callable[[str], None],
) -> None:
    """Run a pod, show what it finds, say what it waits for, and delete it."""
    image_name, pull_secrets = given
    images = images_of(defaults, image_name)

    def take(line: str) -> None:
        if line.startswith("{"):
            show(Finding(**json.loads(line)))
        else:
            say(line)

    user = parse_user(defaults.get("run_as_user", ""))
    manifest = check_job(api.namespace, secrets.token_hex(3), images, defaults["storage"], pull_secrets, user)
    try:
        run_once(api, manifest, take, WAIT_S_MAX)
    except UserError as error:
        remedy = error.hint or "Check image_name, master_image and ps_image in ConfigMap elasticdl, and --image_name."
        show(Finding(subject=_POD, problem=str(error.args[0]), remedy=remedy))
        return
    show(Finding(subject=_POD, detail=f"it starts with the images {', '.join(dict.fromkeys(images.values()))}"))


def _show(finding: Finding) -> None:
    console = plain_console()
    if not finding.problem:
        console.print(f"ok       {finding.subject}: {finding.detail}")
        return
    console.print(f"problem  {finding.subject}: {finding.problem}")
    for line in finding.remedy.splitlines():
        console.print(f"         {line}")


def check_job(
    namespace: str,
    suffix: str,
    images: dict[Service, str],
    storage: str,
    pull_secrets: Sequence[str] = (),
    user: int | None = USER_ID,
) -> Manifest:
    """The Job; the worker's image runs the checks, and the other ``images`` are only started."""
    settings = {
        service: PodSettings(service=service, image=image, resources=_RESOURCES) for service, image in images.items()
    }
    worker = settings.pop(Service.WORKER)
    checks = bare_container(Service.WORKER.value, ["-P", "-m", MODULE, storage, namespace], worker)
    pod = bare_pod(checks, pull_secrets, user)
    pod |= {"serviceAccountName": SERVICE_ACCOUNT, "automountServiceAccountToken": True}
    pod["initContainers"] = [bare_container(name.value, ["-c", "pass"], each) for name, each in settings.items()]
    return one_time_job(f"elasticdl-{PURPOSE}-{suffix}", namespace, PURPOSE, pod)
