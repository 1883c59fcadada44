"""Generated reviews as JSON lines: ``text``, and ``label``, 1 if the reviewer was content.

Each review is about one of a few topics, whose word is somewhere in the text. Some words are opinions, and what an
opinion says depends on the topic: a light laptop is good, a light meal may not be. All other words mean nothing. A
label is drawn with the probability that the sum of the opinions gives, so the best possible scores are known. A model
that adds up weights of words falls short of them.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from elasticdl.zoo.writing import DataRequest, Written, auc, log_loss, write_text

RECORDS = 12_000
TEST_SHARE = 0.25
RECORDS_PER_FILE = 10_000
WORDS_MIN, WORDS_MAX = 10, 40
TOPICS, OPINIONS, FILLERS = 3, 40, 300

_OPINION_SHARE = 0.3
_STRENGTH = 1.5
_SYLLABLES = ("ba", "do", "fe", "gi", "ku", "la", "me", "ni", "po", "ra", "se", "ti", "vo", "zu")


def make(request: DataRequest) -> Written:
    """Write both folders."""
    counts = request.counts("text_classification", RECORDS, TEST_SHARE)
    random = np.random.default_rng((request.seed, 0))
    words, weights = _words(random), _STRENGTH * random.normal(size=(TOPICS, OPINIONS))
    best: dict[str, float] = {}
    for number, (part, count) in enumerate(counts.items(), start=1):
        random = np.random.default_rng((request.seed, number))
        texts, scores = zip(*(_review(words, weights, random) for _ in range(count)), strict=True)
        probabilities = 1 / (1 + np.exp(-np.array(scores)))
        labels = random.random(count) < probabilities
        lines = [json.dumps({"text": text, "label": int(label)}) for text, label in zip(texts, labels, strict=True)]
        write_text(request.folder / part, ".jsonl", lines, RECORDS_PER_FILE)
        best = {
            "accuracy": float(np.mean((probabilities > 0.5) == labels)),
            "auc": auc(labels, probabilities),
            "log_loss": log_loss(labels, probabilities),
        }  # The last is the test's.
    return counts, best


def _words(random: np.random.Generator) -> list[str]:
    """Different words of two and three syllables: first the topics, then the opinions."""
    pairs = [first + second for first in _SYLLABLES for second in _SYLLABLES]
    triples = [pair + third for pair in pairs for third in _SYLLABLES]
    chosen = random.permutation(len(pairs) + len(triples))[: TOPICS + OPINIONS + FILLERS]
    return [(pairs + triples)[number] for number in chosen]


def _review(words: list[str], weights: NDArray[np.float64], random: np.random.Generator) -> tuple[str, float]:
    """A text and the logit of its label."""
    topic, length = random.integers(TOPICS), random.integers(WORDS_MIN, WORDS_MAX + 1)
    is_opinion = random.random(length) < _OPINION_SHARE
    chosen = np.where(
        is_opinion, random.integers(OPINIONS, size=length), OPINIONS + random.integers(FILLERS, size=length)
    )
    score = float(weights[topic, chosen[is_opinion]].sum())
    text = [words[TOPICS + number] for number in chosen]
    text.insert(random.integers(length + 1), words[topic])
    return f"{' '.join(text).capitalize()}.", score
