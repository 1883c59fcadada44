"""Jobs of a script on Kubernetes: data and model travel through the job's storage, and so do the trained weights."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elasticdl.cli.flag_values import as_flags
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.lookup import connect
from elasticdl.cli.kubernetes.new_job.start import namespace_defaults
from elasticdl.cli.kubernetes.reported import cluster_report
from elasticdl.cli.script.places import RECORD, Results, no_such_job, read_record
from elasticdl.cli.submission.preflight import check_writable
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.model_file import WEIGHTS_ALONE
from elasticdl.shared.job.options import Flag
from elasticdl.shared.kubernetes.kinds import JOB
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT, object_name
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import join, open_store
from elasticdl.shipping.references import refer

_DATA = ("training_data", "validation_data")


class ClusterPlace:
    """See ``Place``: a namespace of a cluster.

    Args:
        given: options of the command by name, those that differ from their defaults.
        known: their declarations.

    Raises:
        UserError: there is no cluster, or no storage that this machine can write to as well as the pods.
    """

    def __init__(self, given: Mapping[str, Any], known: Mapping[str, Flag]) -> None:
        self._api = connect(given.get("namespace", ""))
        # Variables with secrets are left out, as the Python API leaves them out of command lines.
        shown = {name: value for name, value in given.items() if not known[name].is_secret}
        self.arguments = as_flags({**shown, "namespace": self._api.namespace}, known, "run")
        storage = given.get("storage") or namespace_defaults(self._api).get("storage", "")
        if "://" not in storage:
            raise UserError(
                f"--storage={storage} is not in object storage"
                if storage
                else f"--storage is not given, and ConfigMap {NAMESPACE_OBJECT} of the namespace has no storage",
                hint="Give --storage=s3://BUCKET/PREFIX: the data of fit() goes there, and workers read it from there.",
                usage=True,
            )
        check_writable(f"the storage of the jobs, {storage}", storage)
        self._storage, self._store = storage, open_store(storage)
        self.is_here = False

    def keep(self, job: str, record: Mapping[str, Any]) -> None:
        """See ``Place``."""
        self._store.write(join(self._uri(job), RECORD), json.dumps(record).encode())

    def record(self, job: str) -> Mapping[str, Any]:
        """See ``Place``."""
        try:
            return read_record(self._store.read(join(self._uri(job), RECORD)))
        except (ElasticDLError, ValueError) as error:
            raise no_such_job(job, self._storage) from error

    def ship(self, job: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """See ``Place``. Local copies of the data are removed."""
        shipped = dict(values)
        for name in _DATA:
            if name in shipped:
                file = Path(shipped[name])
                shipped[name] = join(self._uri(job), f"data/{file.name}")
                self._store.write(shipped[name], file)
                file.unlink()
        refer(Path(shipped["model_def"]), join(self._uri(job), "model"))
        shipped["storage"] = self._storage
        shipped["output"] = join(self._uri(job), "output")
        return shipped

    def is_there(self, job: str) -> bool:
        """See ``Place``."""
        return self._api.find(JOB, object_name(JobId(job))) is not None

    def remove(self, job: str) -> None:
        """See ``Place``. A job that was planned has its index in the storage, and leaves it as all jobs do."""
        found = [one.uri for one in self._store.list(f"{self._uri(job)}/")]
        ours = tuple(join(self._uri(job), name) for name in ("data/", "model/", RECORD))
        if all(uri.startswith(ours) for uri in found):
            for uri in found:
                self._store.delete(uri)

    def completion(self, job: str) -> Sequence[str]:
        """See ``Place``."""
        handle = KubernetesJobHandle(self._api, JobId(job), is_default=False)
        if self.is_there(job) and handle.condition().is_running:
            return ["attach", job, f"--namespace={self._api.namespace}"]
        facts = cluster_report(job, self._api.namespace)
        if facts is not None and facts["state"] == "succeeded":
            return []
        return ["resume", job, f"--namespace={self._api.namespace}"]

    def reason(self, job: str) -> str:
        """See ``Place``."""
        with contextlib.suppress(ElasticDLError):
            return str((cluster_report(job, self._api.namespace) or {}).get("message", ""))
        return ""

    def stopped_in(self, job: str) -> str:  # noqa: ARG002  Ctrl-C leaves the job running.
        """See ``Place``."""
        return ""

    @contextmanager
    def results(self, job: str) -> Iterator[Results]:
        """See ``Place``."""
        facts = cluster_report(job, self._api.namespace)
        if facts is None:
            raise ElasticDLError(f"the log of {job} can't be read; elasticdl report {job} shows why")
        uri = join(self._uri(job), f"output/{WEIGHTS_ALONE}")
        with tempfile.TemporaryDirectory(prefix="elasticdl-weights-") as folder:
            file = Path(folder) / WEIGHTS_ALONE
            with contextlib.closing(self._store.open(uri)) as source, file.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            yield Results.of(facts, file, self._uri(job))

    def _uri(self, job: str) -> str:
        return join(self._storage, job)
