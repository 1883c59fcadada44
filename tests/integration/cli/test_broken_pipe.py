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


def unread(program: str) -> tuple[bytes, int]:
    """What a program prints on stderr, and its exit code, if its output is closed after its first line."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        process.stdin.close()
        return process.stderr.read(), process.wait()


def test_a_command_that_is_read_without_typer_ends_quietly_when_its_output_is_not_read() -> None:
    assert unread(PRINTER) == (b"", FAILURE)


def test_a_job_continues_when_its_output_is_not_read() -> None:
    assert unread(TALKER) == (b"went on\n", 0)
