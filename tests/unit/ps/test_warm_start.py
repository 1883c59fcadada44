"""A new job's model starts from the weights in another job's snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.unit.ps.example import BATCHES, ROWS_A, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job, snapshot
from tests.unit.ps.servers import weights

from elasticdl.ps.snapshots.kept_versions import kept_versions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import InitialModel, JobSpec
from elasticdl.shared.messages.events import ModelInitialised
from elasticdl.shared.model.signature import DenseVariable, ModelSignature, VariableKind
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import open_store
from elasticdl.shared.wire.messages import Floats

MakeJob = Callable[[JobSpec], Job]


@pytest.fixture
def make_job() -> Iterator[MakeJob]:
    jobs: list[Job] = []

    def make(of: JobSpec) -> Job:
        jobs.append(Job(of, open_store(of.storage)))
        for number in range(of.ps):
            jobs[-1].start(number)
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


@pytest.fixture
def trained(make_job: MakeJob, tmp_path: Path) -> tuple[InitialModel, list[Floats]]:
    """A job with two ps after three batches: its version, and its dense values and rows."""
    job = make_job(spec(f"file://{tmp_path}/first", ps=2))
    client = job.client(signature("adam"))
    client.initialise(initial_dense())
    for task, batch in BATCHES[:3]:
        client.push(push_of(task, batch))
    for number in range(2):
        snapshot(job, 1, number=number)
    version = kept_versions(job.store, job.spec, [job.register(number) for number in range(2)])[0]
    return version.as_initial_model(JobId("first")), [np.copy(one) for one in weights(client)]


def start(make_job: MakeJob, folder: Path, initial: InitialModel, model: ModelSignature, *, ps: int = 1) -> Job:
    job = make_job(replace(spec(f"file://{folder}/second", ps=ps), initial=initial))
    client = job.client(model)
    client.initialise(np.zeros(sum(variable.size for variable in model.dense), np.float32))
    return job


@pytest.mark.parametrize("ps", [1, 2, 3])
def test_the_model_has_the_weights_of_the_other_job_with_any_number_of_ps_and_any_optimizer(
    make_job: MakeJob, trained: tuple[InitialModel, list[Floats]], tmp_path: Path, ps: int
) -> None:
    initial, expected = trained
    job = start(make_job, tmp_path, initial, signature("sgd"), ps=ps)
    for mine, theirs in zip(weights(job.client(signature("sgd"))), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_training_starts_from_its_first_batch(
    make_job: MakeJob, trained: tuple[InitialModel, list[Floats]], tmp_path: Path
) -> None:
    initial, before = trained
    job = start(make_job, tmp_path, initial, signature("adam"))
    client = job.client(signature("adam"))
    client.push(push_of(*BATCHES[0]))
    snapshot(job, 1)
    newest, first = kept_versions(job.store, job.spec, [job.register()])
    assert (newest.step, first.step) == (1, 0)
    assert not np.array_equal(weights(client)[0], before[0])


@pytest.mark.parametrize("ps", [1, 3])
def test_the_optimizer_continues_if_that_is_asked_for(make_job: MakeJob, tmp_path: Path, ps: int) -> None:
    """Two jobs of one and two batches end with the weights of one job with all three."""
    model = replace(signature("adam"), tables=())
    pushes = [replace(push_of(*place), rows={}, magnitudes={}) for place in BATCHES[:3]]
    first, whole = (make_job(spec(f"file://{tmp_path}/{name}", ps=2)) for name in ("first", "whole"))
    for job, count in ((first, 1), (whole, 3)):
        client = job.client(model)
        client.initialise(initial_dense())
        for push in pushes[:count]:
            client.push(push)
    for number in range(2):
        snapshot(first, 1, number=number)
    version = kept_versions(first.store, first.spec, [first.register(number) for number in range(2)])[0]
    initial = replace(version.as_initial_model(JobId("first")), has_optimizer=True)
    continued = start(make_job, tmp_path, initial, model, ps=ps).client(model)
    for place, push in pairwise(pushes):
        gradient, statistics = push.dense_gradient, push.statistics_update
        continued.push(replace(place, dense_gradient=gradient, statistics_update=statistics))
    np.testing.assert_array_equal(continued.pull({}).dense, whole.client(model).pull({}).dense)


def test_the_state_of_another_optimizer_and_of_tables_is_refused(
    make_job: MakeJob, trained: tuple[InitialModel, list[Floats]], tmp_path: Path
) -> None:
    initial = replace(trained[0], has_optimizer=True)
    with pytest.raises(UserError, match="state of tables on parameter servers"):
        start(make_job, tmp_path, initial, signature("adam"))
    with pytest.raises(UserError, match="the optimizer is adagrad, and its state can't be that of adam in job first"):
        start(make_job, tmp_path / "other", initial, replace(signature("adagrad"), tables=()))


def test_variables_of_another_name_or_shape_keep_the_values_of_the_model_file_and_are_named(
    make_job: MakeJob, trained: tuple[InitialModel, list[Floats]], tmp_path: Path
) -> None:
    initial, expected = trained
    kernel, mean, bias, frozen = signature().dense
    dense = (
        DenseVariable(name="head", shape=(4,), kind=VariableKind.TRAINABLE),
        replace(bias, shape=(2,)),
        mean,
        kernel,
        frozen,
    )
    a, b = signature().tables
    model = replace(signature(), dense=dense, tables=(replace(a, input_dim=ROWS_A // 2), replace(b, name="c")))
    job = start(make_job, tmp_path, initial, model)
    pulled = job.client(model).pull({"a": np.arange(ROWS_A // 2)})
    values, rows, theirs = pulled.dense, pulled.rows["a"], expected[0]
    np.testing.assert_array_equal(values[:6], 0.0)
    np.testing.assert_array_equal(values[6:], np.concatenate([theirs[15:18], theirs[:15], theirs[21:]]))
    np.testing.assert_array_equal(rows, expected[1][: len(rows)])
    note = job.await_event(ModelInitialised).note
    assert note == (
        "Loaded 4 of 7 variables from job first at step 3. Different shape: bias (2,) (there (3,)). "
        "Different number of rows: a 20 (there 40). "
        "New in this model: head, c. Unused: b."
    )


def test_a_model_that_has_nothing_in_common_is_refused(
    make_job: MakeJob, trained: tuple[InitialModel, list[Floats]], tmp_path: Path
) -> None:
    other = DenseVariable(name="other", shape=(4,), kind=VariableKind.TRAINABLE)
    with pytest.raises(UserError, match="no variable of the model has the name and shape of one in job first"):
        start(make_job, tmp_path, trained[0], replace(signature(), dense=(other,), tables=()))


def test_missing_snapshots_of_the_other_job_are_named(
    make_job: MakeJob, trained: tuple[InitialModel, list[Floats]], tmp_path: Path
) -> None:
    manifest = trained[0].parts[0].manifest
    Path(manifest.removeprefix("file://")).unlink()
    with pytest.raises(UserError, match=f"the weights of job first, .* can't be read: .*{manifest}"):
        start(make_job, tmp_path, trained[0], signature())
