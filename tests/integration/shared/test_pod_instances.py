"""Pod instances on one machine name one process each, also after its process id is used again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from elasticdl.shared.names import PodInstance
from elasticdl.shared.pod_instances import instance_of, own_instance, pid_of


def test_a_process_and_its_parent_name_it_alike() -> None:
    code = "from elasticdl.shared.pod_instances import own_instance; print(own_instance()); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        instance = PodInstance(child.stdout.readline().decode().strip())
        assert instance == instance_of(child.pid) != own_instance()
        assert pid_of(instance) == child.pid
        child.communicate(b"\n")
    assert pid_of(instance) == 0, "it has ended"


def test_another_process_with_the_same_id_is_another_instance() -> None:
    pid = os.getpid()
    assert pid_of(own_instance()) == pid
    assert pid_of(PodInstance(f"{pid}-0")) == 0


@pytest.mark.parametrize("instance", ["", "never started", "6f1c0d3e-uid"])
def test_an_instance_that_names_no_process_has_no_process_id(instance: str) -> None:
    assert pid_of(PodInstance(instance)) == 0


def test_a_process_that_does_not_run_has_no_instance() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    with pytest.raises(ProcessLookupError, match=str(child.pid)):
        instance_of(child.pid)
