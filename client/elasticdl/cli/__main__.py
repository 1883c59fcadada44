"""The ``elasticdl`` command. It handles signals before it imports the application, which takes a moment."""

from __future__ import annotations

import sys

from elasticdl.cli import exit_codes, interrupts, surroundings


def main() -> None:
    """Entry point of the ``elasticdl`` command."""
    surroundings.use_utf8()
    interrupts.catch()
    try:
        from elasticdl.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(exit_codes.INTERRUPTED)
    finally:
        interrupts.ignore()


if __name__ == "__main__":
    main()
