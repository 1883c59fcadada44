"""Start and take down the node from outside, and remove what a crashed run left."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from tests.cluster import build, images, requirements
from tests.cluster.addresses import Addresses, free_addresses
from tests.cluster.configuration import write_configuration
from tests.cluster.first_process import LINKED, READY, UNSHARED
from tests.cluster.readiness import wait_until
from tests.cluster.sites import IMAGES, POD_IMAGE, REPOSITORY, Site

from elasticdl.shared.names import PodInstance
from elasticdl.shared.pod_instances import instance_of, pid_of

CGROUPS = Path("/sys/fs/cgroup")
END_LIMIT_S = 180.0
NAMESPACES = ["--mount", "--net", "--pid", "--ipc", "--uts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Which process the node is. The file exists before that process does anything."""

    instance: PodInstance
    """Process id and start time of the node's first process, which ends after all others of the node."""
    ready: bool = False
    """All programs were started."""


def start(site: Site) -> None:
    """Start the node unless it runs; returns when it is Ready and its API server answers.

    Raises:
        RuntimeError: the machine lacks something, or a program of the node failed.
    """
    if lacking := requirements.missing(built=build.is_built()):
        raise RuntimeError(lacking)
    binaries = build.build()
    with _locked(site):
        if is_running(site):
            return
        _take_down(site)
        site.folder.mkdir(parents=True)
        addresses = free_addresses()
        write_configuration(site, addresses)
        images.write_image(site.folder / IMAGES.name / "pod.tar", POD_IMAGE, binaries / "pod")
        try:
            _start_processes(site, binaries, addresses)
        except BaseException:
            _take_down(site)
            raise


def stop(site: Site) -> None:
    """Kill all processes of the node and remove everything that it left on this machine; a no-op without a node."""
    with _locked(site):
        _take_down(site)


def is_running(site: Site) -> bool:
    """Whether the node was started completely and still runs."""
    record = read_record(site)
    return record is not None and record.ready and pid_of(record.instance) != 0


def read_record(site: Site) -> Record | None:
    """The record of the cluster; None when there is none."""
    try:
        return Record(**json.loads(site.record.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def inside(site: Site, *command: str) -> list[str]:
    """The command line that runs a command with the mounts and the network of the node."""
    record = read_record(site)
    if record is None or not (pid := pid_of(record.instance)):
        raise RuntimeError("The test cluster does not run. Start it: make cluster-up")
    return ["nsenter", f"--target={pid}", "--mount", "--net", *command]


def control_groups(site: Site) -> list[Path]:
    """The control groups of the pods, those that contain others last."""
    roots = [hierarchy / site.cgroup for hierarchy in _hierarchies()]
    return [Path(folder) for root in roots for folder, _, _ in os.walk(root, topdown=False)]


def _hierarchies() -> list[Path]:
    """The only hierarchy of cgroup v2, or one folder for each controller of cgroup v1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _start_processes(site: Site, binaries: Path, addresses: Addresses) -> None:
    for hierarchy in _hierarchies():
        (hierarchy / site.cgroup).mkdir(exist_ok=True)
    module = [sys.executable, "-m", "tests.cluster.first_process"]
    arguments = [str(site.folder), str(binaries), str(addresses.block)]
    with (site.folder / "start.log").open("wb") as log:
        node = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", *module, *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    assert node.stdin is not None
    assert node.stdout is not None
    lines = map(str.rstrip, node.stdout)
    if next(lines, "") == UNSHARED:
        (first,) = psutil.Process(node.pid).children()
        _write_record(site, Record(instance=instance_of(first.pid)))
        _link(site, first.pid, addresses)
        print(LINKED, file=node.stdin, flush=True)
        for line in lines:
            if line == READY:
                _write_record(site, Record(instance=instance_of(first.pid), ready=True))
                return
            print(line, flush=True)  # noqa: T201 - progress for the person who waits
    node.wait()
    raise RuntimeError((site.folder / "start.log").read_text(errors="replace").strip())


def _write_record(site: Site, record: Record) -> None:
    partial = site.record.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(record)))
    partial.rename(site.record)


def _link(site: Site, pid: int, addresses: Addresses) -> None:
    """Connect the machine with the network namespace of the node, and route pods and Services there."""
    _ip("link", "add", site.link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _ip("address", "add", f"{addresses.host}/30", "dev", site.link)
    _ip("link", "set", site.link, "up")
    for network in (addresses.pods, addresses.services):
        _ip("route", "add", str(network), "via", str(addresses.node))


def _take_down(site: Site) -> None:
    """Kill the node's process, which ends all others, and remove what does not disappear with them."""
    if record := read_record(site):
        if pid := pid_of(record.instance):
            os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: not pid_of(record.instance),
            lambda: f"Process {pid} of the test cluster was killed and does not end.",
            END_LIMIT_S,
        )
    if Path("/sys/class/net", site.link).exists():
        _ip("link", "delete", site.link)
    for folder in control_groups(site):
        folder.rmdir()
    if site.folder.exists():
        shutil.rmtree(site.folder)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)} failed: {done.stderr.strip()}")


@contextmanager
def _locked(site: Site) -> Iterator[None]:
    site.lock.parent.mkdir(parents=True, exist_ok=True)
    with site.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
