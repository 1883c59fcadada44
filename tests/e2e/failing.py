"""Commands that have to fail with one clear message."""

from __future__ import annotations

from tests.e2e.elastic import Elastic

FLAGS = ["--model_def=model.py", "--training_data=data", "--num_workers=1"]


def fails(elastic: Elastic, *flags: str, says: list[str], exit_code: int = 1) -> str:
    """A command that has to fail with all of these words and no traceback of ours."""
    outcome = elastic.run("train", *flags)
    assert outcome.exit_code == exit_code, outcome.output
    for words in says:
        assert words in outcome.output, outcome.output
    assert "elasticdl/shared" not in outcome.output, outcome.output
    assert "elasticdl/worker" not in outcome.output, outcome.output
    return outcome.output
