"""The flags that say how data is read, which jobs and ``elasticdl data inspect`` have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from elasticdl.cli.options import Flag, values_for
from elasticdl.cli.submission.flag_items import parse_columns
from elasticdl.shared.job.spec import COLUMN_TYPES

if TYPE_CHECKING:
    from elasticdl.cli.submission.job_flags import JobFlags
    from elasticdl.shared.data import ReaderOptions

DATA = "Data"
"""Heading of these flags in the help of a command."""
PLACES = (
    "a file, a folder or a glob, local or s3://bucket/prefix. Several are separated by commas, or given by repeating "
    "the flag."
)
"""What these flags take."""
FORMATS = (
    "Formats: CSV, JSON lines, TFRecord, RecordIO, Parquet, NumPy (.npy, .npz), IDX, and images in folders, which are "
    "their classes."
)
"""The titles of all formats, whose modules import pyarrow: help texts do not wait for it."""
PATH_FLAGS = ("training_data", "validation_data", "prediction_data")
"""Flags that say where data is, as the fields of jobs' flags are named."""

Columns = Annotated[
    str,
    Flag(
        "Columns to read, in this order: NAME,NAME. Other columns are ignored.",
        metavar="NAMES",
        shows="all",
        panel=DATA,
        repeated=True,
    ),
]
ColumnTypes = Annotated[
    str,
    Flag(
        f"Types of columns: NAME=TYPE,NAME=TYPE. TYPE is {', '.join(COLUMN_TYPES)}.",
        metavar="ITEMS",
        shows="inferred, shown at the start",
        panel=DATA,
        repeated=True,
    ),
]
FillMissing = Annotated[
    str,
    Flag(
        "Values to use where a column has none: NAME=VALUE,NAME=VALUE. Needed for integers; without it missing "
        "floats are NaN and missing strings empty.",
        metavar="ITEMS",
        panel=DATA,
        repeated=True,
    ),
]
CsvHeader = Annotated[
    bool,
    Flag(
        "Whether the first line of each CSV file holds the column names.",
        off="no_csv_header",
        panel=DATA,
        sets="ReaderOptions.csv_header",
    ),
]
CsvDelimiter = Annotated[
    str,
    Flag(
        "Character between CSV columns.",
        metavar="CHAR",
        shows="comma, in .tsv files tab",
        panel=DATA,
        sets="ReaderOptions.csv_delimiter",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFlags:
    """Values of the flags; each field is the flag of the same name."""

    columns: Columns = ""
    column_types: ColumnTypes = ""
    fill_missing: FillMissing = ""
    csv_header: CsvHeader = True
    csv_delimiter: CsvDelimiter = ""


def reader_options(flags: DataFlags | JobFlags) -> ReaderOptions:
    """What the flags say about reading data.

    Raises:
        UserError: a value has another form than its flag asks for.
    """
    from elasticdl.shared.data import ReaderOptions  # Imports pyarrow, which help texts do not need.

    return ReaderOptions(
        columns=tuple(name.strip() for name in flags.columns.split(",") if name.strip()),
        column_types=parse_columns("column_types", flags.column_types),
        fill_missing=parse_columns("fill_missing", flags.fill_missing),
        **values_for("ReaderOptions", flags),
    )
