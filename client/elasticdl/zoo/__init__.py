"""The example data of the model zoo, written by ``elasticdl zoo data NAME DIR`` into ``DIR/train`` and ``DIR/test``.

One module per data set, imported on demand. May import numpy, pyarrow, scikit-learn and
``elasticdl.shared.data``. Must not import TensorFlow: records are encoded by ``example.proto`` of this package.
"""

from elasticdl.zoo.writing import DATA_SETS, DataSummary, best_reachable, write

__all__ = ["DATA_SETS", "DataSummary", "best_reachable", "write"]
