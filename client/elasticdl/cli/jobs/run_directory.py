"""One folder per local job: its log, its queue, its snapshots and what it has to say.

ROOT/JOB/job.json       what other commands have to know (``JobRecord``)
         lock           held by the launcher as long as it lives
         nats/          JetStream's files
         logs/POD.log   what each process printed
         storage/       snapshots and indexes, unless ``--storage`` names another place
         running_batches/       the batches that each worker has in hand at the moment
         log_end.json   the last record of the log that the launcher has seen
         history.jsonl  loss and metrics of each epoch and evaluation
         report.json    the closing report
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.names import JobId

ROOT_VARIABLE = "ELASTICDL_RUN_DIR"
DISK_BYTES_MIN = 8 << 20
"""Free space in the run directory below which a job stops while it still can, and none is resumed."""
READ_BYTES_MIN = 1 << 20
"""Free space without which a nats-server does not even start to read a log."""
INTERRUPTED = "interrupted"
"""The state of a job whose launcher is gone without a last word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What a job's folder says about it without its log being read.

    Attributes:
        job: the job's id.
        created_s: when it was submitted, seconds since the epoch.
        state: the last state that its launcher knew (a ``JobState`` value).
        message: why it failed, or empty.
        advice: what to do after that, in one line, or empty.
        model: path of the model file and symbol, for people.
        model_files: name -> SHA-256 of the model file and the modules beside it, as they were when it was planned.
        training_data: what it was trained on, for people.
        output: where the exported model goes, or empty.
        storage: URI of its snapshots.
        nats_url: where its broker is, or was.
        own_nats: whether the launcher keeps that broker itself.
        temporary: folder of its processes' temporary files, or empty.
        pids: process ids of what is in no log: the master and nats-server.
        launcher_pid: process that keeps the job, or kept it.
    """

    job: JobId
    created_s: float
    state: str
    message: str = ""
    advice: str = ""
    model: str = ""
    model_files: Mapping[str, str] = field(default_factory=dict)
    training_data: str = ""
    output: str = ""
    storage: str = ""
    nats_url: str = ""
    own_nats: bool = True
    temporary: str = ""
    pids: Mapping[str, int] = field(default_factory=dict)
    launcher_pid: int = 0

    @classmethod
    def from_json(cls, text: str) -> JobRecord:
        """Inverse of ``to_json``; fields that this version does not know are ignored."""
        facts = json.loads(text)
        return cls(**{name: value for name, value in facts.items() if name in cls.__dataclass_fields__})

    def to_json(self) -> str:
        """One JSON object, for people too."""
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """How far the log reached, to be compared with how far it reaches.

    Attributes:
        seq: number of the last record.
        time_s: its time, seconds since the epoch.
    """

    seq: int = 0
    time_s: float = 0.0


class RunDirectory:
    """The folder of one job."""

    def __init__(self, root: Path, job: JobId) -> None:
        self.root = root
        self.job = job
        self.path = root / job

    @property
    def nats(self) -> Path:
        """JetStream's store."""
        return self.path / "nats"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.path / "logs"

    @property
    def storage(self) -> Path:
        """Snapshots and indexes of a job without ``--storage``."""
        return self.path / "storage"

    @property
    def running_batches(self) -> Path:
        """One small file per worker."""
        return self.path / "running_batches"

    @property
    def history(self) -> Path:
        """JSON lines, one per epoch and evaluation."""
        return self.path / "history.jsonl"

    @property
    def report(self) -> Path:
        """The closing report as JSON."""
        return self.path / "report.json"

    @property
    def arguments(self) -> str:
        """How the job is named on the command line: its id, and where it is unless that is the usual place."""
        return self.job + root_argument(self.root)

    def log(self, pod: str) -> Path:
        """The file that a process logs to."""
        return self.logs / f"{pod}.log"

    def output(self, pod: str) -> Path:
        """The file that a worker's standard output, so whatever the user's code prints, goes to."""
        return self.logs / f"{pod}.out"

    def create(self) -> None:
        """Make the folders.

        Raises:
            PermanentError: the file system refuses.
        """
        try:
            for folder in (self.nats, self.logs, self.storage, self.running_batches):
                folder.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)  # job.json holds the broker's token
        except OSError as error:
            raise PermanentError(f"the run directory {self.path} can't be written: {error.strerror}") from error

    def remove(self) -> None:
        """Delete the folder and everything in it."""
        shutil.rmtree(self.path)

    def read(self) -> JobRecord:
        """What the folder says about its job.

        Raises:
            UserError: there is no such job here, or its record is damaged.
        """
        try:
            return JobRecord.from_json((self.path / "job.json").read_text())
        except FileNotFoundError as error:
            raise self._unknown() from error
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{self.path / 'job.json'} is damaged: {error}",
                hint="Without it the job can't be resumed: put back a copy of it, or train anew and delete the folder.",
            ) from error

    def write(self, record: JobRecord) -> None:
        """Replace the record, all or nothing.

        Raises:
            PermanentError: the file system refuses.
        """
        temporary = self.path / "job.json.new"
        try:
            temporary.write_text(record.to_json())
            temporary.replace(self.path / "job.json")
        except OSError as error:
            raise PermanentError(f"{self.path / 'job.json'} can't be written: {error.strerror}") from error

    def read_log_end(self) -> LogEnd:
        """How far the log had reached when a launcher last looked; zeros where nobody knows."""
        try:
            return LogEnd(**json.loads((self.path / "log_end.json").read_text()))
        except (OSError, ValueError, TypeError):
            return LogEnd()

    def write_log_end(self, end: LogEnd) -> None:
        """Remember how far the log has reached; only a remark for the user, so a full disk is no error here."""
        temporary = self.path / "log_end.json.new"
        with suppress(OSError):
            temporary.write_text(json.dumps(asdict(end)))
            temporary.replace(self.path / "log_end.json")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; the kernel lets go of it when this process ends, however it ends.

        Raises:
            UserError: another process holds it.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _try_lock(descriptor, attempts=3):
            os.close(descriptor)
            raise UserError(
                f"job {self.job} is running (process {self.holder()})",
                hint=f"Stop it with: elasticdl stop {self.arguments}",
            )
        with suppress(OSError):  # A full disk: then nobody can be told which process it is.
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        try:
            yield
        finally:
            os.close(descriptor)

    def holder(self) -> int:
        """Process that holds the folder, or held it last; 0: nobody knows."""
        try:
            return int((self.path / "lock").read_text())
        except (OSError, ValueError):
            return 0

    def disk_problem(self, bytes_min: int) -> str:
        """That its disk is full, or empty while so many bytes are free."""
        free = shutil.disk_usage(self.path).free
        if free >= bytes_min:
            return ""
        return f"the disk of the run directory {self.path} is full ({free / 1e6:.1f} MB are free)"

    def is_there(self) -> bool:
        """Whether the folder of a job that holds its lock was not removed from under it."""
        return (self.path / "lock").exists()

    def is_locked(self) -> bool:
        """Whether a launcher is alive in this folder."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _try_lock(descriptor, attempts=1)
        finally:
            os.close(descriptor)

    def _unknown(self) -> UserError:
        known = [directory.job for directory in reversed(run_directories(self.root))]
        near = f"The latest jobs: {', '.join(known[:5])}." if known else "There are no jobs."
        return UserError(
            f"there is no job {self.job!r} in {self.root}", hint=f"{near} See: elasticdl jobs{root_argument(self.root)}"
        )


def _try_lock(descriptor: int, attempts: int) -> bool:
    """Lock an open file; several attempts, since ``is_locked`` holds the lock for the moment that it takes to ask."""
    for attempt in range(attempts):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt + 1 < attempts:
                time.sleep(0.05)
    return False


def default_root(environment: Mapping[str, str]) -> Path:
    """Where run directories are unless ``--run_dir`` says otherwise.

    Args:
        environment: usually ``os.environ``.
    """
    if environment.get(ROOT_VARIABLE):
        return Path(environment[ROOT_VARIABLE]).expanduser().absolute()
    state = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "elasticdl" / "jobs"


def root_argument(root: Path) -> str:
    """The flag that leads to a root, with a space before it; empty for the usual one."""
    return "" if root == default_root(os.environ) else f" --run_dir={shlex.quote(str(root))}"


def find(root: Path, job: str) -> RunDirectory:
    """The folder of a job given by its id, or by its name where only one job has it.

    Raises:
        UserError: there is none, or there are several.
    """
    exact = RunDirectory(root, JobId(job))
    if (exact.path / "job.json").is_file():
        return exact
    named = [directory for directory in run_directories(root) if directory.job.rpartition("-")[0] == job]
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(directory.job for directory in named)
        raise UserError(f"several jobs are called {job!r}", hint=f"Use one of {ids}.")
    exact.read()  # Not there: raises the error that names the jobs that are.
    return exact


def run_directories(root: Path) -> list[RunDirectory]:
    """Every job folder under a root, oldest first."""
    found = [path for path in root.glob("*/job.json") if path.is_file()]
    found.sort(key=lambda path: (path.parent.stat().st_ctime, path.parent.name))
    return [RunDirectory(root, JobId(path.parent.name)) for path in found]
