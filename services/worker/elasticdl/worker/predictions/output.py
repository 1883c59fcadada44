"""The output folder of a prediction job.

Each attempt at a task writes a file of its own into ``_temporary/JOB``. The log decides which file of a task counts.
Publishing renames these files to ``part-00000-of-00010.parquet``, deletes the others and writes ``_SUCCESS``. A second
attempt to publish, also one that was delayed, finds the renamed files and changes nothing. Programs that read folders,
such as Spark and pyarrow, skip names that begin with ``_``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.storage import ObjectNotFoundError, ObjectStore, join, remove_empty_folders

TEMPORARY = "_temporary"
SUCCESS = "_SUCCESS"
_NAME_BYTES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionOutput:
    """The files of one prediction job.

    Attributes:
        token: makes the part of a file's name that no other attempt has.
    """

    store: ObjectStore
    folder: str
    job: str
    tasks: int
    suffix: str
    token: Callable[[], str] = field(default=lambda: secrets.token_hex(_NAME_BYTES))

    @classmethod
    def of(cls, spec: JobSpec, store: ObjectStore) -> PredictionOutput:
        """The files of a job; it has data to predict."""
        assert spec.prediction is not None and spec.validation is not None
        return cls(
            store=store,
            folder=spec.output,
            job=spec.job,
            tasks=spec.validation.tasks,
            suffix=spec.prediction.format,
        )

    def part(self, task: int) -> str:
        """URI of the published file of a task."""
        return join(self.folder, f"part-{task:05}-of-{self.tasks:05}.{self.suffix}")

    def write(self, task: int, content: bytes) -> str:
        """Write the file of one attempt; returns its name, which no other attempt uses."""
        name = f"{task:05}-{self.token()}"
        self.store.write(self._temporary(name), content)
        return name

    def publish(self, files: Sequence[str]) -> Iterator[None]:
        """Rename the files that count, delete all others and write ``_SUCCESS``.

        Args:
            files: name of each task's file, in the order of the tasks.

        Yields:
            After each file. An attempt may end there, and another one may run meanwhile.

        Raises:
            PermanentError: a file that counts is gone.
        """
        for task, name in enumerate(files):
            self._rename(self._temporary(name), self.part(task))
            yield
        self.store.write(join(self.folder, SUCCESS), b"")
        attempts = join(self.folder, TEMPORARY, self.job) + "/"
        for info in list(self.store.list(attempts)):
            self.store.delete(info.uri)
            yield
        remove_empty_folders(join(self.folder, TEMPORARY))
        remove_empty_folders(self.folder)

    def _rename(self, source: str, target: str) -> None:
        try:
            self.store.move(source, target)
        except ObjectNotFoundError:
            try:
                self.store.info(target)  # An earlier attempt to publish has renamed it.
            except ObjectNotFoundError as error:
                raise PermanentError(
                    f"the predictions {source} are gone, so the job can't be finished; start it again"
                ) from error

    def _temporary(self, name: str) -> str:
        return join(self.folder, TEMPORARY, self.job, f"{name}.{self.suffix}")
