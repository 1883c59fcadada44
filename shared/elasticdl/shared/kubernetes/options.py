"""The flags of ``elasticdl train --platform=kubernetes``: namespace, images, resources and placement of the pods."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.options import Flag, Seconds, flags_of
from elasticdl.shared.kubernetes.templates import IMAGE_PULL_S

PANEL = "Kubernetes"
_RESOURCES = "cpu, memory, disk, gpu or VENDOR/gpu: NAME=QUANTITY,NAME=QUANTITY."
IMAGE_PULL = Seconds(IMAGE_PULL_S)
_DAY_S = 86_400

Namespace = Annotated[
    str,
    Flag(
        "Kubernetes namespace of the job.",
        metavar="NAME",
        shows="$ELASTICDL_NAMESPACE, or that of the current kubeconfig context",
        panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesFlags:
    """Values of the flags; each field is the flag of the same name. Empty: the default of the namespace or the job."""

    namespace: Namespace = ""
    image_name: Annotated[
        str,
        Flag(
            "Image of the workers. It needs the packages that the model file imports.",
            metavar="IMAGE",
            shows="that of the namespace",
            panel=PANEL,
        ),
    ] = ""
    master_image: Annotated[
        str, Flag("Image of the master.", metavar="IMAGE", shows="that of the namespace, or --image_name", panel=PANEL)
    ] = ""
    ps_image: Annotated[
        str,
        Flag(
            "Image of the parameter servers.",
            metavar="IMAGE",
            shows="that of the namespace, or --image_name",
            panel=PANEL,
        ),
    ] = ""
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None,
        Flag("When nodes pull images.", shows="that of Kubernetes", panel=PANEL),
    ] = None
    image_pull_deadline_secs: Annotated[
        Seconds,
        Flag(
            "End the job if the image of a pod can't be pulled for this many seconds. A job that trains "
            "continues without that worker.",
            metavar="S",
            limits=(1, _DAY_S),
            panel=PANEL,
        ),
    ] = IMAGE_PULL
    image_pull_secrets: Annotated[
        str, Flag("Secrets with the registry's credentials: NAME,NAME.", metavar="NAMES", panel=PANEL)
    ] = ""
    master_resource_request: Annotated[
        str, Flag(f"Resources of the master. {_RESOURCES}", metavar="ITEMS", panel=PANEL)
    ] = "cpu=0.1,memory=1024Mi"
    worker_resource_request: Annotated[
        str, Flag(f"Resources of each worker. {_RESOURCES}", metavar="ITEMS", panel=PANEL)
    ] = "cpu=1,memory=4096Mi"
    ps_resource_request: Annotated[
        str, Flag(f"Resources of each parameter server. {_RESOURCES}", metavar="ITEMS", panel=PANEL)
    ] = "cpu=1,memory=4096Mi"
    master_resource_limit: Annotated[
        str, Flag("Limits of the master.", metavar="ITEMS", shows="its requests", panel=PANEL)
    ] = ""
    worker_resource_limit: Annotated[
        str, Flag("Limits of each worker.", metavar="ITEMS", shows="its requests", panel=PANEL)
    ] = ""
    ps_resource_limit: Annotated[
        str, Flag("Limits of each parameter server.", metavar="ITEMS", shows="its requests", panel=PANEL)
    ] = ""
    master_pod_priority: Annotated[
        str, Flag("PriorityClass of the master.", metavar="CLASS", shows="priority_class_high", panel=PANEL)
    ] = ""
    ps_pod_priority: Annotated[
        str, Flag("PriorityClass of the parameter servers.", metavar="CLASS", shows="priority_class_high", panel=PANEL)
    ] = ""
    worker_pod_priority: Annotated[
        str,
        Flag(
            "PriorityClass of the workers; or high=0.5: this share of them has the namespace's priority_class_high, "
            "the others priority_class_low.",
            metavar="CLASS|high=X",
            shows="priority_class_low",
            panel=PANEL,
        ),
    ] = ""
    volume: Annotated[
        str,
        Flag(
            "Volume that all pods mount: claim_name=PVC,mount_path=DIR or host_path=DIR,mount_path=DIR, optionally "
            "with sub_path=DIR, read_only=true, type=HOST_PATH_TYPE. Several are separated by semicolons.",
            metavar="ITEMS",
            panel=PANEL,
        ),
    ] = ""
    service_account_name: Annotated[
        str,
        Flag(
            "Service account of the master, which manages the job's pods.",
            metavar="NAME",
            panel=PANEL,
        ),
    ] = "elasticdl-master"
    run_as_user: Annotated[
        str,
        Flag(
            "User and group id of the processes of all pods. none: the cluster chooses it, as OpenShift does.",
            metavar="ID|none",
            shows="that of the namespace, or 65532",
            panel=PANEL,
        ),
    ] = ""
    node_selector: Annotated[
        str, Flag("Labels of the nodes that may run the pods: NAME=VALUE,NAME=VALUE.", metavar="ITEMS", panel=PANEL)
    ] = ""
    cluster_spec: Annotated[
        Path | None,
        Flag(
            "YAML or JSON file with strategic merge patches of the pod templates, under all, master, worker and ps: "
            "for tolerations, affinity and whatever has no flag.",
            metavar="FILE",
            panel=PANEL,
        ),
    ] = None
    keep_finished: Annotated[
        int,
        Flag(
            "Delete the job's objects this many seconds after its end. Snapshots and the model remain. A job can be "
            "resumed and its logs can be read until then.",
            metavar="S",
            limits=(0, (1 << 31) - 1),
            panel=PANEL,
        ),
    ] = 7 * _DAY_S
    yaml: Annotated[
        str, Flag("Write the objects to FILE (-: standard output), and create nothing.", metavar="FILE", panel=PANEL)
    ] = ""
    trainingjob: Annotated[
        Literal["create", "print"] | None,
        Flag(
            "Create a TrainingJob, which the controller of the cluster starts when there is room, in place of the job "
            "itself (create, which is what --trainingjob alone means); or only print it.",
            metavar="[create|print]",
            shows="the job itself",
            panel=PANEL,
        ),
    ] = None

    @property
    def given(self) -> list[str]:
        """Names of the flags that differ from their defaults."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]

    def check(self, platform: str) -> None:
        """Refuse values out of range, and flags of Kubernetes for a job on this machine."""
        if platform != "kubernetes" and self.given:
            raise UserError(f"--{self.given[0]} needs --platform=kubernetes.", usage=True)
        if self.yaml and self.trainingjob:
            raise UserError("--yaml writes the objects of a job, --trainingjob another one; give only one.", usage=True)
        for name, flag in flags_of(type(self)).items():
            flag.check(name, getattr(self, name))
