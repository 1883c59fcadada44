"""The model file, found and checked without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import (
    ModelFile,
    check_syntax,
    find_reader,
    has_feed,
    literal_params,
    parse_params,
    resolve,
    takes_columns,
)

GOOD = "def custom_model(): ...\ndef loss(): ...\ndef optimizer(): ...\ndef feed(): ...\n"


@pytest.mark.parametrize(
    ("model_def", "file", "symbol"),
    [
        ("net.py", "net.py", "custom_model"),
        ("net.py:Net", "net.py", "Net"),
        ("net.Net", "net.py", "Net"),
        ("zoo/deep.py", "zoo/deep.py", "custom_model"),
        ("zoo.deep.custom_model", "zoo/deep.py", "custom_model"),
    ],
)
def test_every_form_is_found(tmp_path: Path, model_def: str, file: str, symbol: str) -> None:
    path = tmp_path / "second" / file
    path.parent.mkdir(parents=True)
    path.write_text(GOOD)
    found = resolve(model_def, (tmp_path / "first", tmp_path / "second"))
    assert found == ModelFile(path=path.resolve(), symbol=symbol)


@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        ("model = Sequential()\n", "model"),
        ("model = Sequential()\ndef custom_model(): ...\n", "custom_model"),
        ("modle = Sequential()\n", "custom_model"),
        ("def broken(:\n", "custom_model"),
    ],
)
def test_a_model_at_the_top_level_needs_no_function(tmp_path: Path, text: str, symbol: str) -> None:
    (tmp_path / "net.py").write_text(text)
    assert resolve("net.py", (tmp_path,)).symbol == symbol


def test_a_file_that_loads_a_model_may_load_a_compiled_one(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from keras.saving import load_model\nmodel = load_model('model.keras')\n")
    check_syntax(ModelFile(path=tmp_path / "net.py", symbol="model"))


def test_the_first_folder_wins_and_an_absolute_path_needs_none(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text(GOOD)
    assert resolve("net.py", (tmp_path / "a", tmp_path / "b")).path == (tmp_path / "a/net.py").resolve()
    assert resolve(f"{tmp_path}/b/net.py:x", (tmp_path / "a",)).path == (tmp_path / "b/net.py").resolve()


@pytest.mark.parametrize("model_def", ["net", "", "a b.c", "net.txt:x"])
def test_other_forms_are_refused(tmp_path: Path, model_def: str) -> None:
    with pytest.raises(UserError, match=r"is neither module.symbol"):
        resolve(model_def, (tmp_path,))


def test_a_missing_file_names_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file zoo/net.py") as caught:
        resolve("zoo.net.custom_model", (tmp_path,))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("custom_model", "custom_mdoel"), "does not define 'custom_model'\n  Did you mean 'custom_mdoel'"),
        (GOOD.replace("loss", "lost"), "does not define 'loss'\n  Did you mean 'lost'"),
        (GOOD.replace("feed", "feeds"), r"defines neither feed\(\) nor feed_batch\(\)\n  Is 'feeds' meant to be one"),
        (GOOD + "class_weights = {1: 5.0}\n", "'class_weights' and does not use it\n  Did you mean 'class_weight'"),
        (GOOD + "def broken(:\n", "line 5: invalid syntax: def broken"),
    ],
)
def test_the_error_names_the_nearest_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "net.py").write_text(text)
    with pytest.raises(UserError, match=message):
        check_syntax(ModelFile(path=tmp_path / "net.py"))


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("def feed():", "def feed_batch():"),
        GOOD.replace("def feed():", "def other():"),
        GOOD.replace("def feed():", "def seed():") + "fed = 3\n",
        GOOD + "class_weights = {1: 5.0}\nclass_weight = class_weights\n",
        GOOD + "class_weights = {1: 5.0}\ndef weigh(): return class_weights\n",
        "from somewhere import *\n",
        "raise RuntimeError('moved to other.py')\n",
        "import x as custom_model\nloss = optimizer = feed = None\n",
        f"try:\n    import y\nexcept ImportError:\n    y = None\n{GOOD}",
    ],
)
def test_every_way_to_define_a_name_counts(tmp_path: Path, text: str) -> None:
    (tmp_path / "net.py").write_text(text)
    check_syntax(ModelFile(path=tmp_path / "net.py"))


@pytest.mark.parametrize(
    ("text", "given", "found"),
    [
        (GOOD, "", ""),
        (GOOD + "def custom_data_reader(data_origin): ...\n", "", "custom_data_reader"),
        (GOOD + "def table(data_origin): ...\n", "table", "table"),
        ("from somewhere import *\n", "table", "table"),
        ("from somewhere import *\n", "", ""),
    ],
)
def test_the_reader_of_the_data_is_found(tmp_path: Path, text: str, given: str, found: str) -> None:
    (tmp_path / "net.py").write_text(text)
    assert find_reader(ModelFile(path=tmp_path / "net.py"), given) == found


def test_a_reader_that_the_file_does_not_define_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(GOOD + "def table(data_origin): ...\n")
    with pytest.raises(UserError, match="does not define 'tabel'\n  Did you mean 'table'"):
        find_reader(ModelFile(path=tmp_path / "net.py"), "tabel")


def test_params_are_literals_or_strings() -> None:
    params = literal_params(parse_params("width=8; rates=[0.1,0.2];name=deep;flag=True;odd='a;b=c'"))
    assert params == {"width": 8, "rates": [0.1, 0.2], "name": "deep", "flag": True, "odd": "a;b=c"}


@pytest.mark.parametrize("text", ["width", "=3", "a=1;a=2", "a b=1"])
def test_malformed_params_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_params(text)


def test_flags_name_other_functions_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "def custom_model(): ...\ndef mae(): ...\ndef sgd(): ...\ndef lines(): ...\ndef feed_batch(): ...\n"
    )
    with pytest.raises(UserError, match="does not define 'loss'"):
        check_syntax(ModelFile(path=path))
    file = ModelFile(path=path, functions={"loss": "mae", "optimizer": "sgd"})
    check_syntax(file)
    assert takes_columns(file)
    lines = ModelFile(path=path, functions={"loss": "mae", "optimizer": "sgd", "feed": "lines"})
    check_syntax(lines)
    assert has_feed(lines)
    assert not takes_columns(lines), "a feed that is named comes before a feed_batch that is not"
    with pytest.raises(UserError, match=r"(?s)does not define 'mea'.*Did you mean 'mae'"):
        check_syntax(ModelFile(path=path, functions={"loss": "mea", "optimizer": "sgd"}))


@pytest.mark.parametrize("call", ["model.fit(x)", "with open('f'):\n    history = net.fit(x, y, epochs=3)"])
def test_a_script_is_told_from_a_model_file(tmp_path: Path, call: str) -> None:
    file = ModelFile(path=tmp_path / "net.py", symbol="model")
    file.path.write_text(f"model = build()\nmodel.compile('adam', 'mse')\n{call}\n")
    with pytest.raises(UserError, match=r"net.py, line \d calls fit\(\)") as refused:
        check_syntax(file)
    assert f"elasticdl run {file.path}" in str(refused.value)


@pytest.mark.parametrize("call", ["scaler.fit(x)", "def train():\n    model.fit(x, epochs=3)"])
def test_other_calls_of_fit_belong_into_a_model_file(tmp_path: Path, call: str) -> None:
    file = ModelFile(path=tmp_path / "net.py", symbol="model")
    file.path.write_text(f"model = build()\nmodel.compile('adam', 'mse')\n{call}\n")
    check_syntax(file)
