"""Which job has written the model in an output: a small file beside the model says so."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.exported.layout import MARK
from elasticdl.shared.job.model_file import KERAS_FILE, SAVED_MODEL
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectNotFoundError, display, join, open_store

OWNER_FILE = ".elasticdl-export.json"
"""Hidden, so that a person who looks for the model does not see it."""
_MODELS = (KERAS_FILE, SAVED_MODEL, MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOwner:
    """A job that exports its model.

    Attributes:
        started_s: when the job was submitted, seconds since 1970.
    """

    job: JobId
    started_s: float

    def check(self, output: str) -> None:
        """Refuse an output whose model another job has written since this job started: its user expects to find both.

        A model that was there before is replaced, as every export does.

        Raises:
            PermanentError: names the other job, and the command that exports the model to another folder.
        """
        store = open_store(output)
        try:
            facts = json.loads(store.read(join(output, OWNER_FILE)))
            other, written_s = str(facts["job"]), float(facts["written_s"])
        except (ObjectNotFoundError, ValueError, KeyError, TypeError):
            return
        if other == self.job or written_s <= self.started_s:
            return
        prefix = join(output, "")
        if any(info.uri.removeprefix(prefix).partition("/")[0] in _MODELS for info in store.list(prefix)):
            raise PermanentError(
                f"{display(output)} holds the model of job {other}, which was written after job {self.job} started, so "
                f"it is not replaced. To export the model of this job: elasticdl export {self.job} --output=DIR"
            )

    def note(self, output: str) -> None:
        """Write that the model in an output is that of this job."""
        facts = {"job": self.job, "written_s": time.time()}
        open_store(output).write(join(output, OWNER_FILE), json.dumps(facts).encode())
