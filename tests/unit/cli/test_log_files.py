"""Log files that begin again: the former part stays readable, and no process fills the disk."""

from __future__ import annotations

import os
from pathlib import Path

from elasticdl.cli.local.processes.logs import NewLines, bound, tail


def lines_of(first: int, last: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, last + 1))


def test_a_log_above_the_limit_begins_again_and_its_lines_are_read_from_both_parts(tmp_path: Path) -> None:
    log = tmp_path / "ps-0.log"
    with log.open("ab") as file:  # As its process keeps it open.
        file.write(lines_of(1, 100).encode())
        file.flush()
        bound(tmp_path, 500)
        assert log.stat().st_size == 0
        file.write(lines_of(101, 103).encode())
        file.flush()
    assert tail(log, 5).splitlines() == [f"line {number}" for number in range(99, 104)]
    assert tail(log, 2).splitlines() == ["line 102", "line 103"]


def test_a_process_that_writes_for_ever_takes_two_parts(tmp_path: Path) -> None:
    with (tmp_path / "worker-0.out").open("ab") as file:
        for number in range(0, 5000, 50):
            file.write(lines_of(number, number + 49).encode())
            file.flush()
            bound(tmp_path, 2000)
    assert len(list(tmp_path.iterdir())) == 2
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 2000


def test_new_lines_of_a_log_that_began_again_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.out"
    log.write_text(lines_of(1, 50))
    new = NewLines(tmp_path)
    bound(tmp_path, 100)
    with log.open("a") as file:
        file.write("after\n")
    assert new.take() == [("worker-0", "after")]


def test_a_small_log_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "ps-0.log"
    log.write_text("a line\n")
    os.utime(log, (1, 1))
    bound(tmp_path, 500)
    assert log.read_text() == "a line\n"
    assert log.stat().st_mtime == 1
