"""The file ``submission.json``: what a job on Kubernetes was submitted with, for the container that plans the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import CLIENT_FLAGS
from elasticdl.shared.job.kind_options import COMMAND_FLAGS, CommandFlags
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.options import from_plain_values, plain_values
from elasticdl.shared.names import Incarnation, JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceJob:
    """A job that has ended, whose model another job uses."""

    job: JobId
    storage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionFile:
    """What the file contains.

    Attributes:
        created_s: when the user entered the command, seconds since the epoch.
        flags: of the command, with a seed if it trains, and with paths as the pods see them.
        source: the job whose model is used; None: it comes from a file, or the job uses none.
    """

    job: JobId
    run: Incarnation
    created_s: float
    flags: CommandFlags
    source: SourceJob | None = None
    resumption: ResumeChanges | None = None

    def to_json(self) -> str:
        """The content of the file: only flags that differ from their defaults."""
        content: dict[str, Any] = {
            "kind": self.flags.kind.value,
            "job": self.job,
            "run": self.run,
            "created_s": self.created_s,
            "flags": {name: value for name, value in plain_values(self.flags).items() if name not in CLIENT_FLAGS},
        }
        if self.source is not None:
            content["source"] = asdict(self.source)
        if self.resumption is not None:
            content["resumption"] = asdict(self.resumption)
        return json.dumps(content, indent=1)

    @classmethod
    def from_json(cls, text: str) -> SubmissionFile:
        """Inverse of ``to_json``."""
        try:
            content: Mapping[str, Any] = json.loads(text)
            source, resumption = content.get("source"), content.get("resumption")
            return cls(
                job=JobId(content["job"]),
                run=Incarnation(content["run"]),
                created_s=content["created_s"],
                flags=from_plain_values(COMMAND_FLAGS[JobKind(content["kind"])], content["flags"]),
                source=SourceJob(**source) if source is not None else None,
                resumption=ResumeChanges(**resumption) if resumption is not None else None,
            )
        except (TypeError, ValueError, KeyError) as error:
            raise UserError(
                f"submission.json is not usable by this image: {error}",
                hint="Use an image with the version of ElasticDL of your command line: --image_name.",
            ) from error
