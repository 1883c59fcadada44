"""What the launcher and the process that runs a user's reader exchange: files in a folder of their own.

The launcher writes a ``PlanningRequest``; the process writes the planned data sets, in its order.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.shared.data.indices import IndexFile, pack
from elasticdl.shared.data.planning import PlannedData
from elasticdl.shared.data.schema import ReaderOptions, options_of, schema_of, spec_of
from elasticdl.shared.job.sources import Source
from elasticdl.shared.job.spec import DataSpec, ReaderSpec
from elasticdl.shared.messages.json_codec import JsonCodec

_REQUEST_FILE = "request.json"
_DATA = JsonCodec(DataSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningRequest:
    """Data sets to plan with a user's reader.

    Attributes:
        readers: one for each data set; the columns of the first count for the others.
    """

    model: str
    symbol: str
    functions: Mapping[str, str]
    readers: tuple[ReaderSpec, ...]
    options: ReaderOptions
    stride: int
    seed: int

    def write(self, folder: Path) -> None:
        """Write it for the process."""
        (folder / _REQUEST_FILE).write_text(json.dumps(_REQUEST.dump(self)))

    @classmethod
    def read(cls, folder: Path) -> PlanningRequest:
        """What the launcher has written."""
        request: PlanningRequest = _REQUEST.load(json.loads((folder / _REQUEST_FILE).read_text()))
        return request


_REQUEST = JsonCodec(PlanningRequest)


def write_planned(folder: Path, number: int, planned: PlannedData) -> None:
    """Write data set ``number``."""
    data = _DATA.dump(spec_of(planned.schema, csv_header=planned.options.csv_header))
    indices = pack(planned.indices, {"data": data, "remarks": dict(planned.remarks)})
    shutil.copyfile(indices.path, _file(folder, number))


def read_planned(folder: Path, number: int) -> PlannedData:
    """Data set ``number``; its indices stay there when the folder is removed."""
    indices = IndexFile(os.open(_file(folder, number), os.O_RDONLY | os.O_CLOEXEC))
    data: DataSpec = _DATA.load(indices.facts["data"])
    return PlannedData(
        sources=Source.sequence_of(index.source for index in indices),
        schema=schema_of(data),
        indices=indices,
        options=options_of(data),
        remarks=indices.facts["remarks"],
    )


def _file(folder: Path, number: int) -> Path:
    return folder / f"data-{number}.index"
