"""Job files: the flags of a command in a YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elasticdl.cli.flag_values import as_text, plain_value, wrong_type, yaml_value
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.job.options import FlagType
from elasticdl.shared.words import did_you_mean

_COLUMNS = 120
"""Width of the lines of a file that is written."""


def read_job_file(file: Path, known: Mapping[str, FlagType]) -> dict[str, Any]:
    """The flags that a job file gives, as values for the command line.

    Raises:
        UserError: the file can't be read, is no mapping of flags, has an unknown flag or one flag twice, or a value
            has the wrong type. Names the line.
    """
    values = {}
    for line, name, value in _entries(file):
        place = f"--file={file}, line {line}"
        if name not in known:
            hint = did_you_mean(name, known, "Its keys are the names of flags, without dashes.")
            raise UserError(f"{place}: unknown flag {name!r}", hint=hint, usage=True)
        if name in values:
            raise UserError(f"{place}: {name} is given a second time", hint="Remove one of them.", usage=True)
        wrong = wrong_type(name, value, known[name]) if value is not None else ""
        if wrong:
            raise UserError(f"{place}: {wrong}", usage=True)
        values[name] = value
    texts = {
        name: as_text(name, plain_value(value, known[name])) for name, value in values.items() if value is not None
    }
    return {name: [text] if known[name].repeated else text for name, text in texts.items()}


def job_file_text(command: str, values: Mapping[str, Any], known: Mapping[str, FlagType]) -> str:
    """A job file that gives a command the same flags."""
    import yaml

    content = {name: yaml_value(value, known[name]) for name, value in values.items()}
    lines = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=_COLUMNS)
    return f"# elasticdl {command} -f FILE\n{lines}"


def _entries(file: Path) -> Iterator[tuple[int, str, Any]]:
    """The line, name and value of each flag in a file."""
    import yaml

    try:
        with file_errors(f"--file={file} can't be read", usage=True):
            loader = yaml.SafeLoader(file.read_text())
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise UserError(
                f"--file={file} has no flags", hint="Write one flag in each line, such as num_workers: 4", usage=True
            )
        entries = [
            (key.start_mark.line + 1, str(loader.construct_object(key)), loader.construct_object(value, deep=True))
            for key, value in root.value
        ]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"--file={file} is not YAML: {' '.join(str(error).split())}", usage=True) from error
    yield from entries
