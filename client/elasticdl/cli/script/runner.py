"""Runs a script as ``python script.py`` does, with ``fit()`` replaced."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elasticdl.cli import exit_codes
from elasticdl.cli.flag_values import as_flags
from elasticdl.cli.script.launcher import JobError, JobInterrupt, Launchers, former_jobs
from elasticdl.cli.script.places import LocalPlace, Place
from elasticdl.cli.script.replacing import replace_fit
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.options import flags_of, plain_values
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.process.keras_backend import KERAS_BACKEND, TENSORFLOW

_OUR_FRAMES = 2
"""Frames of a traceback that are ours: that of ``_execute`` and that of its caller."""


def run_script(
    flags: Any,
    pods: KubernetesFlags,
    script: Path,
    arguments: Sequence[str],
    root: Path,
    resumed: str = "",
    *,
    as_fit: bool = False,
) -> int:
    """Run a script to its end.

    Args:
        flags: ``ScriptFlags`` for its jobs.
        arguments: of the script.
        root: folder of the jobs' folders.
        resumed: id of the job at which to continue the script; empty: run it from its beginning.
        as_fit: whether the progress is shown as ``fit()`` shows it.

    Returns:
        The exit code: that of the script, or of a job that has failed.

    Raises:
        UserError: there is no such script, or a call of ``fit()`` in it can't become a job.
    """
    if not script.is_file():
        raise UserError(f"there is no script {script}", usage=True)
    script = script.absolute()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault(KERAS_BACKEND, TENSORFLOW)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    place = place_of(flags, pods, root, as_fit=as_fit)
    former = former_jobs(place, script, resumed, arguments)
    with Launchers(flags, pods, root, place, former, as_fit=as_fit) as launchers:

        def fit(model: Any, original: Any, args: Any, kwargs: Any) -> Any:
            from elasticdl.cli.script.fit import fit as run  # Keras is there now.

            return run(model, original, args, kwargs, launchers, script)

        replace_fit(fit)
        try:
            code = _execute(script, arguments)
        except JobError as error:
            return error.exit_code
        except KeyboardInterrupt as interrupt:
            if not isinstance(interrupt, JobInterrupt):  # Its launcher has said more.
                sys.stderr.write("Interrupted.\n")
            return exit_codes.INTERRUPTED
        except ElasticDLError:
            raise
        except Exception as error:
            traceback = error.__traceback__
            for _ in range(_OUR_FRAMES):
                traceback = traceback.tb_next if traceback is not None else None
            sys.excepthook(type(error), error.with_traceback(traceback), traceback)
            return exit_codes.FAILURE
        _join_threads()
        return code


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()


def place_of(flags: Any, pods: KubernetesFlags, root: Path, *, as_fit: bool = False) -> Place:
    """Where the jobs of a script run."""
    known = {**flags_of(type(flags)), **flags_of(KubernetesFlags)}
    if flags.platform != "kubernetes":
        given = {name: value for name, value in plain_values(flags).items() if not known[name].is_secret}
        given.pop("run_dir", None)
        return LocalPlace(root, [*as_flags(given, known, "run"), *["--progress=fit"] * as_fit])
    from elasticdl.cli.script.cluster import ClusterPlace

    return ClusterPlace({**plain_values(flags), **plain_values(pods)}, known)


def _execute(script: Path, arguments: Sequence[str]) -> int:
    """Run the script as the module ``__main__``; returns what it gives to ``sys.exit()``."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(script), __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv = [str(script), *arguments]
    sys.path[0:1] = [str(script.parent)]
    try:
        exec(compile(script.read_bytes(), str(script), "exec"), main.__dict__)  # noqa: S102  It is the user's script.
    except SystemExit as ended:
        if isinstance(ended.code, int) or ended.code is None:
            return ended.code or exit_codes.SUCCESS
        sys.stderr.write(f"{ended.code}\n")
        return exit_codes.FAILURE
    return exit_codes.SUCCESS
