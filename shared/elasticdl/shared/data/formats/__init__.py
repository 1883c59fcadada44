"""Formats of data files: for each a module whose ``FORMAT`` says how its files are found, indexed and read.

``docs/development.md`` says how a format is added.
"""

from elasticdl.shared.data.formats import (
    csv_file,
    idx,
    image_folder,
    json_lines,
    numpy_file,
    parquet,
    recordio,
    text_folder,
    tfrecord,
)
from elasticdl.shared.data.formats.data_format import DataFormat

FORMATS: dict[str, DataFormat] = {
    each.FORMAT.name: each.FORMAT
    for each in (parquet, numpy_file, recordio, idx, tfrecord, json_lines, csv_file, image_folder, text_folder)
}
"""All formats by their names, in the order in which the content of a file is compared with them."""

__all__ = ["FORMATS", "DataFormat"]
