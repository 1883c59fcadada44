"""Which columns become features, and how, where the statement does not say so: by type and statistics of all rows.

Pure: everything that is known of a column is its ``Profile``. ``docs/sql-columns.md`` has the rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from elasticdl.sql.columns.profile import Profile

Use = Literal["number", "day", "vocabulary", "hash", "vector", "texts", "out"]
ROWS_FOR_IDS = 20
"""With fewer rows, that all values differ says nothing."""
VOCABULARY_MAX = 10_000
"""Values of a vocabulary. A column with more of them is hashed."""
BUCKETS_MAX = 1_000_000
BUCKETS_PER_VALUE = 3
VECTOR_MAX = 10_000
"""Length of a list of numbers."""
CLASSES_FEW = 20
"""An integer label with at most so many different values is a class."""
CLASSES_MAX = 10_000
_REPEATS_MIN = 2.0
"""A text that occurs less often on average is like a name."""
_ID_NAMES = re.compile(r"(id|uid|uuid|guid|rowid|row_id|row_number|rownum|index|pk)", re.IGNORECASE)
_CODE_NAMES = re.compile(r".*(_id|_code|_no|zip|zipcode|postcode|postal_code|plz)", re.IGNORECASE)
_CAMEL_ID = re.compile(r".*[a-z]I[dD]")
_FLOAT_EXACT = float(1 << 53)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a column, and why. ``buckets``: of a hash."""

    name: str
    use: Use
    reason: str
    buckets: int = 0


def derive(profile: Profile) -> Decision:
    """Decide about one column."""
    name, source = profile.name, profile.source
    if profile.values == 0 or source == "null":
        return _out(profile, "it has no values: every row is NULL")
    if source == "other":
        return _out(profile, f"its type {profile.shown_type} is not supported: select an expression of it instead")
    if profile.distinct == 1 and profile.nulls == 0 and profile.rows > 1:
        return _out(profile, "it is constant: every row has the same value")
    if _ID_NAMES.fullmatch(name):
        return _out(profile, "its name is that of an id, which says nothing about new rows")
    match source:
        case "boolean":
            return Decision(name=name, use="number", reason=_with_nulls(profile, "boolean: 0 or 1"))
        case "integer":
            return _integer(profile)
        case "number" | "decimal" | "time":
            return Decision(name=name, use="number", reason=_with_nulls(profile, f"{source}: scaled"))
        case "date" | "timestamp":
            reason = f"{source}: trend, time of year and weekday"
            return Decision(name=name, use="day", reason=_with_nulls(profile, reason))
        case "numbers":
            return _numbers(profile)
        case "texts":
            return Decision(name=name, use="texts", reason="list of texts: each value of the vocabulary, or not")
        case _:
            return _text(profile)


def is_classification(profile: Profile) -> tuple[bool, str]:
    """Whether a label is a class, and why."""
    if profile.source in ("text", "boolean"):
        return True, f"{profile.source} label"
    if profile.source == "integer" and profile.distinct <= CLASSES_FEW:
        return True, f"integer label with {profile.distinct} different values"
    return False, f"{profile.source} label with {profile.distinct:,} different values"


def _out(profile: Profile, reason: str) -> Decision:
    return Decision(name=profile.name, use="out", reason=reason)


def _with_nulls(profile: Profile, reason: str) -> str:
    return f"{reason}; {profile.nulls:,} NULL, marked by another number" if profile.nulls else reason


def _integer(profile: Profile) -> Decision:
    if profile.unique and profile.values >= ROWS_FOR_IDS:
        return _out(profile, "it is like an id: an integer that differs in every row")
    is_code = _CODE_NAMES.fullmatch(profile.name) or _CAMEL_ID.fullmatch(profile.name)
    if is_code and profile.distinct > 2:
        return _category(profile, "integer with the name of a code")
    if max(abs(profile.low), abs(profile.high)) > _FLOAT_EXACT:
        return _category(profile, "integer beyond 2^53, so more likely a code than a quantity")
    return Decision(name=profile.name, use="number", reason=_with_nulls(profile, "integer: scaled"))


def _text(profile: Profile) -> Decision:
    if profile.dated:
        reason = f"texts that are {profile.dated}s: trend, time of year and weekday"
        return Decision(name=profile.name, use="day", reason=_with_nulls(profile, reason))
    if profile.numeric and profile.distinct > CLASSES_FEW:
        return Decision(name=profile.name, use="number", reason=_with_nulls(profile, "texts that are numbers: scaled"))
    if profile.unique and profile.values >= ROWS_FOR_IDS:
        return _out(profile, "it is like an id or a name: a text that differs in every row")
    if profile.values >= ROWS_FOR_IDS and profile.values < _REPEATS_MIN * profile.distinct:
        return _out(profile, f"it is like a name: {profile.distinct:,} different texts in {profile.values:,} rows")
    return _category(profile, "text")


def _category(profile: Profile, kind: str) -> Decision:
    if profile.distinct > VOCABULARY_MAX:
        buckets = min(BUCKETS_PER_VALUE * profile.distinct, BUCKETS_MAX)
        reason = f"{kind}: {profile.distinct:,} different values, hashed to {buckets:,} buckets"
        return Decision(name=profile.name, use="hash", reason=reason, buckets=buckets)
    return Decision(name=profile.name, use="vocabulary", reason=f"{kind}: vocabulary of {profile.distinct:,}")


def _numbers(profile: Profile) -> Decision:
    if profile.low != profile.high:
        return _out(
            profile,
            f"it is a list of {profile.low:.0f} to {profile.high:.0f} numbers, and a model takes lists of one "
            f"length. For lists of ids: COLUMN EMBEDDING(SEQ_CATEGORY_ID({profile.name}, n), 8)",
        )
    if not 0 < profile.low <= VECTOR_MAX:
        return _out(profile, f"it is a list of {profile.low:.0f} numbers, the limit is {VECTOR_MAX:,}")
    return Decision(name=profile.name, use="vector", reason=f"list of {profile.low:.0f} numbers: scaled")
