"""A command whose output pipe is closed."""

from __future__ import annotations

import subprocess
import sys

from elasticdl.cli.exit_codes import FAILURE

TALKER = """
import sys
from elasticdl.cli.display.consoles import JobConsole
console = JobConsole()
console.print("first", soft_wrap=True)
assert not console.has_lost_reader
sys.stdin.read()
console.print("second")
console.print("third")
assert console.has_lost_reader
print("went on", file=sys.stderr)
"""


PRINTER = """
import sys
from elasticdl.cli.exit_codes import run_guarded
def run():
    print("first", flush=True)
    sys.stdin.read()
    while True:
        print("second")
run_guarded(run, [])
"""


def test_a_command_that_is_read_without_typer_ends_quietly_when_its_output_is_not_read() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PRINTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as printer:
        assert printer.stdin is not None and printer.stdout is not None and printer.stderr is not None
        assert printer.stdout.readline() == b"first\n"
        printer.stdout.close()
        printer.stdin.close()
        assert printer.stderr.read() == b""
        assert printer.wait() == FAILURE


def test_a_job_continues_when_its_output_is_not_read() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TALKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as talker:
        assert talker.stdin is not None and talker.stdout is not None and talker.stderr is not None
        assert talker.stdout.readline() == b"first\n"
        talker.stdout.close()
        talker.stdin.close()
        assert talker.stderr.read() == b"went on\n"
        assert talker.wait() == 0
