"""The published files: traces of six applications, workloads, and the results of three policies."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from elasticdl.shared.errors import UserError

_SHIPPED = resources.files("elasticdl.controller.sim.pollux") / "published.tar.xz"
LOADS = {0.5: "workloads-0.5", 1.0: "workloads", 1.5: "workloads-1.5", 2.0: "workloads-2.0"}
"""Jobs submitted, as a multiple of 160 in 8 hours -> the folder of the workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job of a workload."""

    name: str
    application: str
    submit_s: int
    gpus: int
    """What its user asks for. Only policies without elasticity go by it."""
    batch_size: int
    """The same."""


class Data:
    """Reads the published files, from the package or from a checkout.

    Args:
        folder: the folder ``simulator`` of Pollux' repository. None: what the package ships.

    Raises:
        UserError: the folder has no workloads and traces.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        if folder is not None and not (folder / "traces").is_dir():
            raise UserError(
                f"{folder} has no folder traces",
                hint="Give the folder simulator of a checkout of github.com/petuum/adaptdl, branch osdi21-artifact.",
            )

    @cached_property
    def _files(self) -> dict[str, str]:
        if self._folder is not None:
            paths = sorted(self._folder.rglob("*.csv"))
            return {path.relative_to(self._folder).as_posix(): path.read_text() for path in paths}
        import tarfile

        with _SHIPPED.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:xz") as archive:
            members = ((each.name, archive.extractfile(each)) for each in archive.getmembers())
            return {name: content.read().decode() for name, content in members if content is not None}

    def rows(self, name: str) -> Iterator[dict[str, str]]:
        """The rows of a file.

        Raises:
            UserError: there is no such file.
        """
        if (text := self._files.get(name)) is None:
            raise UserError(f"There is no {name} in {self._folder or 'the data of the package'}")
        return csv.DictReader(io.StringIO(text))

    def names(self, prefix: str) -> list[str]:
        """Files whose name begins so."""
        return sorted(name for name in self._files if name.startswith(prefix))

    def workload(self, load: float, number: int) -> list[Submission]:
        """The jobs of a workload, in the order of its file.

        Raises:
            UserError: there is no such workload.
        """
        if load not in LOADS:
            raise UserError(f"There is no load {load}. Loads are {', '.join(map(str, LOADS))}.", usage=True)
        return [
            Submission(
                name=row["name"],
                application=row["application"],
                submit_s=int(row["time"]),
                gpus=int(row["num_replicas"]),
                batch_size=int(row["batch_size"]),
            )
            for row in self.rows(f"{LOADS[load]}/workload-{number}.csv")
        ]

    def published(self) -> dict[tuple[str, float, int], float]:
        """(policy, load, workload) -> mean seconds from submission to end, as Pollux' authors have stored them.

        Empty for a checkout, which has them in another form.
        """
        if "results.csv" not in self._files:
            return {}
        return {
            (row["policy"], float(row["load"]), int(row["workload"])): float(row["mean_jct_s"])
            for row in self.rows("results.csv")
            if row["experiment"] == "jobload"
        }
