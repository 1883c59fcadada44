"""An export with tables in Parquet in a bucket of a real S3 server is complete, replaced and read like one on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.contract.servers.s3 import S3Server

from elasticdl.shared.exported.lookup import open_tables
from elasticdl.shared.exported.reading import is_export, read_dense, read_export
from elasticdl.shared.exported.writing import TablesExport, delete_tables
from elasticdl.shared.model.initial_weights import WeightTable, signature_of, write_weights
from elasticdl.shared.model.placement import ALL
from elasticdl.shared.storage import open_store

BUCKET = "elasticdl-export"


def test_an_export_in_a_bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    s3_server.make_bucket(BUCKET)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    output, storage = f"s3://{BUCKET}/out", f"s3://{BUCKET}/storage"
    store = open_store(output)
    store.write(f"{output}/saved_model/saved_model.pb", b"of an earlier export")
    store.write(f"{output}-2/model.keras", b"of another export")
    rows = np.arange(200, dtype=np.float32).reshape(50, 4)
    bias = np.arange(3, dtype=np.float32)
    manifest = write_weights(store, storage, {"bias": bias}, {"table": WeightTable.of(rows)})
    TablesExport(
        job="job",
        signature=signature_of({"bias": (3,)}, {"table": (60, 4)}),
        dense=bias,
        parts=[(manifest, ALL)],
        snapshots=store,
        adapted=(),
        write_model=Path.touch,
    ).write(output)
    exported = read_export(output)
    np.testing.assert_array_equal(read_dense(output, exported)["bias"], bias)
    found = open_tables(output, exported, tmp_path)["table"].rows(np.arange(60))
    np.testing.assert_array_equal(found, np.concatenate([rows, np.zeros((10, 4), np.float32)]))
    names = {info.uri.removeprefix(f"{output}/") for info in store.list(f"{output}/")}
    inside = {f"{exported.version}/{name}" for name in ("model.keras", "dense.npy", "tables/table/part-00000.parquet")}
    assert names == {"export.json", *inside}
    delete_tables(output)
    assert not is_export(output)
    assert [info.uri for info in store.list(output)] == [f"{output}-2/model.keras"]
