"""What users read of the pods of a job: their own files, and keys that do what is said."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from tests.unit.shared_kubernetes.memory_api import MemoryApi
from tests.unit.shared_kubernetes.test_pod_manifests import job

import elasticdl.cli.main
from elasticdl.cli.kubernetes.submit import report_error, say
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.names import without_pod_folders
from elasticdl.shared.kubernetes.pods import KubernetesPods
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.pods.ports import Ended
from elasticdl.worker.failures import of_start
from elasticdl.worker.model.user.calls import UserCodeError, user_code

MODEL = Path("/elasticdl/model/net.py")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/elasticdl/model/net.py: feed() must return", "net.py: feed() must return"),
        ('  File "/elasticdl/model/parts/a.py", line 3', '  File "parts/a.py", line 3'),
        ("/elasticdl/job/submission.json is not usable", "submission.json is not usable"),
        ("/mine/elasticdl/model/net.py stays", "/mine/elasticdl/model/net.py stays"),
    ],
)
def test_folders_of_a_pod_are_left_out(text: str, shown: str) -> None:
    assert without_pod_folders(text) == shown


def test_the_container_submit_says_no_folder_of_its_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = tmp_path / "termination-log"
    say(f"{MODEL}: the model has no name")
    report_error(UserError(f"{MODEL} defines no 'feed'"), message_file=message)
    printed = capsys.readouterr()
    assert printed.out == "net.py: the model has no name\n"
    assert printed.err == "Error: net.py defines no 'feed'\n" and message.read_text() == "net.py defines no 'feed'"


def test_a_worker_reports_no_folder_of_its_pod() -> None:
    code = compile("\n\ndef feed():\n    raise ValueError('no')\n", str(MODEL), "exec")
    names: dict[str, object] = {}
    exec(code, names)
    with pytest.raises(UserCodeError) as error, user_code(MODEL, "feed()"):
        names["feed"]()  # type: ignore[operator]
    failure = of_start(error.value)
    assert failure.message == "feed() of net.py raised ValueError at net.py:4: no"
    assert 'File "net.py", line 4, in feed' in failure.traceback
    assert of_start(UserError(f"{MODEL} defines no 'feed'")).message == "net.py defines no 'feed'"


async def test_the_end_of_a_log_has_no_folder_of_its_pod() -> None:
    api = MemoryApi()
    reason = {"level": "error", "event": "the worker can't continue", "reason": f"{MODEL} defines no 'feed'"}
    api.logs = {"worker": json.dumps(reason)}
    pods = KubernetesPods(api, job())
    await pods.create(PodName("worker-0"), Service.WORKER, 3)
    (pod,) = api.objects.values()
    pod["status"] = {"containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": 1}}}]}
    (status,) = await pods.list()
    pods.close()
    assert isinstance(status.phase, Ended)
    assert status.phase.log_tail == "error: the worker can't continue reason=net.py defines no 'feed'"


def _modules() -> list[Path]:
    commands = Path(elasticdl.cli.main.__file__).parent
    return [path for path in commands.rglob("*.py") if "local" not in path.relative_to(commands).parts]


def test_only_a_job_on_this_machine_is_said_to_end_by_a_key() -> None:
    """``elasticdl.cli.local`` is the launcher: Ctrl-C reaches the job there."""
    said = []
    for path in _modules():
        tree = ast.parse(path.read_text())
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documented]
        said += [node.value for node in texts if isinstance(node.value, str) and "Ctrl-C" in node.value]
    assert said and all("Ctrl-C leaves it running." in text for text in said)
