"""Scripts of the shape of public Keras examples, run by Python and as jobs: ``python -m benchmarks.scripts``."""
