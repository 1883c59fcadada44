"""Options of the command line: renders the declarations of ``elasticdl.shared.job.options`` as parameters of typer.

An option is a parameter of a command, or a field of a dataclass that a command takes as a whole. The import of typer
takes a good part of a command that looks at a job, so the usual command lines of those are read without it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from elasticdl.shared.job.job_options import Debug
from elasticdl.shared.job.options import Flag, FlagType, Seconds, flag_of, flags_of, hints_of, types_of, without_none

if TYPE_CHECKING:
    import typer

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_PLAIN_TEXTS: Mapping[type, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    str: (re.compile(r"[^-].*"), str),
    Path: (re.compile(r"[^-].*"), Path),
    int: (re.compile(r"[0-9]{1,9}"), int),
    float: (re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"), float),
}
"""Of each type the texts that can't mean anything else, and what reads them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """A value that is given without a name; ``least``: of a number."""

    metavar: str
    help: str
    least: int | None = None


Job = Annotated[str, Argument("JOB", "The job's id, or its name if only one job has that name.")]
JobOrFile = Annotated[str, Argument("JOB", "The job's id or name, or a file that elasticdl events export has written.")]
POINT = 'its number, a time (17:51:36, +90s), or "first" or "last" and a type of event ("first WorkerLost")'
Until = Annotated[str, Flag(f"The last event that counts: {POINT}.", metavar="POINT", shows="the last one")]
Json = Annotated[bool, Flag("Print one JSON object.", name="json")]
PrintJobFile = Annotated[
    bool,
    Flag(
        "Check the flags, print the job file that is equal to this command line, and exit: for elasticdl COMMAND -f.",
        panel="Run",
    ),
]


def command(
    app: typer.Typer, name: str = "", *, panel: str = "", bare_help: bool = False, for_script: bool = False
) -> Callable[..., Any]:
    """Register a function as a command; every command also takes ``--debug``.

    Args:
        name: the command's name; the function's if empty.
        for_script: its options end at its first argument; all that follows is for a script.
    """
    settings = {"allow_interspersed_args": False} if for_script else None

    def register(function: Callable[..., None]) -> Callable[..., None]:
        options, run = _translated(function)
        run.__name__, run.__doc__ = function.__name__, inspect.getdoc(function)
        run.__dict__["__signature__"] = inspect.Signature(options)
        registered = app.command(
            name or None, rich_help_panel=panel or None, no_args_is_help=bare_help, context_settings=settings
        )
        registered(run)
        return function

    return register


def given_values(context: typer.Context, *groups: Any) -> dict[str, Any]:
    """The values that a command line and its job file give, in the order of the declarations."""
    return {
        field.name: getattr(group, field.name)
        for group in groups
        for field in dataclasses.fields(group)
        if (source := context.get_parameter_source(field.name)) is not None and source.name != "DEFAULT"
    }


def plain_switches(arguments: list[str], *owners: type) -> list[str]:
    """Turn ``--switch=true`` into ``--switch``, the form of ElasticDL's first command line.

    ``--switch=false`` is dropped, or becomes the name that turns the switch off.

    Args:
        owners: dataclasses; their fields that are on or off are the switches.
    """
    switches: dict[str, str] = {}
    for owner in owners:
        kinds = types_of(owner)
        switches |= {f"--{name}": flag.off for name, flag in flags_of(owner).items() if kinds[name].kind is bool}
    kept = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name in switches and value.lower() in _FALSE:
            kept += [f"--{switches[name]}"] if switches[name] else []
            continue
        kept.append(name if equals and name in switches and value.lower() in _TRUE else argument)
    return kept


def split_script(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments of ``elasticdl run``, and the script with its own arguments; of other commands, all and none."""
    if arguments[:1] != ["run"]:
        return arguments, []
    place = next(
        (n for n, one in enumerate(arguments) if one.endswith(".py") and not one.startswith("-")), len(arguments)
    )
    return arguments[:place], arguments[place:]


def with_default_choice(arguments: Sequence[str], flag: str, choices: Sequence[str]) -> list[str]:
    """Turn a flag that is given without one of its values into ``FLAG=VALUE``, with the first of its choices."""
    following = [*arguments[1:], ""]
    return [
        f"{flag}={choices[0]}" if argument == flag and after not in choices else argument
        for argument, after in zip(arguments, following, strict=True)
    ]


def plain_command(function: Callable[..., None], arguments: Sequence[str]) -> Callable[[], None] | None:
    """Read a command line without typer. Returns None if only typer can tell what it means, or what is wrong."""
    own, hints = _own(function), typing.get_type_hints(function, include_extras=True) | {"debug": Debug}
    values = {name: default for name, _, default in own} | {"debug": False}
    options = {f"--{flag.name or name}": name for name, hint in hints.items() if (flag := flag_of(hint)) is not None}
    places = [name for name, hint in hints.items() if _argument_of(hint) is not None]
    kinds = types_of(function) | {"debug": FlagType(bool)}
    missing, rest = {name for name, default in values.items() if default is inspect.Parameter.empty}, iter(arguments)
    given: set[str] = set()
    for each in rest:
        spelled, equals, text = each.partition("=")
        if not each.startswith("-"):
            name, text = places.pop(0) if places else "", each
        else:
            name = options.get(spelled, "")
        if not name or name in given or (name in kinds and (kinds[name].choices or kinds[name].repeated)):
            return None
        kind = kinds[name].kind if name in kinds else without_none(typing.get_args(hints[name])[0])
        if kind is bool:
            if equals:
                return None
            values[name] = True
        else:
            pattern, read = _PLAIN_TEXTS.get(kind, (None, str))
            text = text if equals or name not in kinds else next(rest, "")
            if pattern is None or not pattern.fullmatch(text):
                return None
            values[name] = read(text)
            argument = _argument_of(hints[name])
            if argument is not None and argument.least is not None and values[name] < argument.least:
                return None
        given.add(name)
    return None if missing - given else partial(_run_of(function, own, {}), **values)


def _argument_of(hint: Any) -> Argument | None:
    return next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Argument)), None)


def _own(function: Callable[..., None]) -> list[tuple[str, Any, Any]]:
    """Name, annotation and default of each parameter that is no group of options."""
    hints = typing.get_type_hints(function, include_extras=True)
    return [
        (parameter.name, hints[parameter.name], parameter.default)
        for parameter in inspect.signature(function).parameters.values()
        if not dataclasses.is_dataclass(hints[parameter.name])
    ]


def _translated(function: Callable[..., None]) -> tuple[list[inspect.Parameter], Callable[..., None]]:
    """The options of a function for typer, and the function that takes them."""
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    own = _own(function)
    declared = [*own, *(field for owner in groups.values() for field in _fields(owner))]
    options = [_option(*each, panels=bool(groups)) for each in declared]
    if groups:
        options.append(_file_option(types_of(*groups.values())))
    if "debug" not in {option.name for option in options}:
        options.append(_option("debug", Debug, False, panels=False))
    return options, _run_of(function, own, groups)


def _run_of(
    function: Callable[..., None], own: Sequence[tuple[str, Any, Any]], groups: Mapping[str, Any]
) -> Callable[..., None]:
    """The function that takes the values of all options, checks them and calls a command."""
    declared = [*own, *(field for owner in groups.values() for field in _fields(owner))]
    flags = {name: flag for name, hint, _ in declared if (flag := flag_of(hint)) is not None}

    def run(**values: Any) -> None:
        _configure_logging(debug=values["debug"])
        for name, flag in flags.items():
            flag.check(flag.name or name, values[name])
            if flag.repeated:
                values[name] = ",".join(values[name])
        arguments = {name: values[name] for name, _, _ in own}
        for group, owner in groups.items():
            arguments[group] = owner(**{name: values[name] for name, _, _ in _fields(owner)})
        function(**arguments)

    return run


def _file_option(known: Mapping[str, FlagType]) -> inspect.Parameter:
    """``--file``, whose flags count where the command line does not give them."""

    def read(context: typer.Context, file: Path | None) -> None:
        if file is not None:
            from elasticdl.cli.job_file import read_job_file

            context.default_map = read_job_file(file, known)

    import typer

    read.__annotations__["context"] = typer.Context  # Typer finds no name in this module that it lacks.
    option = typer.Option(
        *("--file", "-f"),
        metavar="FILE",
        help="YAML file with flags, such as num_workers: 4. Flags of the command line take precedence.",
        callback=read,
        is_eager=True,
        expose_value=False,
        rich_help_panel="Run",
    )
    hint = Annotated[Path | None, option]
    return inspect.Parameter("file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def _configure_logging(*, debug: bool) -> None:
    """Hide log messages of our libraries, which are meant for services: commands print what users need to know."""
    from elasticdl.shared.process.logs import hide_details

    hide_details(debug=debug)


def _fields(owner: type) -> Iterator[tuple[str, Any, Any]]:
    hints = hints_of(owner)
    for field in dataclasses.fields(owner):
        required = field.default is dataclasses.MISSING
        yield field.name, hints[field.name], inspect.Parameter.empty if required else field.default


def _option(name: str, hint: Any, default: Any, *, panels: bool) -> inspect.Parameter:
    import typer

    flag, argument = flag_of(hint), _argument_of(hint)
    if argument is not None:
        shown = typer.Argument(metavar=argument.metavar, help=argument.help, min=argument.least)
        hint = Annotated[typing.get_args(hint)[0], shown]
    if flag is not None:
        spelled = flag.name or name
        names = [
            f"--{spelled}/--{flag.off}" if flag.off else f"--{spelled}",
            *([f"-{flag.letter}"] * bool(flag.letter)),
        ]
        option = typer.Option(
            *names,
            metavar=flag.metavar or None,
            parser=_parser(typing.get_args(hint)[0]),
            help=flag.help,
            show_default=flag.shows or not flag.repeated,
            rich_help_panel=flag.panel if panels and flag.panel else None,
        )
        hint = Annotated[list[str] if flag.repeated else typing.get_args(hint)[0], option]
        if flag.repeated and default is not inspect.Parameter.empty:
            default = []
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _parser(kind: Any) -> Callable[[str], Any] | None:
    """What reads the text of an option where typer's own reading is not enough."""
    if kind is Seconds:
        return _seconds
    return filled_path if kind is Path or Path in typing.get_args(kind) else None


def filled_path(text: str) -> Path:
    """A path. An empty text is none, although ``Path("")`` is the working directory."""
    if not text:
        import typer

        raise typer.BadParameter("the path is empty")
    return Path(text)


def _seconds(text: str) -> float:
    try:
        return float(Seconds(text))
    except ValueError as error:
        import typer

        raise typer.BadParameter(str(error)) from error
