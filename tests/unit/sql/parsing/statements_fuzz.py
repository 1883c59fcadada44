"""Random statements: from the grammar, from the grammar with damage, and random bytes.

    python tests/unit/sql/parsing/statements_fuzz.py --statements=1000000 --seed=0

Each is parsed, its attributes are checked and its errors are shown. What is not a ``StatementError`` is a bug; so is a
statement that takes long.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from elasticdl.shared.words import listed
from elasticdl.sql.attributes import TRAIN, attribute_table, check_attributes
from elasticdl.sql.parsing import parse, render
from elasticdl.sql.parsing.sources import named_tables
from elasticdl.sql.parsing.tokens import Text, tokenize
from elasticdl.sql.statements import Evaluate, Explain, ExplainPlan, Predict, StatementError, Train

SECONDS_MAX = 5.0
"""A statement that takes as long, on a slow machine too, hangs."""
_WORDS = listed(
    "SELECT,FROM,WHERE,WITH,COLUMN,LABEL,USING,INTO,TO,TRAIN,PREDICT,EVALUATE,EXPLAIN,PLAN,SHOW,MODELS,DESCRIBE,MODEL,"
    "DROP,FOR,AS,a,income,employee,iris.train,t.x,m@3,m@,@,NULL,true,EMBEDDING,CROSS,BUCKET,UNION,ORDER,BY,RUN,MAXIMIZE"
)
_LONG_SIGNS = ("--", "/*", "*/", "$$", "e'", "\N{SNOWMAN}", "\N{COMBINING ACUTE ACCENT}")
_SIGNS = [*"()[]{},.;=*-+/\\@$'\"`:<>!?%&|^~#\n\t \0", *_LONG_SIGNS]
_STRINGS = ["'x'", '"x y"', "`q`", "'it''s'", "$$a$$", "e'\\n'", "''", "'sex_.*'", '"\N{CJK UNIFIED IDEOGRAPH-6536}"']
_NUMBERS = ["0", "1", "-3", "2.5", "1e9", "1e999", ".5", "99999999999999999999999999999999999", "1.2.3"]


@dataclass
class Statements:
    """Makes random statements."""

    random: random.Random
    attributes: list[str] = field(default_factory=lambda: [*attribute_table(TRAIN), "model.units", "train.epoch", "x"])

    def any(self) -> str:
        """One text: of the grammar, damaged, or arbitrary."""
        kind = self.random.random()
        if kind < 0.4:
            return self.statement()
        if kind < 0.8:
            return self.damaged(self.statement())
        if kind < 0.9:
            return "".join(
                self._one([*_WORDS, *_SIGNS, *_STRINGS, *_NUMBERS]) + self._one(["", " "]) for _ in range(30)
            )
        size = self.random.randrange(80)
        return self.random.randbytes(size).decode(self._one(["latin-1", "utf-8"]), errors="replace")

    def statement(self, depth: int = 0) -> str:
        """A statement of the grammar; its clauses are in any order."""
        kind = self.random.randrange(8)
        if kind == 0:
            return self._one(["SHOW MODELS", f"SHOW TRAIN {self.name()}", f"DROP MODEL {self.name()}", "SHOW TABLES"])
        if kind == 1 and depth == 0:
            return f"EXPLAIN PLAN {self.statement(1)}"
        if kind == 2 and depth == 0:
            return ";".join(self.statement(1) for _ in range(3))
        clauses = [self.clause() for _ in range(self.random.randrange(6))]
        self.random.shuffle(clauses)
        verb = self._one(["", "", "TO TRAIN", "TO PREDICT", "TO EVALUATE", "TO EXPLAIN"])
        subject = self.name() if verb else ""
        return " ".join([self.query(), verb, subject, *clauses])

    def query(self) -> str:
        """A SELECT."""
        return self._one(
            [
                f"SELECT * FROM {self.name()}",
                f"SELECT a, label FROM {self.name()} WHERE x = {self.value()} ORDER BY label DESC",
                "WITH c AS (SELECT 1 AS label) SELECT * FROM c JOIN d USING (x)",
                f'(SELECT a AS "in come" FROM {self.name()}) UNION ALL SELECT 2 /* INTO */ -- LABEL\n',
                f"FROM {self.name()}",
            ]
        )

    def clause(self) -> str:
        """One clause."""
        match self.random.randrange(5):
            case 0:
                return f"LABEL {self._one(['income', 'label', '`a b`', self.name()])}"
            case 1:
                return f"INTO {self.name()}"
            case 2:
                return f"USING {self.name()}"
            case 3:
                items = [f"{self._one(self.attributes)}={self.value()}" for _ in range(self.random.randrange(1, 4))]
                return f"WITH {', '.join(items)}"
            case _:
                items = [self.column() for _ in range(self.random.randrange(1, 4))]
                return f"COLUMN {', '.join(items)}{self._one(['', ' FOR wide'])}"

    def column(self, depth: int = 0) -> str:
        """An expression of COLUMN, nested at times deeper than is allowed."""
        if depth > 24 or self.random.random() < 0.5:
            return self._one(["age", "*", "'sex_.*'", '"in come"', "label"])
        function = self._one(["EMBEDDING", "CROSS", "BUCKET", "NORMALIZE"])
        more = self._one(["", ", 16", ", [1, 2]", ", combiner='sum'", f", {self.value()}"])
        return f"{function}({self.column(depth + 1)}{more})"

    def value(self) -> str:
        """A value of an attribute."""
        if self.random.random() < 0.2:
            return f"[{', '.join(self.value() for _ in range(self.random.randrange(3)))}]"
        return self._one([*_NUMBERS, *_STRINGS, "true", "Adam", "null", "f(1)"])

    def name(self) -> str:
        """A name of a table or a model."""
        return self._one(
            ["employee", "iris.train", "zoo.net@3", "a-b", "file.py:Net", '"my t"', "'x'", "db.t.c", "label"]
        )

    def damaged(self, text: str) -> str:
        """A text with some characters removed, added or repeated."""
        for _ in range(self.random.randrange(1, 5)):
            at = self.random.randrange(len(text) + 1)
            end = at + self.random.randrange(6)
            added = self._one(["", self._one(_SIGNS), self._one(_WORDS), text[at:end] * 2])
            text = text[:at] + added + text[end:]
        return text

    def _one(self, among: Sequence[str]) -> str:
        return self.random.choice(among)


def check(text: str) -> str:
    """Parse a text, check its attributes and show its errors; returns what came of it."""
    try:
        for parsed in parse(text):
            statement = parsed.statement
            if isinstance(statement, ExplainPlan):
                statement = statement.statement
            if isinstance(statement, (Train, Predict, Evaluate, Explain)):
                assert all(table.name for table in named_tables(tokenize(Text(statement.query.text))))
                faults = check_attributes(statement).faults
                if faults:
                    raise StatementError(faults)
    except StatementError as error:
        shown = render(error, text)
        assert shown.count("line ") >= 1, shown
        assert "Traceback" not in shown
        return "refused"
    return "parsed"


def fuzz(statements: int, seed: int, progress: Callable[[int], None] = lambda number: None) -> dict[str, int]:
    """Check random statements; returns how many were parsed and refused.

    Raises:
        AssertionError: a statement has shown a bug. The message has the statement.
    """
    source = Statements(random.Random(seed))
    found = {"parsed": 0, "refused": 0}
    for number in range(statements):
        text = source.any()
        started_s = time.process_time()
        try:
            found[check(text)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, statement {number}: {text!r}: {error!r}") from error
        seconds = time.process_time() - started_s
        assert seconds < SECONDS_MAX, f"seed {seed}, statement {number} took {seconds:.1f} s: {text!r}"
        progress(number)
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--statements", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    def progress(number: int) -> None:
        if number % 50_000 == 49_999:
            sys.stdout.write(f"{number + 1:,}\n")
            sys.stdout.flush()

    sys.stdout.write(f"{fuzz(arguments.statements, arguments.seed, progress)}\n")


if __name__ == "__main__":
    main()
