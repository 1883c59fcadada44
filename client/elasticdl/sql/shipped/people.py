"""Generated people: the employees of a company, and a census."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_SEED = 20190917
_FIRST = ("Ada", "Bo", "Chidi", "Dana", "Émile", "Farah", "Grace", "Hiro", "Inés", "Jun", "Kofi", "Lena", "Mei", "Noor")
_LAST = ("Okafor", "Müller", "Li", "García", "Novák", "Singh", "Haddad", "Tanaka", "Silva", "Kim", "Rossi", "Dubois")
_CITIES = (
    *("San Francisco", "Zürich", "New York", "London", "Tokyo", "Singapore", "Paris", "Beijing", "Berlin", "Toronto"),
    *("Madrid", "São Paulo", "Lisbon", "Warsaw", "Nairobi", "Hanoi", "Bogotá", "Kraków", "Lagos", "Pune"),
)
"""The best paid ones first."""
_DEPARTMENTS = {"Engineering": 28_000, "Research": 24_000, "Sales": 12_000, "Finance": 16_000, "Design": 8_000}
_DEPARTMENTS |= {"Support": -6_000, "Operations": 0, "People": 2_000}
_POSITIONS = ("junior", "professional", "senior", "lead", "director")
_EDUCATION = ("school", "bachelor", "master", "doctorate")
_SKILLS = ("sql", "python", "writing", "german", "accounting", "negotiation", "statistics", "kubernetes")
_PAID_SKILLS = {"sql": 3_000, "python": 5_000, "statistics": 4_000, "kubernetes": 7_000}
_FIRST_DAY, _LAST_DAY = 11_323, 18_262
"""1 January 2001 and 2020, in days since 1970."""


def employees(rows: int) -> pa.Table:
    """Employees whose income follows a known rule with about a tenth of noise.

    Returns:
        Names, ids and a constant that say nothing about the income; numbers, words, a date, a boolean and a list that
        do; and about one missing value in 25 of ``performance`` and ``education``.
    """
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(_SEED)
    age = random.integers(20, 66, rows)
    city = np.minimum(random.geometric(0.12, rows) - 1, len(_CITIES) - 1)
    department = random.integers(0, len(_DEPARTMENTS), rows)
    education = random.choice(len(_EDUCATION), rows, p=[0.25, 0.4, 0.28, 0.07])
    position = np.clip(((age - 20) / 12 + random.normal(0, 0.8, rows)).astype(np.int64), 0, len(_POSITIONS) - 1)
    day = random.integers(_FIRST_DAY, _LAST_DAY, rows)
    full_time = random.random(rows) < 0.85
    performance = np.round(random.normal(3.2, 0.7, rows).clip(1, 5), 2)
    skills = [
        sorted(str(skill) for skill in random.choice(_SKILLS, number, replace=False))
        for number in random.integers(0, 5, rows)
    ]
    years = (_LAST_DAY - day) / 365.25
    yearly = (
        38_000
        + np.array([*_DEPARTMENTS.values()])[department]
        + 16_000 * position
        + 7_000 * education
        + 1_500 * (len(_CITIES) - city)
        + 900 * years
        + 5_000 * (performance - 3.2)
        + np.array([sum(_PAID_SKILLS.get(skill, 0) for skill in each) for each in skills])
        + 9_000 * ((department == 0) & (position >= 3))
    )
    income = yearly * np.where(full_time, 1.0, 0.6) * random.normal(1, 0.07, rows)
    return pa.table(
        {
            "id": np.arange(10_001, 10_001 + rows),
            "name": _full_names(random, rows),
            "age": age,
            "address": [_CITIES[each] for each in city],
            "department": [[*_DEPARTMENTS][each] for each in department],
            "position": [_POSITIONS[each] for each in position],
            "education": _with_nulls(random, [_EDUCATION[each] for each in education]),
            "onboard_date": pa.array(day, pa.int32()).cast(pa.date32()),
            "onboard_year": (day / 365.2425).astype(np.int64) + 1970,
            "full_time": full_time,
            "performance": pa.array(_with_nulls(random, performance.tolist()), pa.float64()),
            "skills": pa.array(skills, pa.list_(pa.string())),
            "company": ["ElasticDL"] * rows,
            "income": np.round(income, 2),
        }
    )


def census(rows: int) -> pa.Table:
    """The people of the example data ``census``, with the columns and types of the census of 1994."""
    import io

    import numpy as np
    import pyarrow as pa
    import pyarrow.csv

    from elasticdl.zoo.census import HEADER, people

    lines, _, _ = people(rows, np.random.default_rng(_SEED))
    text = "\n".join([HEADER, *lines]).encode()
    return pa.csv.read_csv(io.BytesIO(text))


def _full_names(random: np.random.Generator, rows: int) -> list[str]:
    first, last = random.integers(0, len(_FIRST), rows), random.integers(0, len(_LAST), rows)
    initials = random.integers(0, 26 * 26, rows)
    return [
        f"{_FIRST[one]} {chr(65 + initial // 26)}. {chr(65 + initial % 26)}. {_LAST[other]}"
        for one, initial, other in zip(first.tolist(), initials.tolist(), last.tolist(), strict=True)
    ]


def _with_nulls(random: np.random.Generator, values: list[Any]) -> list[Any]:
    missing = random.random(len(values)) < 0.04
    return [None if is_missing else value for value, is_missing in zip(values, missing.tolist(), strict=True)]
