"""The example models that come with the package are found from wherever the code lies."""

from __future__ import annotations

from elasticdl.zoo import shipped_model_zoo


def test_the_model_zoo_of_the_checkout_is_found() -> None:
    zoo = shipped_model_zoo()
    assert zoo is not None
    assert {"mnist_functional_api.py", "census_wide_deep.py", "deepfm.py"} <= {path.name for path in zoo.iterdir()}
