"""The models: how each is trained, by ``fit`` and by every job alike, and which results are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality import data
from benchmarks.quality.data import Columns

ZOO = Path(__file__).parents[2] / "model_zoo"
MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model with its data.

    Attributes:
        name: of the model file.
        title: what the model is, for the page.
        columns: makes training and validation data; None for the zoo's digits.
        records: number of training records, the first ones of ``columns``.
        batch: records per update, in ``fit`` and in every job. A multiple of 6, so that six workers can share it.
        epochs: passes over the training data.
        metrics: what is compared, ``loss`` being the validation loss. The first is drawn in the plot.
        per_task: minibatches per task.
    """

    name: str
    title: str
    columns: Callable[[], Columns] | None
    records: int
    batch: int
    epochs: int
    metrics: tuple[str, ...] = ("loss",)
    per_task: int = 8

    @property
    def model_file(self) -> Path:
        """The file with ``custom_model``."""
        return (MODELS if self.columns else ZOO) / f"{self.name}.py"


HIGHER_IS_BETTER = {"accuracy", "auc", "kind_accuracy", "top10"}
"""Metrics of which the greater value is the better one. Of losses and errors the lesser is."""
ON_PS = {"large_embedding"}
"""Models whose tables belong on parameter servers, so they are not trained in rings."""
KNOWN = {"maximum"}
"""Metrics with a true value, which ``fit`` finds; any other value is wrong."""


CASES = (
    Case(
        name="bidirectional_lstm",
        title="Bidirectional LSTM, texts",
        columns=data.texts,
        records=8064,
        batch=36,
        epochs=3,
        metrics=("loss", "accuracy"),
    ),
    Case(
        name="transformer",
        title="Transformer, texts",
        columns=data.texts,
        records=8064,
        batch=36,
        epochs=3,
        metrics=("loss", "accuracy"),
    ),
    Case(name="autoencoder", title="Dense autoencoder", columns=data.curves, records=8064, batch=36, epochs=4),
    Case(
        name="vae",
        title="VAE with `add_loss`",
        columns=data.curves,
        records=8064,
        batch=36,
        epochs=4,
        metrics=("loss", "mse"),
    ),
    Case(
        name="two_towers",
        title="Two towers, in-batch softmax",
        columns=data.choices,
        records=7680,
        batch=48,
        epochs=5,
        metrics=("top10",),
    ),
    Case(
        name="batch_normalization",
        title="Dense, BatchNormalization(momentum=0.5), batch 24",
        columns=data.scales,
        records=4992,
        batch=24,
        epochs=4,
    ),
    Case(
        name="mnist_functional_api",
        title="The zoo's MNIST",
        columns=None,
        records=1437,
        batch=48,
        epochs=15,
        metrics=("loss", "accuracy"),
    ),
    Case(
        name="resnet20",
        title="ResNet-20, small images",
        columns=data.images,
        records=2304,
        batch=48,
        epochs=5,
        metrics=("loss", "accuracy"),
    ),
    Case(name="gru", title="GRU, time series", columns=data.series, records=8064, batch=36, epochs=3),
    Case(
        name="multi_output",
        title="Table, two outputs",
        columns=data.purchases,
        records=8064,
        batch=36,
        epochs=4,
        metrics=("loss", "kind_accuracy"),
    ),
    Case(
        name="large_embedding",
        title="Embedding 300,000 x 32, Adam",
        columns=data.sets,
        records=11520,
        batch=96,
        epochs=2,
        metrics=("loss", "auc"),
    ),
    Case(
        name="running_maximum",
        title="Running maximum, BatchNormalization(momentum=0.1)",
        columns=data.scales,
        records=4992,
        batch=24,
        epochs=4,
        metrics=("loss", "maximum"),
    ),
    Case(
        name="masked_inputs",
        title="Two padded texts, masked LSTM",
        columns=data.padded_texts,
        records=8064,
        batch=36,
        epochs=3,
        metrics=("loss", "accuracy"),
    ),
    Case(
        name="text_lstm",
        title="TextVectorization and LSTM, subclassed",
        columns=data.sentences,
        records=8064,
        batch=36,
        epochs=3,
        metrics=("loss", "accuracy"),
    ),
)
