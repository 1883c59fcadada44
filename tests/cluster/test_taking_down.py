"""The node leaves nothing on the machine, however it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubernetes import client, config
from tests.cluster import host
from tests.cluster.conftest import NEEDS_NODE, other_kubeconfig, run_command, skip_if_something_is_missing
from tests.cluster.readiness import wait_until
from tests.cluster.sites import REPOSITORY, Site

from elasticdl.shared.names import PodInstance
from elasticdl.shared.pod_instances import instance_of, pid_of

SITE = Site(name="leaves")
"""A cluster of its own, so that the one of the other tests, or the developer's, keeps running."""
NAMED = ["--name", SITE.name]


@pytest.fixture
def site() -> Iterator[Site]:
    if other_kubeconfig():
        pytest.skip(NEEDS_NODE)
    skip_if_something_is_missing()
    host.stop(SITE)
    yield SITE
    host.stop(SITE)


def state_of_the_machine() -> dict[str, object]:
    """Everything that a node could change outside its namespaces and its run folder."""
    commands = {"links": "ip -oneline link", "routes": "ip route", "rules": "iptables-save", "names": "ip netns list"}
    outputs = {
        name: subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout
        for name, command in commands.items()
    }
    settings = ["kernel/panic", "vm/overcommit_memory", "net/ipv4/ip_forward", "kernel/hostname"]
    return {
        "links": sorted(line.split(":")[1].strip().partition("@")[0] for line in outputs["links"].splitlines()),
        "routes": sorted(outputs["routes"].splitlines()),
        "rules": [line for line in outputs["rules"].splitlines() if line.startswith(("*", ":", "-A"))],
        "network namespaces": outputs["names"],
        "mounts": sorted(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()),
        "control groups": host.control_groups(SITE),
        "settings": {name: Path("/proc/sys", name).read_text() for name in settings},
        "folder": SITE.folder.exists(),
    }


def processes_of_the_node(site: Site) -> list[PodInstance]:
    """All processes of the PID namespace of a running node."""
    record = host.read_record(site)
    assert record is not None
    namespace = os.readlink(f"/proc/{pid_of(record.instance)}/ns/pid")
    found = []
    for pid in psutil.pids():
        with suppress(OSError):  # it has ended
            if os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                found.append(instance_of(pid))
    return found


def test_nothing_is_left_after_it_was_taken_down(site: Site) -> None:
    before = state_of_the_machine()
    run_command("up", *NAMED)
    processes = processes_of_the_node(site)
    assert len(processes) >= 9  # the first one and its programs
    assert state_of_the_machine() != before

    run_command("down", *NAMED)
    assert [instance for instance in processes if pid_of(instance)] == []
    assert state_of_the_machine() == before


def test_it_starts_after_its_starter_was_killed(site: Site) -> None:
    before = state_of_the_machine()
    starter = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "up", *NAMED], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    with starter, starter.stdout:
        for line in starter.stdout:
            if line == "Starting kube-apiserver\n":
                break
        starter.kill()
    abandoned = host.read_record(site)
    assert abandoned is not None
    assert not abandoned.ready

    run_command("up", *NAMED)
    assert not pid_of(abandoned.instance)
    core: Any = client.CoreV1Api(config.new_client_from_config(config_file=str(site.kubeconfig)))
    assert len(core.list_node().items) == 1

    run_command("down", *NAMED)
    assert state_of_the_machine() == before


def test_all_its_processes_end_with_the_first_one(site: Site) -> None:
    run_command("up", *NAMED)
    record = host.read_record(site)
    assert record is not None
    processes = processes_of_the_node(site)
    os.kill(pid_of(record.instance), signal.SIGKILL)
    wait_until(lambda: not any(map(pid_of, processes)), lambda: "processes of the node still run")
    assert not host.is_running(site)
