"""Writes example data sets by name; each data set is made by a module of its own."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.data.formats.tfrecord import FrameDecoder, write_records
from elasticdl.shared.errors import UserError, check_range
from elasticdl.shared.storage.atomic import replacing
from elasticdl.zoo.example_pb2 import Example

DATA_SETS = ("mnist", "cifar10", "census", "deepfm", "two_tower", "text_classification", "time_series")
TRAIN, TEST = "train", "test"
_ABOUT = "about.json"
_RECORDS_MAX = 1_000_000_000
_SMALLEST = 1e-7
RECORDS_PER_FILE = 10_000
_SUFFIX = ".tfrecord"

Images = NDArray[np.uint8]
"""(records, ...)."""
Labels = NDArray[np.int64]
"""(records,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSummary:
    """A data set that was written.

    Attributes:
        folder: holds the folders ``train`` and ``test``.
        best: metric -> the best possible value on the test records, if it is known.
    """

    name: str
    folder: Path
    train_records: int
    test_records: int
    best: Mapping[str, float]

    @property
    def train(self) -> Path:
        """Value for ``--training_data``."""
        return self.folder / TRAIN

    @property
    def test(self) -> Path:
        """Value for ``--validation_data``."""
        return self.folder / TEST


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRequest:
    """A request for a data set.

    Attributes:
        records: number of training records; None: the data set's default.
        source: folder of files to convert; None: generate the data.
    """

    folder: Path
    records: int | None = None
    seed: int = 0
    source: Path | None = None

    def counts(self, name: str, records: int, test_share: float) -> dict[str, int]:
        """Part -> number of its records, of generated data."""
        refuse(self, name, source=True)
        train = self.records or records
        return {TRAIN: train, TEST: max(1, round(train * test_share))}


Written: TypeAlias = tuple[Mapping[str, int], Mapping[str, float]]
"""Part -> number of records; and metric -> the best possible value on the test records, if it is known."""


class _Maker(Protocol):
    """The interface of a data set's module."""

    def make(self, request: DataRequest) -> Written: ...


def write(
    name: str, folder: str | Path, *, records: int | None = None, seed: int = 0, source: str | Path | None = None
) -> DataSummary:
    """Write a data set. Files of an earlier run are replaced.

    Args:
        folder: the files go to ``folder/train`` and ``folder/test``.
        records: number of training records of generated data; None: the default.
        seed: the same seed gives the same bytes.
        source: folder of the original files, for ``mnist`` and ``cifar10`` only.
    """
    if name not in DATA_SETS:
        raise UserError(
            f"there is no example data set {name!r}", hint=f"Use one of {', '.join(DATA_SETS)}.", usage=True
        )
    if records is not None:
        check_range("--records", records, 1, _RECORDS_MAX)
    if seed < 0:
        raise UserError(f"--seed={seed} is out of range", hint="It must be 0 or more.", usage=True)
    request = DataRequest(
        folder=Path(folder).expanduser(),
        records=records,
        seed=seed,
        source=Path(source).expanduser() if source is not None else None,
    )
    maker = cast(_Maker, importlib.import_module(f"elasticdl.zoo.{name}"))
    with _folder_errors(request.folder):
        counts, best = maker.make(request)
        about = {"train_records": counts[TRAIN], "test_records": counts[TEST], "best": dict(best)}
        (request.folder / _ABOUT).write_text(json.dumps({"name": name, "seed": seed} | about, indent=2) + "\n")
    return DataSummary(
        name=name, folder=request.folder, train_records=counts[TRAIN], test_records=counts[TEST], best=best
    )


def best_reachable(validation_data: str | Path) -> dict[str, float]:
    """Metric -> the best possible value on this data; empty if it is not known.

    Args:
        validation_data: any path; values are known for the ``test`` folder of a data set that ``write`` wrote.
    """
    folder = Path(validation_data)
    if folder.name != TEST:
        return {}
    try:
        best = json.loads((folder.parent / _ABOUT).read_text())["best"]
        return {str(name): float(value) for name, value in best.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # Not one of our folders after all.


def refuse(request: DataRequest, name: str, *, records: bool = False, source: bool = False) -> None:
    """Refuse options that a data set does not have."""
    if records and request.records is not None:
        raise UserError(f"--records can't be used with {name}: its number of records is fixed", usage=True)
    if source and request.source is not None:
        raise UserError(f"--source can't be used with {name}: its data is generated", usage=True)


def part_paths(folder: Path, suffix: str) -> Iterator[Path]:
    """Empty a folder, and generate the names of the files to write.

    Raises:
        UserError: the folder holds files that this command did not write; a job would read them too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if not (path.name.startswith("part-") and path.suffix == suffix and path.is_file()):
            raise UserError(
                f"{folder} contains {path.name}, which does not belong to this data set",
                hint="Use another folder, or move the file away. A job reads all files of its data folder.",
            )
        path.unlink()
    return (folder / f"part-{number:05d}{suffix}" for number in range(100_000))


def write_text(
    folder: Path, suffix: str, lines: Sequence[str], records_per_file: int, header: Sequence[str] = ()
) -> None:
    """Write lines to a folder of files, each of which begins with the header."""
    for path, start in zip(part_paths(folder, suffix), range(0, len(lines), records_per_file), strict=False):
        with replacing(path) as file:
            file.write("\n".join([*header, *lines[start : start + records_per_file], ""]).encode())


def write_table(folder: Path, columns: Mapping[str, object], records_per_file: int) -> None:
    """Write columns (arrays of one length) to a folder of Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    for path, start in zip(part_paths(folder, ".parquet"), range(0, len(table), records_per_file), strict=False):
        with replacing(path) as file:
            pq.write_table(table.slice(start, records_per_file), file)


@contextmanager
def _folder_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename or folder
        raise UserError(
            f"{place}: {error.strerror or error}", hint="Use a folder that you may write to, on a disk with free space."
        ) from error


def auc(labels: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    """Area under the receiver operating characteristic: how often a positive record scores above a negative one.

    Args:
        scores: (records,), any monotone function of the probability; ties count half.

    Returns:
        0 to 1; NaN when all labels are the same.
    """
    positives = int(np.count_nonzero(labels))
    negatives = labels.size - positives
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # 1-based; records with equal scores share their mean rank.
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def log_loss(labels: NDArray[np.bool_], probabilities: NDArray[np.floating]) -> float:
    """Mean binary cross-entropy in nats; ``probabilities``: (records,), of the label being true."""
    p = np.clip(probabilities, _SMALLEST, 1 - _SMALLEST)
    return float(-np.mean(np.where(labels, np.log(p), np.log1p(-p))))


def read_images(folder: str | Path, shape: tuple[int, ...]) -> tuple[Images, Labels]:
    """The images and labels in a folder that ``write_images`` wrote, in the order of the files."""
    images, labels = [], []
    for path in sorted(Path(folder).glob(f"*{_SUFFIX}")):
        data = path.read_bytes()
        records, _ = FrameDecoder(str(path), end=len(data)).decode(data)
        for record in records:
            feature = Example.FromString(record).features.feature
            images.append(np.frombuffer(feature["image"].bytes_list.value[0], np.uint8))
            labels.append(feature["label"].int64_list.value[0])
    return np.array(images, np.uint8).reshape(-1, *shape), np.array(labels, np.int64)


def write_images(folder: Path, images: Images, labels: Labels) -> None:
    """Write a folder of files; ``images``: (records, ...)."""
    paths = part_paths(folder, _SUFFIX)
    for start in range(0, len(labels), RECORDS_PER_FILE):
        stop = start + RECORDS_PER_FILE
        write_records(next(paths), _examples(images[start:stop], labels[start:stop]))


def _examples(images: Images, labels: Labels) -> Iterator[bytes]:
    for image, label in zip(images, labels, strict=True):
        example = Example()
        example.features.feature["image"].bytes_list.value.append(image.tobytes())
        example.features.feature["label"].int64_list.value.append(int(label))
        yield example.SerializeToString(deterministic=True)
