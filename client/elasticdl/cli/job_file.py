"""Job files: the flags of a command in a YAML file, and values of flags as Python and YAML write them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticdl.shared.errors import UserError


def read_job_file(file: Path, known: Mapping[str, bool]) -> dict[str, Any]:
    """The flags that a job file gives, as values for the command line.

    Args:
        file: its path.
        known: the flags of the command; whether each can be given several times.

    Raises:
        UserError: the file can't be read, is no mapping of flags, or has an unknown flag.
    """
    import yaml

    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise UserError(f"--file={file} can't be read: {error.strerror}", usage=True) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"--file={file} is not YAML: {' '.join(str(error).split())}", usage=True) from error
    if not isinstance(content, dict):
        raise UserError(
            f"--file={file} has no flags", hint="Write one flag in each line, such as num_workers: 4", usage=True
        )
    for name in map(str, content):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "Its keys are the names of flags, without dashes."
            raise UserError(f"--file={file} has the unknown flag {name!r}", hint=hint, usage=True)
    values = {name: as_text(name, value) for name, value in content.items() if value is not None}
    return {name: [value] if known[name] else value for name, value in values.items()}


def as_text(name: str, value: Any) -> Any:
    """A value of a flag as the command line takes it.

    Args:
        name: of the flag.
        value: a dict for ``NAME=VALUE`` items, a list for several values, or anything else, which stays as it is.
    """
    if isinstance(value, Mapping):
        separator = ";" if name == "model_params" else ","
        return separator.join(f"{key}={_item(name, item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return value


def _item(flag: str, value: Any) -> str:
    """A value of ``NAME=VALUE``; ``--model_params`` reads Python literals, and text as it is."""
    return repr(value) if flag == "model_params" and not isinstance(value, str) else str(value)
