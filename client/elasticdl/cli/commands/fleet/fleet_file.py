"""The log of a fleet as the dashboard shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticdl.controller.history.log_file import GrowingLog
from elasticdl.controller.history.overview import FleetHistory, overview
from elasticdl.shared.errors import UserError

POINTS_MAX = 2000
"""Most points of one curve."""


class FleetFile:
    """See ``FleetSource``: a file that a controller writes, or will write once it is the one that decides.

    Raises:
        UserError: there is neither the file nor its folder.
    """

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir() or path.is_dir():
            raise UserError(
                f"there is no file {path}",
                hint="The controller writes the log of a fleet with --fleet_log, and fleet simulate with --record.",
            )
        self.name = path.name
        self.times: list[float] = []
        self._log = GrowingLog(path)
        self._history = FleetHistory()

    def read(self) -> bool:
        """See ``FleetSource``."""
        records, is_other = self._log.read()
        if is_other:
            self._history, self.times = FleetHistory(), []
        for record in records:
            self._history.add(record)
            self.times.append(record.time_s)
        return bool(records) or is_other

    def at(self, number: int) -> Mapping[str, Any]:
        """See ``FleetSource``."""
        return overview(self._history.at(number))

    def samples(self) -> Mapping[str, Any]:
        """See ``FleetSource``."""
        samples = self._history.samples
        step = max(1, -(-len(samples) // POINTS_MAX))
        shown = [*samples[:-1:step], *samples[-1:]]
        curves: dict[str, list[float]] = {
            "requested/CPU, %": [100 * each.requested for each in shown],
            "useful work/CPU, %": [100 * each.useful for each in shown],
            "waiting/jobs": [each.waiting for each in shown],
            "with a place/jobs": [each.admitted for each in shown],
        }
        return {
            "points": {
                name: [
                    [each.number, each.number, each.time_s, value] for each, value in zip(shown, values, strict=True)
                ]
                for name, values in curves.items()
            },
            "counts": dict.fromkeys(curves, len(samples)),
        }
