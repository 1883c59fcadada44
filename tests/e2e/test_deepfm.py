"""The DeepFM example: what can be learned from planted clicks is learned, with the embeddings on the ps."""

from __future__ import annotations

from tests.e2e.elastic import Elastic

RECORDS = 250_000
"""Enough for batches of 512 to come within 0.01 of the best AUC in one epoch (0.0065 when measured)."""


def test_one_epoch_comes_close_to_the_planted_optimum(elastic: Elastic) -> None:
    made = elastic.run("zoo", "data", "deepfm", "clicks", f"--records={RECORDS}")
    assert made.exit_code == 0, made.output
    outcome = elastic.train(
        "--model_def=deepfm.custom_model",
        "--training_data=clicks/train",
        "--validation_data=clicks/test",
        "--minibatch_size=512",
        "--num_workers=2",
        "--num_ps_pods=1",
        "--seed=3",
    )
    assert outcome.report["audit"]["records"] == RECORDS
    reached, best = outcome.report["metrics"]["auc"], outcome.report["metrics_best"]["auc"]
    assert best - 0.01 < reached < best + 0.01, "above the optimum of the truth is luck, far above it is a leak"
    for table in ("id_weight: 650,000 x 1", "id_vector: 650,000 x 16"):
        assert table in outcome.output
    assert outcome.output.count("served by the ps") == 2
    assert f"auc {reached:.4f}" in outcome.output
    assert f"auc {best:.4f}" in outcome.output, "the best reachable AUC is printed beside the reached one"
