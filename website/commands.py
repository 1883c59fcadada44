"""The pages of the command line: every command with its arguments and flags, as ``--help`` shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from elasticdl.cli.main import CLUSTERS, DATA, JOBS, TRAIN, app
from website.markdown import table, unbroken

GROUPS = {TRAIN: "run", JOBS: "jobs", DATA: "data", CLUSTERS: "fleet"}
"""Heading of commands in ``elasticdl --help`` -> name of their page."""
_TITLES = {
    TRAIN: "Commands that run jobs",
    JOBS: "Commands for jobs",
    DATA: "Commands for data and models",
    CLUSTERS: "Commands for shared clusters",
}
_FLAG = re.compile(r"(?<![\w`-])--[a-z]\w*(?:=[\w.+:-]*\w)?")
_COMMON = "Options"
"""Heading of the flags that have none of their own."""


def pages() -> Iterator[tuple[str, str]]:
    """(path, Markdown) of each page."""
    groups = {group: list(_commands(group)) for group in GROUPS}
    yield "reference/cli/index.md", _overview(groups)
    for group, commands in groups.items():
        parts = [f"# {_TITLES[group]}\n"]
        for name, command in commands:
            parts.append(_command(name, command))
        yield f"reference/cli/{GROUPS[group]}.md", "\n".join(parts)


def _commands(group: str) -> Iterator[tuple[str, Any]]:
    """(name with its parents, command) of a group."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        if command.rich_help_panel == group:
            for inner, each in getattr(command, "commands", {"": command}).items():
                yield f"{name} {inner}".strip(), each


def _overview(groups: dict[str, list[tuple[str, Any]]]) -> str:
    root: Any = typer.main.get_command(app)
    parts = [f"# Command line\n\n{root.help}\n", "`elasticdl COMMAND --help` prints the same in a terminal.\n"]
    for group, commands in groups.items():
        rows = [
            (f"[`elasticdl {name}`]({GROUPS[group]}.md#{_anchor(name)})", _text(command.help).split("\n\n")[0])
            for name, command in commands
        ]
        parts += [f"## {_TITLES[group]}\n", table(("command", "does"), rows)]
    own = table(("flag", "default", "meaning"), [_row(option) for option in root.params if not option.hidden])
    return "\n".join([*parts, "## Flags of the program itself\n", own])


def _anchor(name: str) -> str:
    return f"elasticdl-{name.replace(' ', '-')}"


def _command(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name != "argument" and not each.hidden]
    usage = " ".join(["elasticdl", name, "[OPTIONS]", *map(_argument, arguments)])
    parts = [f"## elasticdl {name}\n", f"```text\n{usage}\n```\n", f"{_text(command.help)}\n"]
    if arguments:
        parts.append(
            table(("argument", "meaning"), [(unbroken(_metavar(each)), _text(each.help)) for each in arguments])
        )
    panels: dict[str, list[Any]] = {}
    for each in options:
        panels.setdefault(each.rich_help_panel or _COMMON, []).append(each)
    for panel, members in panels.items():
        parts += [f"**{panel}**\n"] if len(panels) > 1 else []
        parts.append(table(("flag", "default", "meaning"), map(_row, members)))
    return "\n".join(parts)


def _argument(argument: Any) -> str:
    name = _metavar(argument) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _row(option: Any) -> tuple[str, str, str]:
    names: list[str] = [*option.opts, *option.secondary_opts]
    if not option.is_flag:
        names[0] += f"={_value(option)}"
    return "<br>".join(map(unbroken, names)), _default(option), _text(option.help)


def _value(option: Any) -> str:
    choices = getattr(option.type_descriptor.annotation, "__args__", ())
    if option.metavar or not choices:
        return str(option.metavar or "VALUE")
    return "|".join(map(str, choices))


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag:
        return "on" if option.default and option.secondary_opts else "off"
    return "" if option.default in (None, "", []) else f"`{option.default}`"


def _text(text: str | None) -> str:
    """A help text as Markdown; flags that it names become code."""
    escaped = (text or "").replace("``", "`").replace("*", "\\*").replace("<", "&lt;").strip()
    return _FLAG.sub(lambda flag: unbroken(flag[0]), escaped)
