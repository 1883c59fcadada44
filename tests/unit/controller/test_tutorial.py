"""The tutorial about shared clusters, and its example, are what the controller reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from elasticdl.controller.service.quotas import read_queues
from elasticdl.shared.kubernetes.names import QUEUES_LABEL, WEIGHT
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec

ROOT = Path(__file__).parents[3]
EXAMPLE = list(yaml.safe_load_all((ROOT / "deploy/examples/shared_cluster.yaml").read_text()))
TUTORIAL = (ROOT / "docs/tutorials/shared_cluster.md").read_text()


def test_the_example_has_queues_that_its_jobs_use() -> None:
    queues, problems = read_queues(EXAMPLE[0])
    assert (not problems, EXAMPLE[0]["metadata"]["labels"]) == (True, {QUEUES_LABEL: "true"})
    assert float(EXAMPLE[1]["metadata"]["annotations"][WEIGHT]) == 3
    jobs = [TrainingJobSpec.from_manifest(each) for each in EXAMPLE if each["kind"] == "TrainingJob"]
    assert {job.queue for job in jobs} == {queue.name for queue in queues}
    assert jobs[1].priority_class == EXAMPLE[1]["metadata"]["name"]


@pytest.mark.parametrize("number", [0, 1])
def test_the_blocks_of_the_tutorial_are_in_the_example(number: int) -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TUTORIAL, re.DOTALL)]
    assert len(blocks) == 2
    assert blocks[number].items() <= EXAMPLE[number].items()
