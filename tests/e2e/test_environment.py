"""What a job stands on: the disk below its run directory, a NATS server that is there already, the root folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.elastic import Elastic, check_exact, left_behind
from tests.e2e.failing import fails
from tests.e2e.models import LINEAR, slowly, write_data, write_model

from elasticdl.shared.bus.server import NatsServer

SMALL_DISK = "48m"
BIG = LINEAR.replace("keras.layers.Dense(1)(inputs)", "keras.layers.Dense(1)(keras.layers.Dense(1_000_000)(inputs))")
"""20 MB of weights: its second snapshot does not fit on the small disk."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a small file system can only be mounted by root")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_ends_the_job_with_a_message_and_room_lets_it_go_on(elastic: Elastic, small_disk: Path) -> None:
    elastic.environment["ELASTICDL_RUN_DIR"] = str(small_disk)
    write_model(elastic.folder, BIG)
    write_data(elastic.folder, records=300)
    flags = ["--model_def=model.py", "--training_data=data", "--num_workers=1", "--checkpoint_steps=1"]
    outcome = elastic.run("train", *flags)
    assert outcome.exit_code == 1, outcome.output
    assert "disk full" in outcome.output, outcome.output
    assert str(small_disk) in outcome.output
    assert "elasticdl resume" in outcome.output
    assert "Traceback" not in outcome.output
    assert left_behind(small_disk) == []
    subprocess.run(["mount", "-o", "remount,size=1g", str(small_disk)], check=True)
    (job,) = (entry.name for entry in small_disk.iterdir() if entry.is_dir())
    resumed = elastic.run("resume", job)
    assert resumed.exit_code == 0, resumed.output
    check_exact(resumed)


OF_BIG = ["--model_def=model.py", "--training_data=data", "--num_workers=1"]


def test_an_output_that_is_too_small_is_refused_before_the_job_starts(elastic: Elastic, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=10m", str(small_disk)], check=True)
    write_model(elastic.folder, BIG)
    write_data(elastic.folder, records=300)
    says = f"the disk of the output {small_disk / 'output'} has too little space for the model: 10 MiB free, 38.1 MiB"
    fails(elastic, *OF_BIG, f"--output={small_disk / 'output'}", says=[says])
    assert not list(elastic.jobs.iterdir())


def test_an_output_that_is_full_is_named_and_another_one_can_be_given(elastic: Elastic, small_disk: Path) -> None:
    write_model(elastic.folder, slowly(BIG))
    write_data(elastic.folder, records=300)
    output = f"--output={small_disk / 'output'}"
    with elastic.start("train", *OF_BIG, output) as running:
        running.wait_for("Logs: ")  # The model has been checked.
        (small_disk / "other").write_bytes(bytes(20 << 20))
        elastic.remove_delay()
        assert running.wait() == 1
    exported = elastic.run("export", elastic.job)
    for text in (running.output, exported.output):
        assert f"disk full: {small_disk / 'output'} can't be written" in text, text
        assert "Traceback" not in text, text
    assert exported.exit_code == 1
    assert (
        f"The model is trained. To export it again, or to another folder: elasticdl resume {elastic.job} --output=DIR"
        in running.output
    )
    resumed = elastic.run("resume", elastic.job, "--output=elsewhere")
    assert resumed.exit_code == 0, resumed.output
    assert (elastic.folder / "elsewhere" / "model.keras").is_file()


def test_a_model_is_not_exported_into_the_data(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    elastic.train(*OF_BIG)
    for command in ("export", "resume"):
        outcome = elastic.run(command, elastic.job, "--output=data/model")
        assert outcome.exit_code == 2, outcome.output
        assert "--output=data/model is inside the data data" in outcome.output


def test_two_jobs_share_a_nats_server_that_is_there_already(elastic: Elastic, tmp_path: Path) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    server = NatsServer(tmp_path / "nats", token="s3cret")
    url = server.start()
    flags = ["--model_def=model.py", "--training_data=data", "--num_workers=1", f"--nats_url={url}"]
    reports = [elastic.folder / f"report-{number}.json" for number in range(2)]
    try:
        with (
            elastic.start("train", *flags, "--report", str(reports[0])) as first,
            elastic.start("train", *flags, "--report", str(reports[1])) as second,
        ):
            assert first.wait() == 0, first.output
            assert second.wait() == 0, second.output
        assert server.is_running()
        for report, running in zip(reports, (first, second), strict=True):
            facts = json.loads(report.read_text())
            assert facts["audit"]["exact"] is True
            assert facts["audit"]["records"] == 2000
            assert "nats-server" not in facts["services"]
            assert "s3cret" not in running.output
        wrong = elastic.run("train", *flags[:-1], f"--nats_url={url.replace('s3cret', 'guess')}")
        assert wrong.exit_code == 1, wrong.output
        assert "--nats_url" in wrong.output
        assert "Traceback" not in wrong.output
    finally:
        server.stop()


@pytest.mark.skipif(
    os.environ.get("CI") != "true" or os.geteuid() != 0 or Path("/mnist").exists(),
    reason="writes into /mnist: only in CI (CI=true), as root, and where there is no such folder",
)
def test_the_two_lines_verbatim(elastic: Elastic) -> None:
    try:
        made = elastic.run("zoo", "data", "mnist", "/mnist")
        assert made.exit_code == 0, made.output
        flags = "--model_def=mnist_functional_api.custom_model --training_data=/mnist/train --output=output"
        elastic.train(*flags.split())
        assert (elastic.folder / "output" / "model.keras").exists()
    finally:
        shutil.rmtree("/mnist", ignore_errors=True)


def test_names_may_have_any_letters_in_any_locale(elastic: Elastic) -> None:
    elastic.environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    write_model(elastic.folder, LINEAR).rename(elastic.folder / "modèle.py")
    write_data(elastic.folder, records=64)
    outcome = elastic.run("train", "--model_def=modèle.py", "--training_data=data", "--num_workers=1", "--run_dir=rün")
    assert outcome.exit_code == 0, outcome.output
    check_exact(outcome)
