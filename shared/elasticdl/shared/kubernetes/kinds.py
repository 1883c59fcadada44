"""The kinds of Kubernetes objects that this package reads or writes, and where the API server keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Manifest = dict[str, Any]
"""An object as its JSON has it: ``apiVersion``, ``kind``, ``metadata`` and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of object.

    Attributes:
        name: as in ``kind``, such as ``PriorityClass``.
        plural: as in URLs, such as ``priorityclasses``.
        api_version: as in ``apiVersion``, such as ``scheduling.k8s.io/v1``.
    """

    name: str
    plural: str
    api_version: str = "v1"
    is_namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group, as access rules name it: ``batch``; empty: the core group."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The URL path of an object, or of all objects of this kind in a namespace."""
        parts = ["apis" if self.group else "api", self.api_version]
        if self.is_namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [self.plural, quote(name, safe=""), subresource]
        return "/" + "/".join(part for part in parts if part)


POD = Kind(name="Pod", plural="pods")
JOB = Kind(name="Job", plural="jobs", api_version="batch/v1")
CONFIG_MAP = Kind(name="ConfigMap", plural="configmaps")
SECRET = Kind(name="Secret", plural="secrets")
SERVICE = Kind(name="Service", plural="services")
SERVICE_ACCOUNT = Kind(name="ServiceAccount", plural="serviceaccounts")
ENDPOINT_SLICE = Kind(name="EndpointSlice", plural="endpointslices", api_version="discovery.k8s.io/v1")
EVENT = Kind(name="Event", plural="events")
RESOURCE_QUOTA = Kind(name="ResourceQuota", plural="resourcequotas")
LIMIT_RANGE = Kind(name="LimitRange", plural="limitranges")
POD_DISRUPTION_BUDGET = Kind(name="PodDisruptionBudget", plural="poddisruptionbudgets", api_version="policy/v1")
NAMESPACE = Kind(name="Namespace", plural="namespaces", is_namespaced=False)
NODE = Kind(name="Node", plural="nodes", is_namespaced=False)
PRIORITY_CLASS = Kind(
    name="PriorityClass", plural="priorityclasses", api_version="scheduling.k8s.io/v1", is_namespaced=False
)
LEASE = Kind(name="Lease", plural="leases", api_version="coordination.k8s.io/v1")
ACCESS_REVIEW = Kind(
    name="SelfSubjectAccessReview",
    plural="selfsubjectaccessreviews",
    api_version="authorization.k8s.io/v1",
    is_namespaced=False,
)
CUSTOM_RESOURCE_DEFINITION = Kind(
    name="CustomResourceDefinition",
    plural="customresourcedefinitions",
    api_version="apiextensions.k8s.io/v1",
    is_namespaced=False,
)
TRAINING_JOB = Kind(name="TrainingJob", plural="trainingjobs", api_version="elasticdl.org/v1")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        *(POD, JOB, CONFIG_MAP, SECRET, SERVICE, SERVICE_ACCOUNT, ENDPOINT_SLICE, EVENT, RESOURCE_QUOTA, LIMIT_RANGE),
        *(POD_DISRUPTION_BUDGET, NAMESPACE, NODE, PRIORITY_CLASS, ACCESS_REVIEW, CUSTOM_RESOURCE_DEFINITION),
        *(TRAINING_JOB, LEASE),
    )
}


def kind_of(manifest: Manifest) -> Kind:
    """The kind of an object."""
    return KINDS[manifest["kind"]]
