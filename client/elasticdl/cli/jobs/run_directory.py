"""The folder of a local job: what is in it, who holds it, and where it is.

ROOT/JOB/job.json          what other commands need to know (``JobRecord``)
         lock              locked by the launcher as long as it runs
         nats/             files of JetStream
         logs/POD.log      what each process logs; POD.out holds what user code prints
         storage/          snapshots and indices, unless ``--storage`` is given
         running_batches/  batches that each worker is computing
         log_end.json      the last record of the event log that the launcher has seen
         history.jsonl     loss and metrics of each epoch
         report.json       the final report
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from elasticdl.shared.errors import PermanentError, UserError, check_format, file_errors
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import free_bytes
from elasticdl.shared.storage.atomic import replace_text
from elasticdl.shared.words import size

ROOT_VARIABLE = "ELASTICDL_RUN_DIR"
DISK_BYTES_MIN = 8 << 20
"""Free space in the run directory below which a running job is stopped and no job is resumed."""
READ_BYTES_MIN = 1 << 20
"""Free space that nats-server needs to start, even if only to read a log."""
FORMAT = 1
"""Of ``job.json``."""
INTERRUPTED = "interrupted"
"""The state of a job whose launcher died."""
NOTHING_TO_RESUME = (
    "There is nothing to resume: the job trained nothing, or its event log and its snapshots are lost. "
    "Start a new job with: elasticdl train"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What ``job.json`` says about a job, so that commands need not read its log.

    Attributes:
        created_s: when it was submitted, seconds since the epoch.
        state: the last state that its launcher knew (a ``JobState`` value).
        message: why it failed, or empty.
        next_step: what to do after it failed or was stopped, in one line, or empty.
        model_files: name -> SHA-256 of the model file and the modules beside it, when the job was planned.
        working_directory: in which it was started.
        training_data, validation_data, custom_data_reader: values of these flags.
        output: where the exported model goes, or empty.
        nats_url, own_nats: URL of its NATS server, and whether the launcher runs that server itself.
        temporary: folder of its processes' temporary files, or empty.
        pids: process ids that are in no log: the master and nats-server.
        secret_envs: the variables of ``--envs`` whose names say that they are secret. They are in no log.
        epochs: number of epochs after a resume that added some; 0: as submitted. Serves a resume without the log.
    """

    job: JobId
    created_s: float
    state: str
    message: str = ""
    next_step: str = ""
    model: str = ""
    model_files: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    training_data: str = ""
    validation_data: str = ""
    custom_data_reader: str = ""
    output: str = ""
    storage: str = ""
    nats_url: str = ""
    own_nats: bool = True
    temporary: str = ""
    pids: Mapping[str, int] = field(default_factory=dict)
    launcher_pid: int = 0
    secret_envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    epochs: int = 0

    @classmethod
    def from_json(cls, text: str) -> JobRecord:
        """Inverse of ``to_json``. Fields that a newer version added to the format are ignored.

        Raises:
            ValueError, TypeError: the text is no such record.
            FormatError: it is of a newer version.
        """
        facts = dict(json.loads(text))
        check_format(f"job.json of job {facts.get('job')}", facts.get("format"), FORMAT)
        return cls(**{name: value for name, value in facts.items() if name in cls.__dataclass_fields__})

    def to_json(self) -> str:
        """One indented JSON object."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=2) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The end of the event log as the launcher last saw it. A resume compares it with the log that is left.

    Attributes:
        time_s: its time, seconds since the epoch.
    """

    seq: int = 0
    time_s: float = 0.0


class RunDirectory:
    """The folder of one job.

    Attributes:
        model: the model file and the ``.keras`` file of a model that was passed to the Python API as an object.
    """

    def __init__(self, root: Path, job: JobId) -> None:
        self.root = root
        self.job = job
        self.path = root / job
        self.nats = self.path / "nats"
        self.logs = self.path / "logs"
        self.storage = self.path / "storage"
        self.model = self.path / "model"
        self.running_batches = self.path / "running_batches"
        self.history = self.path / "history.jsonl"
        self.report = self.path / "report.json"

    @property
    def arguments(self) -> str:
        """The job on a command line: its id, and ``--run_dir`` unless the folder is in the default place."""
        return self.job + root_argument(self.root)

    def log(self, pod: str) -> Path:
        """The file that a process logs to."""
        return self.logs / f"{pod}.log"

    def output(self, pod: str) -> Path:
        """The file for a worker's standard output, which holds what user code prints."""
        return self.logs / f"{pod}.out"

    def create(self) -> None:
        """Create the folders."""
        with file_errors(f"the run directory {self.path} can't be written", PermanentError):
            for folder in (self.nats, self.logs, self.storage, self.running_batches):
                folder.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)  # job.json holds the broker's token

    def remove(self) -> None:
        """Delete the folder and everything in it."""
        shutil.rmtree(self.path)

    def read(self) -> JobRecord:
        """Read ``job.json``."""
        try:
            return JobRecord.from_json((self.path / "job.json").read_text())
        except FileNotFoundError as error:
            raise self.unknown() from error
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{self.path / 'job.json'} is damaged: {error}",
                hint="The job can't be resumed without it. Restore a copy, or start a new job and delete this folder.",
            ) from error

    def write(self, record: JobRecord) -> None:
        """Replace ``job.json``."""
        with file_errors(f"{self.path / 'job.json'} can't be written", PermanentError):
            replace_text(self.path / "job.json", record.to_json(), mode=0o600)  # It holds secrets.

    def read_log_end(self) -> LogEnd:
        """The end of the log as the launcher last saw it; zeros if unknown."""
        try:
            return LogEnd(**json.loads((self.path / "log_end.json").read_text()))
        except (OSError, ValueError, TypeError):
            return LogEnd()

    def read_history(self) -> str:
        """The history file; empty if absent."""
        try:
            return self.history.read_text()
        except (OSError, ValueError):
            return ""

    def write_log_end(self, end: LogEnd) -> None:
        """Record the end of the log. It only serves a message to the user, so a full disk is not an error here."""
        with suppress(OSError):
            replace_text(self.path / "log_end.json", json.dumps(asdict(end)))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder. The kernel releases the lock when this process ends, even if it is killed.

        Raises:
            UserError: another process holds the lock, or the folder is gone.
        """
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            raise self.unknown() from None
        if not _try_lock(descriptor, attempts=3):
            os.close(descriptor)
            raise self.in_use()
        with suppress(OSError):  # On a full disk, messages can't name the process.
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        try:
            yield
        finally:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def in_use(self) -> UserError:
        """The error of a command that needs the lock, which another process holds."""
        holder = self.holder()
        with suppress(UserError):  # The launcher of a new job has not written the file yet.
            if holder and holder == self.read().launcher_pid:
                return UserError(
                    f"job {self.job} is running (process {holder})",
                    hint=f"To stop it first: elasticdl stop {self.arguments}",
                )
        by = f" by process {holder}" if holder else ""
        return UserError(
            f"job {self.job} is in use{by}", hint="Another command reads or resumes it. Try again in a moment."
        )

    def holder(self) -> int:
        """Id of the process that holds the lock; 0 if unknown: it has just locked the folder, or the disk is full."""
        try:
            holder = int((self.path / "lock").read_text())
            os.kill(holder, 0)
        except (OSError, ValueError):  # A process that was killed leaves its id behind.
            return 0
        return holder

    def is_launched(self, record: JobRecord) -> bool:
        """Whether the job's launcher is running. A command that reads the log of an ended job holds the lock, too."""
        return self.is_locked() and self.holder() in (0, record.launcher_pid)

    def can_be_resumed(self) -> bool:
        """Whether the job may have left something to resume from: an event log, even if it is lost now.

        False only if its launcher was killed before it had submitted the job to its own NATS server.
        """
        try:
            record = self.read()
        except UserError:
            return True
        written = (self.path / "log_end.json", self.history, self.report)
        if record.state != JobState.STARTING.value or not record.own_nats or any(path.exists() for path in written):
            return True
        return self.has_log()

    def has_log(self) -> bool:
        """Whether there may be an event log: with an external NATS server it can't be seen."""
        return not self.read().own_nats or any(block.stat().st_size for block in self.nats.rglob("*.blk"))

    def disk_problem(self, bytes_min: int) -> str:
        """A message if fewer than ``bytes_min`` bytes are free on the disk of this folder; else empty.

        The folder need not exist.
        """
        free = free_bytes(self.path)
        if free >= bytes_min:
            return ""
        space = f"{size(free)} free, at least {size(bytes_min)} needed"
        return f"the disk of the run directory {self.path} has too little space ({space})"

    def is_there(self) -> bool:
        """Whether the folder still exists; for the process that holds its lock."""
        return (self.path / "lock").exists()

    def is_locked(self) -> bool:
        """Whether a launcher, or a command that reads the log, is running on this folder."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _try_lock(descriptor, attempts=1)
        finally:
            os.close(descriptor)

    def unknown(self) -> UserError:
        """The error that there is no such job; lists those that there are."""
        known = [directory.job for directory in reversed(run_directories(self.root))]
        hint = f"The latest jobs there: {', '.join(known[:5])}. To list all: elasticdl jobs{root_argument(self.root)}"
        empty = "That folder holds no jobs. If the job is in another folder, give it with --run_dir."
        return UserError(f"there is no job {self.job!r} in {self.root}", hint=hint if known else empty)


def _try_lock(descriptor: int, attempts: int) -> bool:
    """Lock an open file. Several attempts are needed, since ``is_locked`` of another process briefly holds the lock."""
    for attempt in range(attempts):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt + 1 < attempts:
                time.sleep(0.05)
    return False


def default_root(environment: Mapping[str, str]) -> Path:
    """The folder of run directories without ``--run_dir``."""
    if environment.get(ROOT_VARIABLE):
        return Path(environment[ROOT_VARIABLE]).expanduser().absolute()
    state = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "elasticdl" / "jobs"


def root_argument(root: Path) -> str:
    """``--run_dir`` for a root, with a space before it; empty for the default root."""
    return "" if root == default_root(os.environ) else f" --run_dir={shlex.quote(str(root))}"


def find(root: Path, job: str) -> RunDirectory:
    """The folder of a job, given by its id, or by its name if only one job has that name."""
    found = find_if_any(root, job)
    if found is None:
        raise RunDirectory(root, JobId(job)).unknown()
    return found


def find_if_any(root: Path, job: str) -> RunDirectory | None:
    """As ``find``, and None if no job matches. Raises ``UserError``: there are several."""
    exact = RunDirectory(root, JobId(job))
    if (exact.path / "job.json").is_file():
        return exact
    found = named(job, [directory.job for directory in run_directories(root)])
    return RunDirectory(root, found) if found else None


def run_directories(root: Path) -> list[RunDirectory]:
    """Every job folder under a root, oldest first."""
    found = [path for path in root.glob("*/job.json") if path.is_file()]
    found.sort(key=lambda path: (path.parent.stat().st_ctime, path.parent.name))
    return [RunDirectory(root, JobId(path.parent.name)) for path in found]


def named(job: str, ids: Sequence[JobId]) -> JobId | None:
    """The job of an id or a name; None: no job has it. Raises ``UserError``: several jobs have that name."""
    if job in ids:
        return JobId(job)
    found = [each for each in ids if each.rpartition("-")[0] == job]
    if len(found) > 1:
        raise UserError(f"{len(found)} jobs are named {job!r}", hint=f"Give the id of one of them: {', '.join(found)}.")
    return found[0] if found else None


def enter(record: JobRecord) -> None:
    """Make the folder in which a job was started the working directory of this process and its children.

    Resolve relative paths of the command line first.
    """
    try:
        os.chdir(record.working_directory)
    except OSError as error:
        raise UserError(
            f"the working directory {record.working_directory} of job {record.job} can't be entered: {error.strerror}",
            hint="Relative paths in the model file start there. Restore the folder; if it has none, an empty "
            f"folder will do: mkdir -p {record.working_directory}",
        ) from error


def make_temporary(job: JobId) -> str:
    """Create the folder for the temporary files of a run; empty if that is not possible.

    Killed processes can't delete theirs. TensorFlow alone leaves a file for each function of a model that it converts.
    """
    folder = Path(tempfile.gettempdir()) / _temporary_name(job)
    remove_temporary(job, str(folder))
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        return ""  # The processes use the usual folder.
    return str(folder)


def remove_temporary(job: JobId, folder: str) -> None:
    """Delete a folder that ``make_temporary`` created, if it still exists."""
    if Path(folder).name == _temporary_name(job):  # Never delete a folder that was not created here.
        shutil.rmtree(folder, ignore_errors=True)


def _temporary_name(job: JobId) -> str:
    return f"elasticdl-{job}"
