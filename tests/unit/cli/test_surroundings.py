"""Commands in a folder that was deleted, and of a user without a home."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from elasticdl.cli.surroundings import check_working_folder, ensure_home
from elasticdl.shared.errors import UserError

STRANGER = max(user.pw_uid for user in pwd.getpwall()) + 1


def test_a_deleted_working_folder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_working_folder()
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UserError, match="working folder was deleted"):
        check_working_folder()


def test_a_user_whom_the_system_does_not_know_gets_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    assert ensure_home(environment) == "" and environment == {}
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: STRANGER)
    assert str(STRANGER) in ensure_home(environment)
    assert environment["HOME"].endswith(f"elasticdl-{STRANGER}")
