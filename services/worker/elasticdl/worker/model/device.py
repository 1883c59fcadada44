"""The device that computes the steps of this process: the first GPU that TensorFlow finds, or else the CPU."""

from __future__ import annotations

import tensorflow as tf

from elasticdl.shared.errors import UserError


def gpu_name(kind: str = "GPU") -> str:
    """The first GPU that TensorFlow finds, such as ``NVIDIA H200``; empty: it finds none."""
    found = tf.config.list_physical_devices(kind)
    if not found:
        return ""
    details = tf.config.experimental.get_device_details(found[0])
    return str(details.get("device_name") or found[0].name.removeprefix("/physical_device:"))


def check_gpu(requested: int, name: str) -> None:
    """Check that TensorFlow finds the GPU that the pod was given."""
    if requested and not name:
        raise UserError(
            "This worker's pod has a GPU, but TensorFlow finds none",
            hint="Use an image with the driver's libraries and tensorflow[and-cuda] (--image_name), or request no gpu.",
        )
