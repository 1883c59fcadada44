"""Tables that every installation has: employee, iris, census and housing, for tutorials and first tries.

Iris is the data set of Fisher (1936); the others are generated from known rules, with the same rows everywhere. They
are written to the user's cache folder when they are first asked for. Must not know databases.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.shared.storage.atomic import replacing
from elasticdl.sql.shipped.people import census, employees
from elasticdl.sql.shipped.small import housing, iris

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
"""Part of the folder's name; a change of any row needs another one."""
_EMPLOYEES, _CENSUS, _HOUSES = 4_000, 8_000, 1_000


def _part(make: Callable[[], pa.Table], *, test: bool) -> pa.Table:
    """Every fifth row, or all others."""
    table = make()
    return table.take([place for place in range(table.num_rows) if (place % 5 == 4) is test])


_MAKERS: Mapping[str, Callable[[], pa.Table]] = {
    "employee": partial(employees, _EMPLOYEES),
    "iris": iris,
    "iris.train": partial(_part, iris, test=False),
    "iris.test": partial(_part, iris, test=True),
    "census": partial(census, _CENSUS),
    "census_income": partial(census, _CENSUS),
    "housing": partial(housing, _HOUSES),
    "housing.train": partial(_part, partial(housing, _HOUSES), test=False),
    "housing.test": partial(_part, partial(housing, _HOUSES), test=True),
}


def shipped_tables() -> dict[str, Path]:
    """Name -> Parquet file. Names with a dot are those of SQLFlow's tutorials."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticdl" / f"tables-{VERSION}"
    files = {name: folder / f"{name}.parquet" for name in _MAKERS}
    for name, file in files.items():
        if not file.exists():
            _write(_MAKERS[name](), file)
    return files


def _write(table: pa.Table, file: Path) -> None:
    import pyarrow.parquet as pq

    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as target:
        pq.write_table(table, target)
