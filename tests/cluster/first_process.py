"""The first process of the node: sets up mounts and network, starts the programs, and starts again those that end.

It runs as process 1 of its own PID, mount, network, IPC and UTS namespaces. When it ends, the kernel kills all other
processes of the node, and with the last of them all mounts, links, routes and iptables rules of the node disappear.
It talks with its starter over standard input and output: see ``host.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from tests.cluster.addresses import Addresses
from tests.cluster.programs import Program, programs
from tests.cluster.readiness import CTR, wait_until
from tests.cluster.sites import IMAGES, INSIDE, NODE_NAME

UNSHARED = "unshared"
"""The first message to the starter: it can record this process and link its network with the machine's."""
LINKED = "linked"
"""The answer of the starter."""
READY = "ready"
RESTART_DELAY_S = 0.5
KERNEL_SETTINGS = {
    "kernel/keys/root_maxbytes": 25_000_000,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
"""What the kubelet would set for the whole machine. It writes to files instead, so the machine keeps its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A program and its present process."""

    program: Program
    process: subprocess.Popen[bytes]


def main() -> None:
    """Start the node; the arguments are the run folder, the folder of the programs and the block of addresses."""
    folder, binaries, addresses = Path(sys.argv[1]), Path(sys.argv[2]), Addresses(block=IPv4Network(sys.argv[3]))
    print(UNSHARED, flush=True)  # noqa: T201
    if sys.stdin.readline() != f"{LINKED}\n":
        sys.exit("The process that started the node has ended.")
    # Under `nice`, the node's programs would wait for its pods, whose control group has a weight of its own.
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    set_up_mounts(folder)
    set_up_network(addresses)
    running: list[Running] = []
    for program in programs(binaries, addresses):
        print(f"Starting {program.name}", flush=True)  # noqa: T201
        running.append(start(program))
        if program.name == "containerd":
            import_images()
    print(READY, flush=True)  # noqa: T201
    with (INSIDE / "logs" / "node.log").open("ab") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
    restart_forever(running)


def set_up_mounts(folder: Path) -> None:
    """Let the programs see their own ``/run`` and ``/var`` and write nothing outside the run folder."""
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    INSIDE.mkdir()
    _run("mount", "--bind", str(folder), str(INSIDE))
    for name in ("var", "var-work", "logs"):
        (INSIDE / name).mkdir()
    _run(
        "mount", "-t", "overlay", "-o", f"lowerdir=/var,upperdir={INSIDE}/var,workdir={INSIDE}/var-work", "var", "/var"
    )
    for name, value in KERNEL_SETTINGS.items():
        file = Path("/run") / name.replace("/", "-")
        file.write_text(f"{value}\n")
        _run("mount", "--bind", str(file), f"/proc/sys/{name}")


def set_up_network(addresses: Addresses) -> None:
    """Give the node its address. There is no default route: nothing in the cluster reaches the outside."""
    Path("/proc/sys/kernel/hostname").write_text(NODE_NAME)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{addresses.node}/30", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    # Addresses of Services need some route before kube-proxy's rules replace them.
    _run("ip", "route", "add", str(addresses.services), "dev", "lo", "src", str(addresses.node))
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def import_images() -> None:
    for archive in sorted(IMAGES.glob("*.tar")):
        _run(*CTR, "images", "import", str(archive))


def start(program: Program) -> Running:
    """Start a program and return when the next one can start.

    Raises:
        RuntimeError: it ended or did not become ready.
    """
    log = INSIDE / "logs" / f"{program.name}.log"
    running = _spawn(program)

    def failure() -> str:
        return f"{program.name} did not become ready. The end of {log.name}:\n{log.read_text(errors='replace')[-3000:]}"

    def ready() -> bool:
        if running.process.poll() is not None:
            raise RuntimeError(failure())
        return program.ready()

    wait_until(ready, failure)
    return running


def restart_forever(running: list[Running]) -> None:
    """Wait for processes, as process 1 has to, and start programs again that ended."""
    while True:
        pid, status = os.wait()
        for position, ended in enumerate(running):
            if ended.process.pid == pid:
                name, code = ended.program.name, os.waitstatus_to_exitcode(status)
                print(f"{name} ended with status {code}. Restarting it.", flush=True)  # noqa: T201
                time.sleep(RESTART_DELAY_S)
                running[position] = _spawn(ended.program)


def _spawn(program: Program) -> Running:
    with (INSIDE / "logs" / f"{program.name}.log").open("ab") as log:
        process = subprocess.Popen(program.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return Running(program=program, process=process)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError) as error:
        sys.exit(f"The node did not start: {error}")
