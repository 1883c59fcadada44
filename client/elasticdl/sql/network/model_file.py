"""Writes the model file of a statement: plain Python that holds the features, so it travels with the job as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elasticdl.shared.storage.atomic import replace_text
from elasticdl.sql.columns.features import Features

MODEL_FILE, FEATURES_FILE = "sql_model.py", "features.json"
_TEXT = '''"""The model of a SQL statement. This file is generated; features.json beside it has the same features."""

from elasticdl.sql.network.definition import Definition
{imports}
FEATURES = {features}

_definition = Definition(FEATURES{network})
label = _definition.label
class_weight = _definition.class_weight
custom_model = _definition.custom_model
loss = _definition.loss
optimizer = _definition.optimizer
eval_metrics_fn = _definition.eval_metrics_fn
'''


def write_model_file(features: Features, folder: Path, copy: Callable[[Path, Path], None]) -> tuple[Path, Path]:
    """Write the model file and the features into a folder.

    Args:
        copy: copies a network's file, and the modules beside it that it imports, into the folder.

    Returns:
        The model file, and the file of the features.
    """
    imports, network = "", ""
    if ":" in features.network:
        file, _, symbol = features.network.rpartition(":")
        copy(Path(file), folder)
        imports, network = f"from {Path(file).stem} import {symbol}\n", f", {symbol}"
    text = features.as_json()
    replace_text(folder / FEATURES_FILE, text)
    filled = _TEXT.format(imports=imports, features=repr(text), network=network)
    replace_text(folder / MODEL_FILE, filled)
    return folder / MODEL_FILE, folder / FEATURES_FILE
