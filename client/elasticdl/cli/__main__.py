"""The ``elasticdl`` command. It handles signals before it imports the application, which takes a moment."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import NoReturn

from elasticdl.cli import exit_codes, interrupts, surroundings
from elasticdl.shared.process.exit_codes import leave

INSPECTING = frozenset({"status", "report", "tasks", "task", "why", "replay", "metrics", "trace"})
"""Commands that start without the flags of new jobs; ``--debug=true`` is a form of those."""
_OBJECTS_UNTIL_COLLECTED = 50_000
"""Python's 700 let the garbage collector take a tenth of the start: it looks again and again at what was imported."""


def main() -> NoReturn:
    """Entry point of the ``elasticdl`` command."""
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTED)
    surroundings.use_utf8()
    interrupts.catch()
    code: object = exit_codes.SUCCESS
    try:
        if INSPECTING.intersection(sys.argv[1:2]) and not any(each.startswith("--debug=") for each in sys.argv):
            from elasticdl.cli.inspecting_commands import main as run
        else:
            from elasticdl.cli.main import main as run
        run()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        code = exit_codes.INTERRUPTED
    except SystemExit as ended:
        code = ended.code or exit_codes.SUCCESS
    finally:
        interrupts.ignore()
    if not isinstance(code, int):
        sys.exit(str(code))
    # Not as Python does it: a thread of pyarrow that frees an object while the interpreter ends aborts the process.
    atexit._run_exitfuncs()
    leave(code)


if __name__ == "__main__":
    main()
