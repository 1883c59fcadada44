"""The page of settings: the environment variables that commands and the processes of a job read."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
from collections.abc import Iterator, Mapping

from elasticdl.cli.jobs.run_directory import ROOT_VARIABLE
from elasticdl.cli.kubernetes.lookup import NAMESPACE_VARIABLE
from elasticdl.shared.process.settings import (
    MasterSettings,
    ProcessSettings,
    PsSettings,
    WorkerSettings,
    variable,
)
from elasticdl.shared.storage.settings import StorageSettings
from website.markdown import table, unbroken

_COMMANDS = (
    (
        ROOT_VARIABLE,
        "Folder that holds one folder per job. `--run_dir` has precedence.",
        "`~/.local/state/elasticdl/jobs`",
    ),
    (NAMESPACE_VARIABLE, "Namespace of the cluster. `--namespace` has precedence.", "that of the kubeconfig"),
    ("KUBECONFIG", "File with the address of the Kubernetes cluster and your credentials.", "`~/.kube/config`"),
    (variable("nats_url"), "URL of the NATS server of jobs on Kubernetes.", "a connection through the API server"),
)
"""(variable, meaning, default) of those that commands read."""
_PRECEDENCE = (
    "Flags of a command take precedence over variables, and variables over defaults. The settings of a job itself are "
    "flags: see [commands that run jobs](cli/run.md).\n"
)
_OF_STORAGE = (
    "Commands and processes read the variables of other S3 tools. The first one that is set counts. Local files need "
    "none.\n"
)
_OF_PROCESSES = (
    "The launcher on one machine and the pods on Kubernetes set these. On Kubernetes, variables in the Secret "
    "`elasticdl` of the namespace reach every pod. Names that end in `_S` are in seconds, in `_BYTES_MAX` in bytes.\n"
)
_PROCESSES = (
    (ProcessSettings, "Every process of a job"),
    (MasterSettings, "The master"),
    (WorkerSettings, "Workers"),
    (PsSettings, "Parameter servers"),
)


def page() -> str:
    """Markdown of the whole page."""
    headings = ("variable", "meaning", "default")
    parts = [
        "# Environment variables\n",
        _PRECEDENCE,
        "## Commands\n",
        table(headings, [(unbroken(name), *rest) for name, *rest in _COMMANDS]),
        "## Object storage\n",
        _OF_STORAGE,
        table(headings, _storage()),
        "## Processes of a job\n",
        _OF_PROCESSES,
    ]
    inherited = {each.name for each in dataclasses.fields(ProcessSettings)}
    for cls, title in _PROCESSES:
        own = [each for each in dataclasses.fields(cls) if cls is ProcessSettings or each.name not in inherited]
        meanings = _field_docstrings(cls)
        rows = [(unbroken(variable(each.name)), meanings[each.name], _default(each)) for each in own]
        parts += [f"### {title}\n", table(headings, rows)]
    return "\n".join(parts)


def _default(each: dataclasses.Field[object]) -> str:
    if each.default is dataclasses.MISSING:
        return "required"
    return (
        ""
        if each.default == ""
        else f"`{str(each.default).lower() if isinstance(each.default, bool) else each.default}`"
    )


def _field_docstrings(cls: type) -> dict[str, str]:
    """Field -> the string below it in the class' source."""
    (body,) = (node.body for node in ast.walk(ast.parse(inspect.getsource(cls))) if isinstance(node, ast.ClassDef))
    found = {}
    for field, below in itertools.pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text.replace("``", "`")
    return found


def _storage() -> Iterator[tuple[str, str, str]]:
    """(variables, meaning, default) of each setting of the storage that the environment gives."""
    reads = _RecordedReads()
    StorageSettings.from_environment(reads)
    variables: dict[str, list[str]] = {}
    for name in reads.names:
        settings = StorageSettings.from_environment({name: "given"})
        for each in dataclasses.fields(StorageSettings):
            if getattr(settings, each.name) == "given":
                variables.setdefault(each.name, []).append(name)
    meanings = _field_docstrings(StorageSettings)
    for each in dataclasses.fields(StorageSettings):
        if each.name in variables:
            yield "<br>".join(map(unbroken, variables[each.name])), meanings[each.name], _default(each)


class _RecordedReads(Mapping[str, str]):
    """An empty environment that remembers for which variables it was asked."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.names.append(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
