"""Running the user's functions: what they raise becomes a UserError that shows the user's own lines."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.words import some_of

FRAMES_MAX = 20
_COLUMNS_SHOWN = 50
_OUR_FOLDER = Path(__file__).parents[2]
_NEW_LINE = "\n"
_GRAPH_ERROR = "Graph execution error:"
_GRAPH_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OPERATION = re.compile(r"\{\{function_node [^}]*\}\} ?| ?\[Op:\w+\]( name:)?")
_IN_LAYER = re.compile(r"^Exception encountered when calling .+\.\s+", re.MULTILINE)
_GRAPH_NOISE = ("Graph execution error:", "Detected at node", "<stack traces unavailable>", "[[")
_WRONG_VALUES = "InvalidArgumentError"
_on_change: Callable[[str], None] | None = None
_script_folders: dict[Path, Path] = {}
"""The folder of a model file -> that of the script whose model was shipped with it."""
_running: list[str] = []
"""What runs, on all threads together, in the order of its begin."""


class UserCodeError(UserError):
    """A function of the user's model file raised.

    Attributes:
        traceback: the traceback's text, limited to frames of the user's files.
        is_about_values: an operation of TensorFlow does not take the values that it was given.
    """

    def __init__(self, message: str, *, hint: str = "", traceback: str = "", is_about_values: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.traceback = traceback
        self.is_about_values = is_about_values


class RecordError(UserError):
    """A record of a batch is wrong."""

    def __init__(self, message: str, *, hint: str = "", place: int) -> None:
        super().__init__(message, hint=hint)
        self.place = place


def follow_user_code(on_change: Callable[[str], None] | None) -> None:
    """Report from now on which user code this process runs.

    Args:
        on_change: called with a text such as ``running feed() of model.py`` when user code begins, and with that of the
            code around it (empty: none) when it ends. None: report no more.
    """
    global _on_change
    _on_change = on_change


def also_of_user(folder: Path, model_folder: Path) -> None:
    """Count the files of a script's folder as the user's, where the model in ``model_folder`` was shipped from it."""
    _script_folders[model_folder] = folder


class user_code:  # noqa: N801  A ``with`` statement reads like a call.
    """Runs user code in a ``with`` block; errors of this package pass, anything else is the user's.

    One object serves any number of blocks, on any threads.

    Args:
        path: the model file; frames of files in its folder count as the user's.
        what: what is being run, as the message shall name it (``feed()``).
        columns: names that are listed if the code asks for another one.

    Raises:
        UserCodeError: the code raised.
    """

    __slots__ = ("_columns", "_path", "_phase", "_what")

    def __init__(self, path: Path, what: str, columns: Collection[str] = ()) -> None:
        self._path = path
        self._what = what
        self._columns = columns
        self._phase = f"{what} {path.name}" if what == "importing" else f"running {what} of {path.name}"

    def __enter__(self) -> None:
        _running.append(self._phase)
        if _on_change is not None:
            _on_change(self._phase)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _running.remove(self._phase)
        if _on_change is not None:
            _on_change(_running[-1] if _running else "")
        if error is None or isinstance(error, ElasticDLError):
            return
        if isinstance(error, (Exception, SystemExit, KeyboardInterrupt)):  # It is reported, not handled.
            self._report(error)

    def _report(self, error: BaseException) -> NoReturn:
        cause, path = _original(error), self._path
        if isinstance(cause, ElasticDLError):
            raise cause from None
        frames = [frame for frame in _frames(cause) if is_users(Path(frame.filename), path.parent)][-FRAMES_MAX:]
        where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        message = _message(cause)
        kind, said = type(cause).__name__, f": {message}" if message else ""
        raise UserCodeError(
            f"{self._what} of {path.name} raised {kind}{where}{said.partition(_NEW_LINE)[0]}",
            hint=_columns_hint(cause, self._columns),
            traceback="".join([*traceback.format_list(frames), kind, said, _NEW_LINE]),
            is_about_values=kind == _WRONG_VALUES,
        ) from error


def _columns_hint(error: BaseException, columns: Collection[str]) -> str:
    if not isinstance(error, KeyError) or not columns or error.args[:1] == () or error.args[0] in columns:
        return ""
    return f"The data has the columns {some_of(columns, _COLUMNS_SHOWN)}."


def is_users(file: Path, folder: Path) -> bool:
    """Whether a file is the user's own, also where this package or an environment lies in the user's folder."""
    found = next((one for one in (folder, _script_folders.get(folder)) if one and file.is_relative_to(one)), None)
    if found is None or file.is_relative_to(_OUR_FOLDER):
        return False
    return "site-packages" not in file.relative_to(found).parts


def _original(error: BaseException) -> BaseException:
    """The exception that was raised, where AutoGraph has replaced it by one with a longer message."""
    while error.__context__ is not None and hasattr(error.__context__, "ag_error_metadata"):
        error = error.__context__
    return error


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of an exception, outermost first.

    For code that AutoGraph generated, the frames as the user wrote them; for an error while a graph runs, those that
    made the operation, which TensorFlow tells in the message only.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    if str(error).startswith(_GRAPH_ERROR):
        defined = _GRAPH_FRAME.findall(str(error))
        return [traceback.FrameSummary(name, int(line), function) for name, line, function in defined]
    metadata = getattr(error, "ag_error_metadata", None)
    if metadata is None:
        return frames
    written = [
        traceback.FrameSummary(frame.filename, frame.lineno, frame.function_name, line=frame.code)
        for frame in reversed(metadata.translated_stack)
    ]
    return written or frames


def without_colours(text: str) -> str:
    """A text without the codes with which Keras colours its messages, also in files."""
    return _COLOUR.sub("", text)


def _message(error: BaseException) -> str:
    """What the exception says, without TensorFlow's account of its graph, and that of Keras of its layers."""
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return f"the code calls exit({'' if error.code is None else error.code}), which a model file must not do"
    text = _IN_LAYER.split(_OPERATION.sub("", without_colours(str(error))).strip())[-1]
    if not text.startswith(_GRAPH_ERROR):
        return text
    lines = _GRAPH_FRAME.split(text)[-1].splitlines()
    return _NEW_LINE.join(line for line in lines if line.strip() and not line.strip().startswith(_GRAPH_NOISE))
