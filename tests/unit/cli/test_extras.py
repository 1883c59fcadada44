"""A missing extra is named before a job starts."""

from __future__ import annotations

import pytest

from elasticdl.cli.submission.extras import EXTRAS, check_extras
from elasticdl.shared.errors import UserError


def test_what_is_installed_is_found_without_being_imported() -> None:
    check_extras()


def test_a_missing_module_is_named_with_the_extra_that_installs_it() -> None:
    with pytest.raises(UserError, match="not installed: no_such_module") as refused:
        check_extras({**EXTRAS, "worker": ("json", "no_such_module")})
    assert refused.value.hint == "Install them with: pip install 'elasticdl[worker]'"
