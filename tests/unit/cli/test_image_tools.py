"""Which program builds images, and what users read if none can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from elasticdl.cli.images.tools import NAMES, Ask, check_name, tool_with, usable_tools
from elasticdl.shared.errors import UserError

NO_DAEMON = "Cannot connect to the Docker daemon. Is the docker daemon running?"
DIGEST = "sha256:" + "0" * 64


def machine(problems: Mapping[str, str], images: Mapping[str, Sequence[str]] | None = None) -> Ask:
    """A machine on which some programs are installed.

    Args:
        problems: program -> why it does not work; empty: it works.
        images: program -> the images that it has.
    """

    def ask(command: Sequence[str]) -> str | None:
        name, *arguments = command
        if name not in problems:
            return None
        if problems[name] or not {"inspect", "exists"}.intersection(arguments):
            return problems[name]
        return "" if arguments[-1] in (images or {}).get(name, ()) else "no such image"

    return ask


@pytest.mark.parametrize(
    ("installed", "usable"),
    [
        ({"docker": "", "podman": "", "buildah": ""}, ["docker", "podman", "buildah"]),
        ({"docker": NO_DAEMON, "buildah": ""}, ["buildah"]),
        ({"podman": ""}, ["podman"]),
    ],
)
def test_the_first_tool_that_works_is_used(installed: Mapping[str, str], usable: list[str]) -> None:
    assert [tool.name for tool in usable_tools(machine(installed))] == usable


def test_a_user_can_choose_the_tool() -> None:
    (tool,) = usable_tools(machine(dict.fromkeys(NAMES, "")), "podman")
    assert tool.build_command("zoo", "a/b:1", ["--pull"]) == [
        *["podman", "build", "--layers", "--tag=a/b:1", "--pull", "zoo"]
    ]


@pytest.mark.parametrize(
    ("installed", "wanted", "message"),
    [
        ({}, "", "docker, podman and buildah are not on the PATH"),
        ({"docker": ""}, "podman", "podman is not on the PATH"),
        ({"docker": NO_DAEMON}, "", "docker does not work: Cannot connect to the Docker daemon"),
        ({"docker": ""}, "kaniko", "--tool=kaniko: choose docker, podman or buildah"),
    ],
)
def test_a_machine_without_a_tool_is_refused(installed: Mapping[str, str], wanted: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        usable_tools(machine(installed), wanted)
    assert refusal.value.hint or refusal.value.usage


def test_the_tool_that_has_the_image_pushes_it() -> None:
    ask = machine({"docker": "", "buildah": ""}, {"buildah": ["r.example.com/models:1"]})
    assert tool_with("r.example.com/models:1", ask).name == "buildah"
    with pytest.raises(UserError, match=r"no image r\.example\.com/models:2 .*asked docker and buildah"):
        tool_with("r.example.com/models:2", ask)


@pytest.mark.parametrize("name", ["models", "localhost:5000/models", "r.example.com/team/models:1.0", f"a/b@{DIGEST}"])
def test_names_that_tools_take(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "Models", "-models", "a b", "models:", "a//b", "a/b@sha256:12"])
def test_names_that_no_tool_takes(name: str) -> None:
    with pytest.raises(UserError, match="is not the name of an image"):
        check_name(name)


def test_a_name_without_a_registry_is_not_pushed() -> None:
    with pytest.raises(UserError, match="The name models:1 does not say to which registry"):
        check_name("models:1", to_push=True)
