"""The addresses of a cluster: one /16 block of a private range that this machine does not route yet."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

BLOCKS = [IPv4Network(f"10.{second}.0.0/16") for second in (244, 213, 187, 149, 118, 73)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Pods, Services, and the link between machine and node. All of it exists in the node's network namespace only."""

    block: IPv4Network

    @property
    def pods(self) -> IPv4Network:
        return IPv4Network((self.block[0], 24))

    @property
    def services(self) -> IPv4Network:
        return IPv4Network((self.block[128 << 8], 20))

    @property
    def host(self) -> IPv4Address:
        """The machine's end of the link: where pods reach servers that run outside the cluster."""
        return self.block[(255 << 8) + 1]

    @property
    def node(self) -> IPv4Address:
        """The node's end of the link: API server, kubelet and DNS server."""
        return self.block[(255 << 8) + 2]

    @property
    def api(self) -> str:
        return f"https://{self.node}:6443"


def free_addresses() -> Addresses:
    """Addresses in a block that no route of this machine overlaps.

    Raises:
        RuntimeError: the machine routes all of them.
    """
    listed = subprocess.run(["ip", "-json", "-4", "route"], check=True, capture_output=True, text=True).stdout
    routed = [IPv4Network(route["dst"]) for route in json.loads(listed) if route["dst"] != "default"]
    for block in BLOCKS:
        if not any(block.overlaps(network) for network in routed):
            return Addresses(block=block)
    raise RuntimeError(f"This machine routes each of {', '.join(map(str, BLOCKS))}. Remove one of these routes.")
