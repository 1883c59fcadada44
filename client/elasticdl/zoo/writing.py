"""From the name of a data set to its files, whichever module makes them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, cast

from elasticdl.shared.errors import UserError, check_range

DATA_SETS = ("mnist", "census", "deepfm")
TRAIN, TEST = "train", "test"
_ABOUT = "about.json"
_RECORDS_MAX = 1_000_000_000
_EMPTY: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSummary:
    """What was written.

    Attributes:
        name: one of ``DATA_SETS``.
        folder: holds the folders ``train`` and ``test``.
        train_records: number of records to learn from.
        test_records: number of records to evaluate with.
        best: metric -> the best value that any model can reach on the test records, where that is known.
    """

    name: str
    folder: Path
    train_records: int
    test_records: int
    best: Mapping[str, float] = field(default_factory=lambda: _EMPTY)

    @property
    def train(self) -> Path:
        """What ``--training_data`` takes."""
        return self.folder / TRAIN

    @property
    def test(self) -> Path:
        """What ``--validation_data`` takes."""
        return self.folder / TEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for.

    Attributes:
        folder: to write into.
        records: training records; None for the data set's own default.
        seed: of everything that is drawn.
        source: folder of files to convert instead of making data; None to make it.
    """

    folder: Path
    records: int | None = None
    seed: int = 0
    source: Path | None = None


class _Maker(Protocol):
    """What every module of a data set has."""

    def make(self, wanted: Wanted) -> DataSummary: ...


def write(
    name: str, folder: str | Path, *, records: int | None = None, seed: int = 0, source: str | Path | None = None
) -> DataSummary:
    """Write a data set; files of an earlier run are replaced.

    Args:
        name: one of ``DATA_SETS``.
        folder: ``folder/train`` and ``folder/test`` are filled.
        records: training records, for data that is made up; None for the default.
        seed: same seed, same bytes.
        source: folder of the real MNIST files, for ``mnist`` only.

    Raises:
        UserError: no such data set, an option that it does not have, or a folder that can't be used.
    """
    if name not in DATA_SETS:
        raise UserError(
            f"there is no example data called {name!r}", hint=f"There are: {', '.join(DATA_SETS)}.", usage=True
        )
    if records is not None:
        check_range("--records", records, 1, _RECORDS_MAX)
    if seed < 0:
        raise UserError(f"--seed={seed} is negative", usage=True)
    wanted = Wanted(
        folder=Path(folder).expanduser(),
        records=records,
        seed=seed,
        source=Path(source).expanduser() if source is not None else None,
    )
    maker = cast(_Maker, importlib.import_module(f"elasticdl.zoo.{name}"))
    with _folder_errors(wanted.folder):
        summary = maker.make(wanted)
        about = {"name": name, "seed": seed, "train_records": summary.train_records}
        about |= {"test_records": summary.test_records, "best": dict(summary.best)}
        (wanted.folder / _ABOUT).write_text(json.dumps(about, indent=2) + "\n")
    return summary


def best_reachable(validation_data: str | Path) -> dict[str, float]:
    """Metric -> the best value that any model can reach on this data; empty where nobody knows.

    Args:
        validation_data: the ``test`` folder of a data set that ``write`` has made; anything else is fine, too.
    """
    folder = Path(validation_data)
    if folder.name != TEST:
        return {}
    try:
        best = json.loads((folder.parent / _ABOUT).read_text())["best"]
        return {str(name): float(value) for name, value in best.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # Somebody else's folder, which happens to look like ours.


def refuse(wanted: Wanted, name: str, *, records: bool = False, source: bool = False) -> None:
    """Refuse options that a data set does not have.

    Args:
        wanted: what was asked for.
        name: of the data set.
        records: whether ``--records`` is refused.
        source: whether ``--source`` is refused.
    """
    if records and wanted.records is not None:
        raise UserError(f"--records does not go with {name}, which has as many records as it has", usage=True)
    if source and wanted.source is not None:
        raise UserError(f"--source does not go with {name}, which is made up", usage=True)


def part_paths(folder: Path, suffix: str) -> Iterator[Path]:
    """Make ``folder`` hold no data, and name the files to write one after the other.

    Args:
        folder: made if it does not exist.
        suffix: of the files, with its dot.

    Raises:
        UserError: the folder holds files that this command did not write, which a job would read as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if not (path.name.startswith("part-") and path.suffix == suffix and path.is_file()):
            raise UserError(
                f"{folder} holds {path.name}, which is no part of this data set",
                hint="Give another folder, or move that file away: a job reads every file of its data folder.",
            )
        path.unlink()
    return (folder / f"part-{number:05d}{suffix}" for number in range(100_000))


@contextmanager
def _folder_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename or folder
        raise UserError(
            f"{place}: {error.strerror or error}", hint="Give a folder that exists or can be made, with room in it."
        ) from error
