"""What users read about wrong statements: every fault with its place, and what to write instead."""

from __future__ import annotations

import pytest

from elasticdl.sql.parsing import parse, render
from elasticdl.sql.parsing.tokens import SCRIPT_CHARS_MAX
from elasticdl.sql.statements import StatementError


def shown(script: str) -> str:
    with pytest.raises(StatementError) as caught:
        parse(script)
    return render(caught.value, script)


def test_a_misspelled_clause() -> None:
    assert shown("SELECT * FROM employee LABLE income INTO m") == (
        "line 1, column 24: 'LABLE' is not a keyword here.\n"
        "1 | SELECT * FROM employee LABLE income INTO m\n"
        "                           ^^^^^ Did you mean LABEL?"
    )


def test_all_faults_of_a_statement_are_shown_in_order() -> None:
    script = """SELECT * FROM e
  TO TRAIN A
  WITH a.b 3, c=f(2), d=[1,
  COLUMN CROSS([a, b), 3)
  LABEL INTO"""
    assert (
        shown(script)
        == """line 3, column 12: '=' is missing after the attribute a.b: this is '3'.
3 |   WITH a.b 3, c=f(2), d=[1,
               ^
line 3, column 17: the value of c is a call of f; values are constants.
3 |   WITH a.b 3, c=f(2), d=[1,
                    ^ Give a number, a string or a list.
line 4, column 10: ',' or ']' is missing: this is 'CROSS'.
4 |   COLUMN CROSS([a, b), 3)
             ^^^^^
line 5, column 9: the column after LABEL is missing: this is 'INTO'.
5 |   LABEL INTO
            ^^^^
line 5, column 13: the name for the model after INTO is missing: the statement ends here.
5 |   LABEL INTO
                ^"""
    )


def test_faults_of_all_statements_of_a_script_are_shown() -> None:
    text = shown("SHOW MODLES;\nSELCT 1;\nDROP TABLE x")
    assert [line for line in text.splitlines() if line.startswith("line")] == [
        "line 1, column 6: SHOW MODLES is unknown.",
        "line 2, column 1: no statement begins with 'SELCT'.",
        "line 3, column 6: only models can be dropped: DROP MODEL name, or DROP MODEL name@3.",
    ]


@pytest.mark.parametrize(
    ("script", "message", "hint"),
    [
        ("SELECT 1 LABEL a INOT m", "no clause begins with 'INOT'.", "Did you mean INTO?"),
        ("SELECT 1 TO TRIAN X LABEL a INTO m", "TO TRIAN is unknown.", "Did you mean TO TRAIN?"),
        ("SELECT * FROM t TRAIN DNNClassifier LABEL a INTO m", "'TRAIN' is not a keyword here.", "TO TRAIN?"),
        ("SELECT 1 TO TRAIN X LABEL a", "INTO is missing: it names the model to register.", "Add INTO NAME."),
        ("SELECT 1 TO TRAIN X INTO m", "LABEL is missing: it names the column to learn.", "Add LABEL NAME."),
        ("SELECT 1 TO PREDICT t.x", "USING is missing: it names the model.", "Add USING NAME."),
        ("SELECT 1 TO PREDICT t USING m LABEL x", "TO PREDICT takes no LABEL.", "It takes WITH, USING."),
        ("SELECT 1 LABEL a LABEL b INTO m", "LABEL is given twice.", ""),
        ("SELECT 1 TO TRAIN X WITH a=1, a=2 LABEL b INTO m", "the attribute a is given twice.", ""),
        ("SELECT 1 LABEL log(a) INTO m", "LABEL takes a column of the SELECT, not an expression.", "EXPRESSION AS y"),
        ("SELECT 1 TO TRAIN X COLUMN a COLUMN b LABEL y INTO m", "each of several COLUMN clauses needs FOR", ""),
        ("SELECT 1 TO TRAIN X COLUMN t.a LABEL y INTO m", "'t' is a table or the start of a name with a dot.", ""),
        ("SELECT 1 USING m@x LABEL y INTO m", "'m@x' names no version of a model.", "Write name@3"),
        ("SELECT 'abc", "this string has no end: ' is never closed.", ""),
        ('SELECT "abc', 'this quoted name has no end: " is never closed.', ""),
        ("SELECT /* abc", "this comment has no end: /* is never closed.", ""),
        ("SELECT $x$ abc", "this string has no end: $x$ is never closed.", ""),
        ("INSERT INTO t VALUES (1)", "INSERT is not available here: statements read the database.", ""),
        ("EXPLAIN SELECT 1", "PLAN is missing after EXPLAIN", "TO EXPLAIN m explains a model."),
        ("SHOW MODELS x", "the statement has ended here.", "Put a semicolon between statements."),
    ],
)
def test_one_fault(script: str, message: str, hint: str) -> None:
    text = shown(script)
    assert message in text
    assert hint in text
    assert text.count("line 1, column") == 1


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("SELECT 1 TO RUN a/b:1.0 CMD 'x' INTO t", "TO RUN is not supported: run the program before the statement"),
        ("SELECT 1 TO MAXIMIZE sum(x) CONSTRAINT x < 3", "TO MAXIMIZE is not supported: ElasticDL trains models."),
        ("SELECT 1 TO MINIMIZE x", "TO MINIMIZE is not supported: ElasticDL trains models."),
        (
            "SELECT 1 TO TRAIN xgboost.gbtree LABEL y INTO m",
            "models of xgboost are not supported: ElasticDL trains Keras models.",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(script: str, message: str) -> None:
    text = shown(script)
    assert message in text
    assert text.count("line 1, column") == 1


def test_the_caret_is_under_wide_characters_and_tabs() -> None:
    lines = shown("SELECT 1\tLABEL 收入 INOT m").splitlines()
    assert lines[1] == "1 | SELECT 1    LABEL 收入 INOT m"
    assert lines[2] == " " * (4 + 12 + 6 + 4 + 1) + "^^^^ Did you mean INTO?"


def test_control_characters_are_not_printed() -> None:
    assert "\x1b" not in shown("SELECT 1 LABEL a INTO m \x1b[31m")


def test_long_lines_are_cut_around_the_place() -> None:
    text = shown(f"SELECT {'a, ' * 1000} 1 LABEL a INOT m")
    assert max(map(len, text.splitlines())) < 200
    assert "INOT" in text.splitlines()[1]


def test_limits() -> None:
    assert "the limit is" in shown(" " * (SCRIPT_CHARS_MAX + 1))
    assert "nested more than 16 deep" in shown(f"SELECT 1 TO TRAIN X COLUMN {'F(' * 99}a{')' * 99} LABEL y INTO m")
    assert "nested more than 16 deep" in shown(f"SELECT 1 TO TRAIN X WITH a={'[' * 99}{']' * 99} LABEL y INTO m")
    assert "more than 10,000 statements" in shown("SHOW MODELS;" * 10_001)
    assert "more than 1,000 attributes" in shown(
        f"SELECT 1 TO TRAIN X WITH {', '.join(f'a{n}=1' for n in range(1_001))} LABEL y INTO m"
    )


def test_bytes_that_are_not_utf_8_have_a_place() -> None:
    assert shown("SELECT 'a\udcff'").startswith("line 1, column 10: this is not UTF-8.")
