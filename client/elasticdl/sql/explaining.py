"""EXPLAIN: how much each column counts, as a table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.shared.errors import ElasticDLError, PermanentError, UserError, file_errors
from elasticdl.shared.words import count, did_you_mean
from elasticdl.sql.columns.features import Features
from elasticdl.sql.databases import Database
from elasticdl.sql.request import find_column
from elasticdl.sql.scoring import prepare_rows

if TYPE_CHECKING:
    import pyarrow as pa

EXPLAINERS: Mapping[str, str] = {
    "": "permutation",
    "permutation": "permutation",
    "permutationimportance": "permutation",
    "shap": "shap",
    "shapexplainer": "shap",
    "treeexplainer": "shap",
}
"""Names in USING, in lower case -> method."""
ROWS_MAX, SHAP_ROWS_MAX = 2_000, 500
"""Rows that are explained. They are the first ones of the prepared rows."""
_ERROR_LINES = 3


def explain(
    query: str,
    database: Database,
    model_folder: Path,
    features: Path,
    folder: Path,
    *,
    explainer: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> pa.Table:
    """Explain a trained model by rows.

    Args:
        model_folder: the exported model.
        folder: for temporary files.
        explainer: ``permutation`` or ``shap``; empty: permutation.
        say: gets lines about the progress.

    Returns:
        Of ``permutation``: ``column``, ``importance`` and ``deviation``, the most important column first. Importance is
        how much the loss grows, or if the rows have no label, how much predictions change. Of ``shap``: a row for each
        explained row, with a column of Shapley values for each column, ``base_value`` and ``prediction``.

    Raises:
        UserError: there is no such explainer, or the rows lack columns.
    """
    import pyarrow.parquet as pq

    method = EXPLAINERS.get(explainer.lower())
    if method is None:
        names = sorted({*EXPLAINERS.values()})
        hint = did_you_mean(explainer.lower(), names, f"Use {' or '.join(names)}.")
        raise UserError(f"there is no explainer {explainer!r}", hint=hint)
    with file_errors(f"{features} can't be read", PermanentError):
        label = Features.of_json(features.read_text("utf-8")).label
    has_label = bool(find_column(label.column, database.schema(query)))
    prepared = prepare_rows(query, database, features, folder / "rows", label=has_label and method == "permutation")
    most = SHAP_ROWS_MAX if method == "shap" else ROWS_MAX
    table = pq.read_table(prepared.data).slice(0, most)
    if prepared.rows > most:
        say(f"Explaining the first {count(most, 'row')} of {prepared.rows:,}.")
    rows, result = folder / "explained.parquet", folder / "importance.parquet"
    pq.write_table(table, rows)
    _run([str(model_folder), str(features), str(rows), str(result), method])
    return pq.read_table(result)


def _run(arguments: list[str]) -> None:
    """Run the program that loads the model.

    Raises:
        ElasticDLError: it fails; with its last lines.
    """
    command = [sys.executable, "-m", "elasticdl.sql.network.importance", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()][-_ERROR_LINES:]
        raise ElasticDLError("the model can't be explained: " + " ".join(lines))
