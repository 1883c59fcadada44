"""``tf.print`` of user code goes where ``print`` goes: to standard output, which is shown to the user.

By default it writes to the C library's standard error: into the worker's log file, among TensorFlow's own lines.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import tensorflow as tf

_tensorflow_print = tf.print


@functools.wraps(_tensorflow_print)
def _print(*inputs: Any, **options: Any) -> Any:
    options.setdefault("output_stream", sys.stdout)
    return _tensorflow_print(*inputs, **options)


_shown = tf.autograph.experimental.do_not_convert(_print)


def show_prints() -> None:
    """Have ``tf.print`` write to standard output unless it is told otherwise."""
    tf.print = _shown
