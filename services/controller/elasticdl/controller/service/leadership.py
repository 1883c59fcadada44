"""One controller at a time: the one that holds a Lease. What it ordered stays valid when another one takes over."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import LEASE, Manifest
from elasticdl.shared.kubernetes.refusals import ApiRefusedError
from elasticdl.shared.process.logs import get_logger

NAME = "elasticdl-controller"
LEASE_S = 10
"""Seconds without a renewal after which another controller takes over."""
RENEW_S = 2.0

_log = get_logger()


class Leadership:
    """The Lease of the controllers of a namespace.

    Whether a lease has run out is told by how long it has not changed here: the clocks of two controllers may differ.

    Args:
        identity: of this controller; no other one has it.
    """

    def __init__(self, api: KubernetesApi, identity: str) -> None:
        self._api = api
        self._identity = identity
        self._seen = ""
        self._seen_s = time.monotonic()
        self._renewed_s = 0.0
        self._is_stopped = threading.Event()
        self.is_leader = False

    def keep(self) -> None:
        """Renew the lease until it is lost or ``release`` is called; returns then."""
        while not self._is_stopped.wait(RENEW_S):
            self.attempt()
            if time.monotonic() - self._renewed_s >= LEASE_S:
                self.is_leader = False
                return

    def release(self) -> None:
        """Release the lease, so that another controller need not wait."""
        self._is_stopped.set()
        if self.is_leader:
            self.is_leader = False
            try:
                self._api.patch(LEASE, NAME, {"spec": {"holderIdentity": "", "renewTime": _now()}})
            except ElasticDLError as error:
                _log.warning("the lease can't be released", reason=str(error))

    def attempt(self) -> bool:
        """Take or renew the lease if that is possible; returns whether this controller holds it now."""
        try:
            self._write(self._read())
        except ApiRefusedError as refusal:
            if not (refusal.is_conflict or refusal.already_exists):
                raise
        except ElasticDLError as error:
            _log.warning("the lease can't be renewed", reason=str(error))
        return self.is_leader

    def _read(self) -> Manifest | None:
        lease = self._api.find(LEASE, NAME)
        if lease is not None and lease["metadata"]["resourceVersion"] != self._seen:
            self._seen, self._seen_s = lease["metadata"]["resourceVersion"], time.monotonic()
        return lease

    def _write(self, lease: Manifest | None) -> None:
        began_s = time.monotonic()
        own = {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_S, "renewTime": _now()}
        if lease is None:
            metadata = {"name": NAME, "namespace": self._api.namespace}
            first = {**own, "acquireTime": own["renewTime"], "leaseTransitions": 0}
            self._api.create({"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata, "spec": first})
        else:
            spec: Manifest = lease.get("spec") or {}
            holder = spec.get("holderIdentity") or ""
            if holder not in ("", self._identity) and time.monotonic() - self._seen_s < LEASE_S:
                self.is_leader = False
                return
            if holder != self._identity:
                own |= {"acquireTime": own["renewTime"], "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
            version = {"resourceVersion": lease["metadata"]["resourceVersion"]}
            self._api.patch(LEASE, NAME, {"metadata": version, "spec": own})
        self._renewed_s = began_s
        if not self.is_leader:
            _log.info("this controller acts", identity=self._identity)
        self.is_leader = True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
