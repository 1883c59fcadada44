"""All processes of a job train, evaluate and export the same model, or the job says which layer differs."""

from __future__ import annotations

import signal

import pytest
from tests.e2e.elastic import Elastic, check_exact
from tests.e2e.failing import FLAGS, fails
from tests.e2e.models import LINEAR, slowly, write_data, write_model

WORDS = LINEAR.replace(
    """    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(1)(inputs))
""",
    """    inputs = keras.Input((3,))
    rounded = keras.layers.Lambda(lambda x: tf.strings.as_string(tf.round(x[:, 0] * 10)))(inputs)
    ids = keras.layers.StringLookup(vocabulary=WORDS, name="words")(rounded)
    rows = keras.layers.Embedding(len(WORDS) + 1, 4)(ids)
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([inputs, rows])))
""",
)
SET = 'WORDS = list({f"{n / 10:.6f}" for n in range(-100, 101, 10)})\n'
CHANCE = 'import numpy as np\nWORDS = np.random.default_rng().permutation([f"w{n}" for n in range(50)]).tolist()\n'
SEEDED = CHANCE.replace("np.random.default_rng()", "np.random")
FILE = """
import os
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "words.txt")) as file:
    WORDS = file.read().split()
"""
SLOW_FLAGS = ("--minibatch_size=16", "--num_minibatches_per_task=4")


@pytest.mark.parametrize(
    "words",
    [pytest.param(SET, id="set", marks=pytest.mark.thorough), pytest.param(SEEDED, id="numpy's generator")],
)
def test_a_vocabulary_in_any_order_is_the_same_after_a_death_a_resume_and_in_the_export(
    elastic: Elastic, words: str
) -> None:
    write_model(elastic.folder, words + slowly(WORDS))
    write_data(elastic.folder, records=20_000)
    flags = ("--model_def=model.py", "--training_data=data", "--num_workers=2", "--output=out", *SLOW_FLAGS)
    with elastic.start("train", *flags) as running:
        running.wait_for_progress()
        elastic.kill("worker-0")
        running.wait_for("worker-0 died")
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130, running.output
    elastic.remove_delay()
    outcome = elastic.run("resume", elastic.job)
    assert outcome.exit_code == 0, outcome.output
    check_exact(outcome)


def test_a_vocabulary_that_each_process_draws_for_itself_is_refused_by_name(elastic: Elastic) -> None:
    write_model(elastic.folder, CHANCE + WORDS)
    write_data(elastic.folder)
    fails(elastic, *FLAGS, says=["the vocabulary of layer 'words'", "each process", "sort a vocabulary"])
    assert not list(elastic.jobs.iterdir())


@pytest.mark.thorough
def test_a_vocabulary_file_that_changed_before_a_resume_is_named(elastic: Elastic) -> None:
    write_model(elastic.folder, FILE + slowly(WORDS))
    vocabulary = elastic.folder / "words.txt"
    vocabulary.write_text("a b c")
    write_data(elastic.folder, records=20_000)
    with elastic.start("train", *FLAGS, *SLOW_FLAGS) as running:
        running.wait_for_progress()
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130
    vocabulary.write_text("b a c")
    elastic.remove_delay()
    outcome = elastic.run("resume", elastic.job)
    assert outcome.exit_code == 1
    assert "the vocabulary of layer 'words'" in outcome.output
    assert "'b', 'a', 'c'] instead of ['[UNK]', 'a', 'b', 'c']" in outcome.output
    vocabulary.write_text("a b c")
    assert elastic.run("resume", elastic.job).exit_code == 0
