"""Finds and checks the user's model file without running it, before a job starts.

``--model_def`` is one of ``module.symbol``, ``path/to/file.py`` or ``path/to/file.py:symbol``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.old_names import refuse_old_names
from elasticdl.shared.words import did_you_mean, similar

DEFAULT_SYMBOL = "custom_model"
MODEL_OBJECT = "model"
"""Name of a model that is made at the top level of its file, in place of ``custom_model``."""
PASSED_MODEL_FOLDER = "elasticdl-passed-model-"
"""Begins the name of a temporary folder with a model that was passed to the Python API as an object: a model file and a
``.keras`` file. Both are copied into the job's folder once it has one; on Kubernetes they travel in its ConfigMap."""
_COMPILING = {"compile", "load_model"}
"""Functions that may give a compiled model."""
_LIBRARIES = {"keras", "tensorflow", "numpy", "pandas", "elasticdl"}
"""Packages that give no compiled model, except by the functions above."""
KERAS_FILE = "model.keras"
"""Name of the file that holds the whole model in an export."""
SAVED_MODEL = "saved_model"
"""Name of the folder that holds the same model as a SavedModel."""
WEIGHTS_ALONE = "model.weights.h5"
"""Name of the file that is exported with ``--export_weights``."""
WEIGHTS_FILE = "trained.weights.h5"
"""Name of the file with the weights alone, which an export leaves if it can't write the model."""
_FIT_KEYWORDS = {"epochs", "batch_size", "callbacks", "validation_data", "validation_split", "steps_per_epoch"}
"""Arguments that tell ``fit()`` of a Keras model."""
_REQUIRED = ("loss", "optimizer")
READER = "custom_data_reader"
"""Name of the function that returns a reader for the data, unless ``--custom_data_reader`` names another one."""
FEEDS = ("feed", "feed_batch")
"""Functions of which a file needs one, unless the columns of the data are the inputs of the model."""
OLD_FEED = "dataset_fn"
"""What the first ElasticDL called a feed."""
NAMED_FUNCTIONS = (*FEEDS, *_REQUIRED, "eval_metrics_fn")
"""Functions for which a flag of the same name names another function of the file."""

_MISSPELLED = {"class_weights": "class_weight"}
"""Names that would be ignored -> the name that was probably meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A model file and the function or class in it that returns the model.

    Attributes:
        symbol: name of a function that returns a Keras model, of a ``keras.Model`` class, or of a model.
        functions: function of the contract, such as ``loss`` -> name of the function that takes its place.
    """

    path: Path
    symbol: str = DEFAULT_SYMBOL
    functions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def name_of(self, function: str) -> str:
        """The name in the file of a function of the contract; empty: it is not used, because another feed is named."""
        if function in FEEDS and function not in self.functions and not self.functions.keys().isdisjoint(FEEDS):
            return ""
        return self.functions.get(function, function)


def is_passed_model(file: Path) -> bool:
    """Whether a model file belongs to a model that was passed to the Python API as an object."""
    return file.parent.name.startswith(PASSED_MODEL_FOLDER)


def resolve(model_def: str, search: tuple[Path, ...]) -> ModelFile:
    """Find the file that ``--model_def`` names.

    Args:
        search: folders in which relative paths and modules are looked up, the first match wins.
    """
    relative, symbol = _parse(model_def)
    for folder in search:
        path = folder / relative
        if path.is_file():
            file = ModelFile(path=path.resolve(), symbol=symbol or _default_symbol(path))
            return replace(file, functions=_old_feed(path))
    places = ", ".join(str(folder) for folder in search) or "no folder at all"
    raise UserError(
        f"--model_def={model_def!r}: there is no file {relative}",
        hint=f"Looked in {places}; give a path to the file or its folder with --model_zoo.",
        usage=True,
    )


_ITEM = re.compile(r"""(?:'[^']*'|"[^"]*"|[^;])+""")
"""The text between semicolons; a semicolon in quotes belongs to the value."""


def parse_params(text: str, flag: str = "model_params") -> dict[str, str]:
    """Split ``--model_params`` (``k=v;k=v``), or another flag like it, into names and the text of their values.

    Raises:
        UserError: an item is not of the form ``name=value``, or a name occurs twice.
    """
    params: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in _ITEM.findall(text))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name.isidentifier():
            raise UserError(f"--{flag}: {item!r} is not of the form name=value", usage=True)
        if name in params:
            raise UserError(f"--{flag} has {name!r} twice", usage=True)
        params[name] = value
    return params


def literal_params(params: Mapping[str, str]) -> dict[str, object]:
    """Values of ``--model_params`` as Python literals; other values stay strings."""
    return {name: _literal(value) for name, value in params.items()}


def takes_columns(file: ModelFile) -> bool:
    """Whether the model is given columns, not lines of text, as far as can be told without running the file."""
    body = _tree(file.path).body
    names = set(_names(body))
    return _imports_all(body) or file.name_of("feed_batch") in names or file.name_of("feed") not in names


def has_feed(file: ModelFile) -> bool:
    """Whether the file surely turns records into tensors itself."""
    return not set(_names(_tree(file.path).body)).isdisjoint(map(file.name_of, FEEDS))


def find_reader(file: ModelFile, given: str) -> str:
    """The function in the file that returns a reader for the data; empty: the data is in files.

    Args:
        given: value of ``--custom_data_reader``; may be empty.

    Raises:
        UserError: a name is given, and the file does not define it.
    """
    body = _tree(file.path).body
    names = set(_names(body))
    if given and given not in names and not _imports_all(body):
        raise _missing(file, given, names)
    return given or (READER if READER in names else "")


def may_compile(file: ModelFile) -> bool:
    """Whether the model may be compiled, which makes ``loss`` and ``optimizer`` optional; making it will show.

    The file compiles it, or a module that the file imports may do so.
    """
    tree = _tree(file.path)
    if any(_is_of_user(module) for module in _imported(tree)):
        return True
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = (getattr(function, "attr", getattr(function, "id", "")) for function in calls)
    return not _COMPILING.isdisjoint(names)


def check_syntax(file: ModelFile) -> None:
    """Check without running it that a model file parses and defines what a job needs.

    Raises:
        UserError: a syntax error with its line, or a missing function with the nearest name that exists.
    """
    tree = _tree(file.path)
    refuse_old_names(file.path, tree)
    required = [*file.functions.values(), *(() if may_compile(file) else map(file.name_of, _REQUIRED))]
    if _imports_all(tree.body) or any(isinstance(node, ast.Raise) for node in tree.body):
        return  # The name may be imported, or the file says itself why it defines none; loading the module will show.
    names = set(_names(tree.body))
    _refuse_fit(file, tree)
    for needed in (file.symbol, *required):
        if needed not in names:
            raise _missing(file, needed, names)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if names.isdisjoint(map(file.name_of, FEEDS)) and (near := _near(FEEDS, functions)):
        raise UserError(f"{file.path} defines neither feed() nor feed_batch()", hint=f"Is {near!r} meant to be one?")
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    for name, meant in _MISSPELLED.items():
        if name in names - used and meant not in names:
            raise UserError(f"{file.path} defines {name!r} and does not use it", hint=f"Did you mean {meant!r}?")


def _refuse_fit(file: ModelFile, tree: ast.Module) -> None:
    """Refuse a script, whose ``fit()`` each worker would run several times.

    ``fit()`` of something else, such as a scaler, has no argument of Keras' and is called on no ``model``.
    """
    statements = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If)]
    for node in (each for statement in statements for each in ast.walk(statement)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "fit":
            continue
        is_model = isinstance(node.func.value, ast.Name) and node.func.value.id == MODEL_OBJECT
        if is_model or not _FIT_KEYWORDS.isdisjoint(keyword.arg for keyword in node.keywords):
            raise UserError(
                f"{file.path}, line {node.lineno} calls fit(), and a model file only makes the model",
                hint=f"Run the script as it is: elasticdl run {file.path}. Its fit() becomes the job.",
            )


def _imports_all(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in body)


def _imported(tree: ast.Module) -> Iterator[str]:
    """Names of the modules that a file imports; those of relative imports begin with a dot."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=module, level=level):
                yield "." * level + (module or "")
            case _:
                pass


def _is_of_user(module: str) -> bool:
    """Whether a module may be one of the user's, which may compile models."""
    root = module.partition(".")[0]
    return root not in _LIBRARIES and root not in sys.stdlib_module_names


def _old_feed(path: Path) -> Mapping[str, str]:
    """``dataset_fn`` as the feed, which the first ElasticDL called so."""
    try:
        names = set(_names(_tree(path).body))
    except UserError:  # check_syntax() reports it.
        return {}
    return {"feed": OLD_FEED} if OLD_FEED in names and names.isdisjoint(FEEDS) else {}


def _default_symbol(path: Path) -> str:
    try:
        names = set(_names(_tree(path).body))
    except UserError:  # check_syntax() reports it.
        return DEFAULT_SYMBOL
    return MODEL_OBJECT if MODEL_OBJECT in names and DEFAULT_SYMBOL not in names else DEFAULT_SYMBOL


def _parse(model_def: str) -> tuple[Path, str]:
    """The file, relative to a folder that is searched, and the symbol; empty if it is not given."""
    before, _, symbol = model_def.rpartition(":")
    if model_def.endswith(".py"):
        return Path(model_def), ""
    if before.endswith(".py") and symbol.isidentifier():
        return Path(before), symbol
    *modules, symbol = model_def.split(".")
    if modules and all(part.isidentifier() for part in (*modules, symbol)):
        return Path(*modules).with_suffix(".py"), symbol
    raise UserError(
        f"--model_def={model_def!r} is neither module.symbol nor path/to/file.py nor path/to/file.py:symbol",
        usage=True,
    )


def _literal(value: str) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise UserError(
            f"{path}, line {error.lineno}: {error.msg}: {(error.text or '').strip()}",
            hint="Correct the line; the file must be plain Python.",
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read: {error}") from error


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Names bound at the top level of a module, also inside its ``if`` and ``try`` blocks."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    yield (alias.asname or alias.name).partition(".")[0]
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (leaf.id for leaf in ast.walk(target) if isinstance(leaf, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try() | ast.With():
                for block in ("body", "orelse", "finalbody"):
                    yield from _names(getattr(node, block, []))
                for handler in getattr(node, "handlers", []):
                    yield from _names(handler.body)
            case _:
                pass


def _near(wanted: Iterable[str], names: Collection[str]) -> str:
    """A name that is probably a misspelt one; empty if absent. By the cutoff ``seed`` is not a misspelt ``feed``."""
    return next(filter(None, (similar(one, names, cutoff=0.8) for one in wanted)), "")


def _missing(file: ModelFile, needed: str, names: set[str]) -> UserError:
    hint = did_you_mean(needed, sorted(names), f"Define {needed} at the top level of the file.")
    return UserError(f"{file.path} does not define {needed!r}", hint=hint)
