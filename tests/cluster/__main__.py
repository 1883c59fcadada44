"""``python -m tests.cluster up|down``: start the Kubernetes node for tests, or take it down."""

from __future__ import annotations

import argparse
import sys

from tests.cluster import host
from tests.cluster.sites import Site


def main() -> None:
    """Run the command of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("command", choices=["up", "down"])
    parser.add_argument("--name", default=Site().name, help="clusters of different names run side by side")
    arguments = parser.parse_args()
    site = Site(name=arguments.name)
    try:
        if arguments.command == "down":
            host.stop(site)
        else:
            host.start(site)
            print(f"The test cluster is ready. To use it:\n\n    export KUBECONFIG={site.kubeconfig}")  # noqa: T201
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
