"""The example models of the model zoo, and their data.

``elasticdl zoo data NAME DIR`` writes ``DIR/train`` and ``DIR/test``. One module per data set, imported on demand. May
import numpy, pyarrow, scikit-learn and ``elasticdl.shared.data``. Must not import TensorFlow: records are encoded by
``example.proto`` of this package.
"""

from elasticdl.zoo.models import DATA_OF_OTHERS, MODELS, example_data, shipped_model_zoo
from elasticdl.zoo.writing import DATA_SETS, DataSummary, best_reachable, write

__all__ = [
    "DATA_OF_OTHERS",
    "DATA_SETS",
    "MODELS",
    "DataSummary",
    "best_reachable",
    "example_data",
    "shipped_model_zoo",
    "write",
]
