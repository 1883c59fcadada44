"""A task whose records fail for good ends the job. A resume trains it again, or skips it, as the user decides."""

from __future__ import annotations

from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, write_data, write_model

POISONED = LINEAR.replace(
    "    features = tf.stack",
    "    tf.debugging.assert_less(tf.cast(records['a'], tf.float32), 1000.0, 'a record is poisoned')\n"
    "    features = tf.stack",
)


def test_a_job_goes_without_the_records_that_fail_for_good(elastic: Elastic) -> None:
    write_model(elastic.folder, POISONED)
    path = write_data(elastic.folder, records=600)
    lines = path.read_text().splitlines()
    lines[450] = "5000," + lines[450].split(",", 1)[1]
    path.write_text("\n".join(lines) + "\n")
    flags = ("--model_def=model.py", "--training_data=data", "--num_workers=1", "--num_epochs=1", "--shuffle=none")
    failed = elastic.run("train", *flags, "--minibatch_size=20", "--num_minibatches_per_task=5", "--output=model")
    assert failed.exit_code == 1, failed.output
    assert "--skip_tasks=4" in failed.output, failed.output
    listed = elastic.run("tasks", failed.job, "--state=failed")
    assert "a record is poisoned" in listed.output, listed.output

    refused = elastic.run("resume", failed.job, "--skip_tasks=3")
    assert refused.exit_code == 2 and "task 3" in refused.output and "can be skipped: 4." in refused.output
    done = elastic.run("resume", failed.job, "--skip_tasks=4")
    assert done.exit_code == 0, done.output
    audit = done.report["audit"]
    assert (audit["exact"], [each["task"] for each in audit["skipped"]]) == (True, [4])
    assert audit["records"] + audit["skipped_records"] == 600
    assert "skipped" in done.output and "of task 4 (" in done.output, done.output
    events = elastic.run("events", failed.job, "--type=JobResumed")
    assert "skipped=((4, 5),)" in events.output, events.output
