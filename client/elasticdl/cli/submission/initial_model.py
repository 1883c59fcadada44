"""The model that a new job starts from: a file that holds one, or the newest snapshots of another job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.ended_job import read_ended_job
from elasticdl.shared.errors import UserError
from elasticdl.shared.exported.layout import MARK, export_folder
from elasticdl.shared.exported.reading import read_export
from elasticdl.shared.job.model_file import KERAS_FILE, SAVED_MODEL
from elasticdl.shared.job.spec import InitialModel, JobSpec
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import ObjectNotFoundError, join, open_store, to_uri

Progress = Callable[[str], None]
KERAS_SUFFIX = ".keras"
_MARK = "saved_model.pb"
"""The file that every SavedModel has."""
_WEIGHTS_ONLY = (".h5", ".hdf5", ".index", ".ckpt")


def find_initial_model(source: str, root: Path | None, progress: Progress) -> InitialModel:
    """The model that a value of ``--initial_model`` names.

    Args:
        source: a folder or file, local or in object storage, or the id or name of a job.
        root: folder of the run directories; None: no job is found.
    """
    local = Path(source).expanduser()
    if "://" in source or local.exists():
        try:
            return initial_model_of(model_file("--initial_model", source))
        except UserError:  # A folder without a model may have the name of a job.
            if root is None or not is_job(source, root):
                raise
    elif "/" in source or local.suffix == KERAS_SUFFIX or root is None:
        raise UserError(f"--initial_model={source} does not exist", usage=True)
    return version_of_job(source, root, progress)[0]


def is_job(source: str, root: Path) -> bool:
    """Whether a place of a model is the id or name of a job."""
    is_name = "/" not in source and not source.endswith(KERAS_SUFFIX)
    return is_name and run_directory.find_if_any(root, source) is not None


def version_of_job(job: str, root: Path, progress: Progress) -> tuple[InitialModel, JobSpec]:
    """The newest version of a job's model, and that job.

    Args:
        progress: is called with a line first: a server is started to read the log, which takes long on a busy machine.

    Raises:
        ElasticDLError: there is no such job, it is running, or it has no complete snapshot.
    """
    run = run_directory.find(root, job)
    progress(f"Reading the log and the snapshots of job {run.job}")
    with run.lock():
        ended = read_ended_job(run, run.read())
        return ended.initial_model(), ended.spec


def initial_model_of(file: str) -> InitialModel:
    """A file that ``model_file`` has found, as the start of a job."""
    adapted: tuple[str, ...] = ()
    if folder := export_folder(file):
        adapted = tuple(join(folder, name) for name in read_export(folder).adapted)
    return InitialModel(job=JobId(""), file=file, adapted=adapted)


def model_file(flag: str, source: str) -> str:
    """The model that a place is or holds.

    Args:
        source: a folder or file, local or in object storage.

    Returns:
        URI of a ``.keras`` file, of the folder of a SavedModel, or of the ``MARK`` of an export with tables in Parquet.
    """
    uri = to_uri(source).rstrip("/")
    store = open_store(uri)

    def is_there(*names: str) -> bool:
        try:
            store.info(join(uri, *names))
        except ObjectNotFoundError:
            return False
        return True

    if source.endswith(_WEIGHTS_ONLY):
        raise UserError(
            f"{flag}={source} holds weights without a model, so their names are unknown",
            hint="Load them in the model file with load_weights(), or give a .keras file.",
            usage=True,
        )
    if uri.endswith(KERAS_SUFFIX):
        if is_there():
            return uri
        raise UserError(f"{flag}={source} does not exist", usage=True)
    if export_folder(uri) and is_there():
        return uri
    for names in ((MARK,), (KERAS_FILE,), (_MARK,), (SAVED_MODEL, _MARK)):
        if is_there(*names):
            return join(uri, *names[:-1]).rstrip("/") if names[-1] == _MARK else join(uri, *names)
    raise UserError(
        f"{flag}={source} is no .keras file, and holds neither {KERAS_FILE} nor {_MARK}",
        hint="Give the --output folder of a training job, a .keras file, a SavedModel, or the name of a job.",
        usage=True,
    )
