"""Generated people in the format of the census income data: 13 CSV columns, and whether the income is over 50K.

The label follows a known rule (logistic in the columns, with two crossed features), so the best possible AUC is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elasticdl.zoo.writing import DataRequest, Written, auc, log_loss, write_text

RECORDS = 32_000
TEST_SHARE = 0.25
RECORDS_PER_FILE = 10_000

WORKCLASSES = ("Private", "Self-employed", "Government", "Without-pay")
EDUCATION = ("School", "High-school", "Some-college", "Bachelors", "Masters", "Doctorate")
MARITAL = ("Married", "Never-married", "Divorced", "Widowed")
OCCUPATIONS = (
    "Adm-clerical", "Craft-repair", "Exec-managerial", "Farming-fishing", "Handlers-cleaners", "Machine-op-inspct",
    "Other-service", "Priv-house-serv", "Prof-specialty", "Protective-serv", "Sales", "Tech-support",
    "Transport-moving",
)  # fmt: skip
RELATIONSHIPS = ("Husband", "Wife", "Own-child", "Not-in-family", "Unmarried", "Other-relative")
SEXES = ("Female", "Male")
COUNTRIES = tuple(f"Country-{number:02d}" for number in range(40))
HEADER = (
    "age,workclass,education,education_num,marital_status,occupation,relationship,sex,capital_gain,capital_loss,"
    "hours_per_week,native_country,income_bracket"
)

_EDUCATION_YEARS = np.array([6, 9, 10, 13, 14, 16])
_OCCUPATION_EFFECT = np.linspace(-0.9, 0.9, len(OCCUPATIONS))[[5, 6, 12, 2, 1, 4, 0, 3, 11, 8, 9, 10, 7]]
_WORKCLASS_EFFECT = np.array([0.0, 0.3, 0.1, -1.5])


def make(request: DataRequest) -> Written:
    """Write both folders."""
    counts = request.counts("census", RECORDS, TEST_SHARE)
    best: dict[str, float] = {}
    for number, (part, count) in enumerate(counts.items()):
        lines, probabilities, labels = people(count, np.random.default_rng((request.seed, number)))
        write_text(request.folder / part, ".csv", lines, RECORDS_PER_FILE, header=[HEADER])
        best = {
            "auc": auc(labels, probabilities),
            "log_loss": log_loss(labels, probabilities),
        }  # The last is the test's.
    return counts, best


def people(count: int, random: np.random.Generator) -> tuple[list[str], NDArray[np.float64], NDArray[np.bool_]]:
    """CSV lines, true probabilities and labels."""
    age = np.clip(random.gamma(6.0, 6.5, count), 17, 90).astype(np.int64)
    education = random.choice(len(EDUCATION), count, p=[0.13, 0.32, 0.25, 0.19, 0.08, 0.03])
    workclass = random.choice(len(WORKCLASSES), count, p=[0.74, 0.11, 0.14, 0.01])
    marital = random.choice(len(MARITAL), count, p=[0.48, 0.32, 0.16, 0.04])
    sex = random.integers(0, 2, count)
    single = random.choice([2, 3, 4, 5], count, p=[0.3, 0.45, 0.2, 0.05])
    relationship = np.where(marital == 0, 1 - sex, single)
    occupation = random.integers(0, len(OCCUPATIONS), count)
    hours = np.clip(random.normal(40, 11, count), 5, 99).astype(np.int64)
    gain = np.where(random.random(count) < 0.08, random.lognormal(8.3, 1.0, count), 0).astype(np.int64)
    loss = np.where((gain == 0) & (random.random(count) < 0.05), random.normal(1900, 300, count), 0).astype(np.int64)
    country = np.minimum(random.geometric(0.25, count) - 1, len(COUNTRIES) - 1)
    score = (
        -2.3
        + 0.35 * (_EDUCATION_YEARS[education] - 10)
        - 0.0022 * (age - 50.0) ** 2 / 2
        + 0.03 * (hours - 40)
        + 1.6 * (marital == 0)
        + _OCCUPATION_EFFECT[occupation]
        + _WORKCLASS_EFFECT[workclass]
        + 0.45 * np.log1p(gain / 1000.0)
        + 0.0004 * loss
        + 0.9 * ((education >= 3) & (occupation == OCCUPATIONS.index("Exec-managerial")))
        - 0.8 * ((education <= 1) & (workclass == 1))
    )
    probabilities = 1 / (1 + np.exp(-score))
    labels = random.random(count) < probabilities
    columns: tuple[list[object], ...] = (
        age.tolist(),
        _named(WORKCLASSES, workclass),
        _named(EDUCATION, education),
        _EDUCATION_YEARS[education].tolist(),
        _named(MARITAL, marital),
        _named(OCCUPATIONS, occupation),
        _named(RELATIONSHIPS, relationship),
        _named(SEXES, sex),
        gain.tolist(),
        loss.tolist(),
        hours.tolist(),
        _named(COUNTRIES, country),
        _named(("<=50K", ">50K"), labels.astype(np.int64)),
    )
    return [",".join(map(str, row)) for row in zip(*columns, strict=True)], probabilities, labels


def _named(names: tuple[str, ...], numbers: NDArray[np.int64]) -> list[object]:
    return [names[number] for number in numbers.tolist()]
