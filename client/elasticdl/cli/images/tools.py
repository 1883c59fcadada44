"""The programs that build and push images: what each is asked, and which one is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from elasticdl.shared.errors import UserError

Ask: TypeAlias = Callable[[Sequence[str]], str | None]
"""Runs a command without showing its output. Returns an empty text if it succeeded, its error message if it failed, and
None if there is no such program."""

_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?{_PART}(?:/{_PART})*(?::[a-zA-Z0-9_][a-zA-Z0-9._-]*)?(?:@sha256:[0-9a-f]{{64}})?"
)
"""Registry, path, tag and digest, as the OCI distribution specification defines them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTool:
    """A program that builds images from a Dockerfile, and pushes them.

    Attributes:
        name: the program.
        check: arguments with which it fails if it can't work, for example because its daemon does not run.
        build: arguments before the flags of a build.
        inspect: arguments before the name of an image; it fails if there is no such image on this machine.
    """

    name: str
    check: tuple[str, ...]
    build: tuple[str, ...]
    inspect: tuple[str, ...]

    def check_command(self) -> list[str]:
        """Fails if the tool can't work."""
        return [self.name, *self.check]

    def build_command(self, folder: str, image: str, more: Sequence[str] = ()) -> list[str]:
        """Builds the image of a folder; ``more`` are flags of the tool itself."""
        return [self.name, *self.build, f"--tag={image}", *more, folder]

    def inspect_command(self, image: str) -> list[str]:
        """Fails if the tool has no such image."""
        return [self.name, *self.inspect, image]

    def push_command(self, image: str) -> list[str]:
        """Pushes an image to the registry that its name begins with."""
        return [self.name, "push", image]


TOOLS = (
    ImageTool(
        name="docker",
        check=("version", "--format={{.Server.Version}}"),
        build=("build",),
        inspect=("image", "inspect"),
    ),
    ImageTool(name="podman", check=("info",), build=("build", "--layers"), inspect=("image", "exists")),
    ImageTool(
        name="buildah",
        check=("info",),
        build=("build", "--layers", "--force-rm"),  # else a build that fails leaves its container
        inspect=("inspect", "--type=image"),
    ),
)
"""In the order in which they are tried."""
NAMES = tuple(tool.name for tool in TOOLS)


def usable_tools(ask: Ask, wanted: str = "") -> list[ImageTool]:
    """The tools that work on this machine, at least one, in the order of preference.

    Args:
        ask: runs a command.
        wanted: consider only this one; empty: all.

    Raises:
        UserError: none works. The message names those that are installed, and why they do not work.
    """
    if wanted and wanted not in NAMES:
        raise UserError(f"--tool={wanted}: choose docker, podman or buildah", usage=True)
    answers = {tool: ask(tool.check_command()) for tool in TOOLS if wanted in ("", tool.name)}
    if usable := [tool for tool, problem in answers.items() if problem == ""]:
        return usable
    if broken := {tool.name: problem for tool, problem in answers.items() if problem}:
        reasons = "; ".join(f"{name} does not work: {problem}" for name, problem in broken.items())
        others = [name for name in NAMES if name not in broken]
        instead = f", or install {' or '.join(others)}" if others else ""
        raise UserError(
            f"No program can build images: {reasons}",
            hint=f"Start the daemon of {next(iter(broken))} or repair its installation{instead}.",
        )
    missing = f"{wanted} is" if wanted else "docker, podman and buildah are"
    raise UserError(
        f"No program can build images: {missing} not on the PATH",
        hint="Install one of docker, podman and buildah. On Debian: apt-get install buildah",
    )


def tool_with(image: str, ask: Ask, wanted: str = "") -> ImageTool:
    """The tool that has built an image.

    Args:
        image: name of the image.
        ask: runs a command.
        wanted: consider only this tool; empty: all.

    Raises:
        UserError: no tool works, or none has the image.
    """
    tools = usable_tools(ask, wanted)
    for tool in tools:
        if ask(tool.inspect_command(image)) == "":
            return tool
    names = " and ".join(tool.name for tool in tools)
    raise UserError(
        f"There is no image {image} on this machine (asked {names})",
        hint=f"Build it with: elasticdl zoo build DIR --image={image}",
    )


def check_name(image: str, *, to_push: bool = False) -> None:
    """Check the name of an image, as far as all tools agree on it.

    Args:
        image: such as ``registry.example.com/team/models:1``.
        to_push: whether the name has to say where the image is pushed to.

    Raises:
        UserError: no tool would take it.
    """
    if not _REFERENCE.fullmatch(image):
        raise UserError(
            f"{image!r} is not the name of an image",
            hint="Write it as registry.example.com/team/models:1, in lower case.",
            usage=True,
        )
    if to_push and "/" not in image:
        raise UserError(
            f"The name {image} does not say to which registry the image belongs",
            hint=f"Name the registry: elasticdl zoo build DIR --image=registry.example.com/{image}",
            usage=True,
        )
