"""``elasticdl events decode``: messages that NATS' own tools have printed, as text."""

from __future__ import annotations

import sys
from pathlib import Path

from elasticdl.cli.display.consoles import plain_console
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.views.stored_messages import message_text, messages_of

STDIN = "-"


def decode(file: str, subject: str) -> None:
    """Print the messages, one line each.

    Raises:
        UserError: there are none, or one can't be read.
    """
    with file_errors(f"can't read {file}"):
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).expanduser().read_bytes()
    lines = [message_text(message) for message in messages_of(content, subject)]
    for line in lines:
        plain_console().print(line)
    if not lines:
        raise UserError("there is no message to decode", hint="nats stream get STREAM NUMBER --json prints one.")
