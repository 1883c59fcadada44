"""A decision: commands, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.messages.commands import Command

Decisions = list[tuple[Command, str]]
"""Commands with their reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Commands and their reasons; both empty when there is nothing to do."""

    commands: tuple[Command, ...] = ()
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.commands)

    @classmethod
    def of(cls, decisions: Decisions) -> Decision:
        """Join decisions to one; a reason that several commands share appears once."""
        if not decisions:
            return _NOTHING
        reasons = tuple(dict.fromkeys(reason for _, reason in decisions if reason))
        return cls(commands=tuple(command for command, _ in decisions), reasons=reasons)


_NOTHING = Decision()
