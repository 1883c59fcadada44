"""Variables of ``--envs``: their text, and which of them are secret."""

from __future__ import annotations

import pytest

from elasticdl.cli.submission.flag_items import envs_text, parse_envs, split_secrets
from elasticdl.shared.errors import UserError


@pytest.mark.parametrize(
    "name",
    [
        "PASSWORD",
        "DB_PASSWORD",
        "PGPASSWORD",
        "my_secret",
        "HF_TOKEN",
        "API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "apikey",
        "MYSQL_PWD",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert split_secrets({name: "x"}) == ({}, {name: "x"})


@pytest.mark.parametrize("name", ["LANG", "KEYBOARD", "MONKEY", "PATH", "PASSES", "BYPASS", "TF_CPP_MIN_LOG_LEVEL"])
def test_other_names(name: str) -> None:
    assert split_secrets({name: "x"}) == ({name: "x"}, {})


def test_the_text_of_variables_is_read_again() -> None:
    text = "A=1,PATH=a,b=,C="
    assert envs_text(parse_envs(text)) == text


@pytest.mark.parametrize("text", ["1DB_PASSWORD=hunter2", "DB_PASSWORD=hunter2; B=1"])
def test_a_refusal_shows_no_value(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_envs(text)
    assert "hunter2" not in str(refused.value)
