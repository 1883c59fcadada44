"""``python -m tests.cluster COMMAND``: the Kubernetes node for tests, and namespaces for jobs in it."""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.cluster import host, requirements
from tests.cluster.deployment import delete, deploy
from tests.cluster.preparation import LackingError, prepare
from tests.cluster.sites import Site

EXIT_NO_TIME = 124
"""Exit code of ``prepare`` if something takes too long, on a machine with much other work; that of ``timeout``."""
EXIT_LACKING = 3
"""Exit code of ``prepare`` on a machine that lacks something."""


def main() -> None:
    """Run the command of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("command", choices=["packages", "prepare", "up", "down", "deploy", "delete"])
    parser.add_argument("namespace", nargs="?", default="elasticdl", help="for deploy and delete; default: elasticdl")
    parser.add_argument("--name", default=Site().name, help="clusters of different names run side by side")
    arguments = parser.parse_args()
    site = Site(name=arguments.name)
    try:
        match arguments.command:
            case "packages":
                print(*requirements.to_install(requirements.NODE_PACKAGES | requirements.IMAGE_PACKAGES))  # noqa: T201
            case "prepare":
                prepare()
            case "up":
                host.start(site)
                print(f"The test cluster is ready. To use it:\n\n    export KUBECONFIG={site.kubeconfig}")  # noqa: T201
            case "down":
                host.stop(site)
            case "deploy":
                deployment = deploy(site, arguments.namespace)
                print("NATS and MinIO are ready. To use them from this machine:\n")  # noqa: T201
                for name, value in deployment.environment.items():
                    print(f"    export {name}={value}")  # noqa: T201
            case "delete":
                delete(site, arguments.namespace)
    except LackingError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_LACKING)
    except subprocess.TimeoutExpired as error:
        sys.stderr.write(f"{error.cmd[0]} took more than {error.timeout:.0f} s\n")
        sys.exit(EXIT_NO_TIME)
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
