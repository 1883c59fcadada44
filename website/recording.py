"""Records docs/recording.svg: the README's job in a terminal, while one of its workers and its ps are killed.

    make recording

termtosvg runs the command in a terminal and draws it. This script reads along and kills processes at fixed epochs.
"""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

KILLS = {b"(end of epoch 7)": "worker-0", b"(end of epoch 16)": "ps-0"}
"""Text on the screen, and the pod whose process is killed once it stands there."""
COLUMNS, ROWS = 110, 34
PROMPT = "\x1b[1;32m$\x1b[0m "


def command(work: Path, output: Path) -> list[str]:
    """The arguments of termtosvg for a terminal in which the job of the README trains."""
    train = (
        "elasticdl train --model_def=mnist_functional_api.custom_model --training_data=mnist/train \\\n"
        "      --validation_data=mnist/test --num_epochs=30 --output=output"
    )
    script = work / "record.sh"
    script.write_text(f"cd {work}\nprintf '%s\\n' '{PROMPT}{train}'\n{train}\nsleep 3\n")
    shown = ["-g", f"{COLUMNS}x{ROWS}", "-m", "100", "-M", "1000", "-D", "4000", "-t", "gjm8"]
    return ["termtosvg", str(output), "-c", f"sh {script}", *shown]


def kill(pod: str, recorder: int) -> None:
    """Kill the process of a pod of the recorded job."""
    for process in psutil.Process(recorder).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It has ended meanwhile.
            if " ".join(process.cmdline()).startswith(f"elasticdl {pod} "):
                process.send_signal(signal.SIGKILL)


def record(arguments: list[str]) -> int:
    """Run the recorder in a terminal of its own; its exit code."""
    recorder, terminal = pty.fork()
    if recorder == 0:
        os.execvp(arguments[0], arguments)  # noqa: S606
    waiting, seen = dict(KILLS), b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # The recorder has closed the terminal.
            break
        if not read:
            break
        seen = (seen + read)[-65536:]
        for text in [text for text in waiting if text in seen]:
            kill(waiting.pop(text), recorder)
    status = os.waitstatus_to_exitcode(os.waitpid(recorder, 0)[1])
    if waiting:
        sys.exit(f"The recording ended before {', '.join(waiting.values())} was killed.")
    return status


if __name__ == "__main__":
    # Paths are printed, so the job and its folders lie where no path names a user.
    with tempfile.TemporaryDirectory(prefix="elasticdl-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        subprocess.run(["elasticdl", "zoo", "data", "mnist", f"{folder}/mnist"], check=True)
        sys.exit(record(command(Path(folder), Path(sys.argv[1]).resolve())))
