"""The device that computes, on a machine without a GPU: the CPU stands for one where a device is needed."""

from __future__ import annotations

import dataclasses

import pytest

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.device import check_gpu, gpu_name
from elasticdl.worker.model.fingerprint.fingerprint import GRAPHS, LAYERS, Fingerprint, versions
from elasticdl.worker.model.fingerprint.values import describe

pytestmark = pytest.mark.tensorflow


def test_the_first_device_of_a_kind_is_named() -> None:
    assert gpu_name("CPU") == "CPU:0"
    assert gpu_name("no such kind") == ""


def test_a_pod_with_a_gpu_that_tensorflow_does_not_find_is_refused() -> None:
    check_gpu(0, "")
    check_gpu(1, "NVIDIA H200")
    with pytest.raises(UserError, match="has a GPU, but TensorFlow finds none"):
        check_gpu(1, "")


def test_graphs_for_a_gpu_are_not_compared_with_graphs_for_a_cpu() -> None:
    on_cpu = Fingerprint(
        entries={LAYERS: {"rate": describe(1)}, GRAPHS: {"the model": describe(1)}}, versions=versions("")
    )
    other = Fingerprint(
        entries={LAYERS: {"rate": describe(1)}, GRAPHS: {"the model": describe(2)}}, versions=versions("")
    )
    assert other.differences(on_cpu) == ["the model: 2 instead of 1"]
    on_gpu = dataclasses.replace(other, versions=versions("NVIDIA H200"))
    assert on_gpu.differences(on_cpu) == []
    other_layers = dataclasses.replace(on_gpu, entries={LAYERS: {"rate": describe(3)}, GRAPHS: {}})
    assert other_layers.differences(on_cpu) == ["rate: 3 instead of 1"]
