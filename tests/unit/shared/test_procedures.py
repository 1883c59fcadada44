from __future__ import annotations

import pytest

from elasticdl.shared.errors import InvariantError, TransientError
from elasticdl.shared.process.procedures import Procedure, Procedures


def test_a_procedure_is_resumed_with_results_and_errors() -> None:
    seen: list[object] = []

    def inner() -> Procedure[int]:
        answer = yield "ask"
        return int(answer) + 1

    def outer() -> Procedure[None]:
        seen.append((yield from inner()))
        try:
            yield "fail"
        except TransientError as error:
            seen.append(str(error))

    procedures: Procedures[str] = Procedures()
    procedures.start(outer())
    (asked,) = procedures.drain()
    procedures.done(asked.number, 41)
    (failing,) = procedures.drain()
    assert (asked.command, failing.command) == ("ask", "fail")
    procedures.failed(failing.number, TransientError("away"))
    assert seen == [42, "away"]
    assert len(procedures) == 0
    assert list(procedures.drain()) == []


def test_two_procedures_wait_side_by_side() -> None:
    ended: list[str] = []

    def wait(name: str) -> Procedure[None]:
        yield name
        ended.append(name)

    procedures: Procedures[str] = Procedures()
    procedures.start(wait("a"))
    procedures.start(wait("b"))
    first, second = procedures.drain()
    procedures.done(second.number, None)
    procedures.done(first.number, None)
    assert ended == ["b", "a"]


def test_the_outcome_of_an_unknown_command_is_a_defect() -> None:
    with pytest.raises(InvariantError):
        Procedures[str]().done(1, None)


def test_an_error_that_is_not_handled_reaches_the_core() -> None:
    def once() -> Procedure[None]:
        yield "command"

    procedures: Procedures[str] = Procedures()
    procedures.start(once())
    (issued,) = procedures.drain()
    with pytest.raises(TransientError):
        procedures.failed(issued.number, TransientError("away"))
    assert len(procedures) == 0
