"""Flags that list items: ``NAME=VALUE,NAME=VALUE``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import DataFlags, JobFlags
from elasticdl.shared.job.options import values_for
from elasticdl.shared.kubernetes.quantities import parse_bytes
from elasticdl.shared.process.keras_backend import KERAS_BACKEND, TENSORFLOW
from elasticdl.shared.words import listed

if TYPE_CHECKING:
    from elasticdl.shared.data import ReaderOptions

_NEXT_COLUMN = re.compile(r",(?=[^,=]+=)")
_NEXT_VARIABLE = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")
_VARIABLE_AFTER_SEMICOLON = re.compile(r";\s*[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(
    r"(^|_)(PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|SECRETS?|TOKENS?|KEY|KEYS|APIKEY|CREDENTIALS?|DSN)(_|$)"
    r"|PASSWORD|SECRET|TOKEN|CREDENTIAL",
    re.IGNORECASE,
)


def parse_envs(text: str) -> dict[str, str]:
    """Split ``--envs`` (``NAME=value,NAME=value``). A comma belongs to a value unless ``NAME=`` follows it.

    Raises:
        UserError: an item has no name, or would make Keras use another backend than TensorFlow.
    """
    variables: dict[str, str] = {}
    for item in _NEXT_VARIABLE.split(text) if text else ():
        name, equals, value = item.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise UserError(f"--envs: the item {name[:40]!r} is not of the form NAME=value", usage=True)
        if _VARIABLE_AFTER_SEMICOLON.search(value):
            raise UserError(
                f"--envs: the value of {name} may be several variables, which are separated by commas, not by ';'",
                hint=f"If it is the value of {name}, set this variable in the environment of elasticdl train instead. "
                "Workers and parameter servers inherit it.",
                usage=True,
            )
        if name == KERAS_BACKEND and value != TENSORFLOW:
            raise UserError(
                f"--envs: jobs train with Keras on TensorFlow, so {item} can't be set", hint="Leave it out.", usage=True
            )
        variables[name] = value
    return variables


def envs_text(variables: Mapping[str, str]) -> str:
    """Inverse of ``parse_envs``."""
    return ",".join(f"{name}={value}" for name, value in variables.items())


def split_secrets(variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables that anyone may read, and those whose names say that they are secret, such as ``API_KEY``."""
    secret = {name: value for name, value in variables.items() if _SECRET.search(name)}
    return {name: value for name, value in variables.items() if name not in secret}, secret


def parse_columns(flag: str, text: str) -> dict[str, str]:
    """Split ``NAME=VALUE,NAME=VALUE``. A comma belongs to a value unless ``NAME=`` follows it.

    Args:
        flag: without dashes, named in errors.

    Raises:
        UserError: an item is not of this form, or a column occurs twice.
    """
    columns: dict[str, str] = {}
    for item in _NEXT_COLUMN.split(text) if text else ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UserError(f"--{flag}: {item!r} is not of the form NAME=VALUE", usage=True)
        if name in columns:
            raise UserError(f"--{flag} names column {name!r} twice", usage=True)
        columns[name] = value
    return columns


def parse_size(flag: str, text: str) -> int:
    """Read a number of bytes, such as ``500Mi`` or ``1e9``."""
    try:
        return parse_bytes(text.strip())
    except ValueError as error:
        raise UserError(
            f"--{flag}={text} is not a size",
            hint="Give a number of bytes, or one with a unit: 500Mi, 10Gi, 2Ti.",
            usage=True,
        ) from error


def parse_local_folder(flag: str, text: str) -> str:
    """Read the path of a folder on the workers' machines, and make it absolute; empty: none is given."""
    if "://" in text:
        raise UserError(
            f"--{flag}={text} is not a folder on the workers' machines", hint="Give a local path.", usage=True
        )
    return str(Path(text).expanduser().absolute()) if text else ""


def data_cache(flags: JobFlags) -> dict[str, Any]:
    """Folder and size of the data cache, as the fields of the ``JobSpec``."""
    return {
        "data_cache_dir": parse_local_folder("data_cache_dir", flags.data_cache_dir),
        "data_cache_bytes": parse_size("data_cache_size", flags.data_cache_size),
    }


def reader_options(flags: DataFlags | JobFlags) -> ReaderOptions:
    """What the flags say about reading data."""
    from elasticdl.shared.data import ReaderOptions  # Imports pyarrow, which help texts do not need.

    return ReaderOptions(
        columns=listed(flags.columns),
        column_types=parse_columns("column_types", flags.column_types),
        fill_missing=parse_columns("fill_missing", flags.fill_missing),
        **values_for("ReaderOptions", flags),
    )
