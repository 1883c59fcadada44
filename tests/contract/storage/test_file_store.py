from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.shared.errors import NoSpaceError, PermanentError, TransientError, UserError
from elasticdl.shared.storage import ObjectNotFoundError, open_store, remove_empty_folders, to_uri
from elasticdl.shared.storage.file_store import FileStore, translate

STORE = FileStore()


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    uri = to_uri(tmp_path / "a")
    STORE.write(uri, b"old")
    with pytest.raises(ObjectNotFoundError):
        STORE.write(uri, tmp_path / "no such source")
    assert STORE.read(uri) == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_replacing_with_the_same_size_and_time_changes_the_etag(tmp_path: Path) -> None:
    uri = to_uri(tmp_path / "a")
    before = STORE.write(uri, b"old")
    other = tmp_path / "b"
    other.write_bytes(b"new")
    status = (tmp_path / "a").stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(tmp_path / "a")
    assert STORE.info(uri).etag != before.etag


def test_empty_folders_are_removed_and_made_again_for_who_writes_there(tmp_path: Path) -> None:
    folder = to_uri(tmp_path / "snapshots")
    for name in ("empty", "whole"):
        STORE.write(f"{folder}/{name}/object", b"1")
    STORE.delete(f"{folder}/empty/object")
    remove_empty_folders(folder)
    assert os.listdir(tmp_path / "snapshots") == ["whole"]
    remove_empty_folders(to_uri(tmp_path / "nowhere"))
    remove_empty_folders("memory://elsewhere")


def test_a_write_succeeds_beside_a_process_that_removes_empty_folders(tmp_path: Path) -> None:
    folder = to_uri(tmp_path / "snapshots")
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            remove_empty_folders(folder)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for number in range(100):
            STORE.write(f"{folder}/{number}/object", b"1")
    finally:
        ended.set()
        remover.join()
    assert len(list(STORE.list(folder))) == 100


def test_folders_are_no_objects(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ObjectNotFoundError):
        STORE.info(to_uri(tmp_path / "folder"))
    with pytest.raises(PermanentError, match="folder"):
        STORE.read(to_uri(tmp_path / "folder"))


def test_files_being_written_are_not_listed_and_link_circles_end(tmp_path: Path) -> None:
    STORE.write(to_uri(tmp_path / "a"), b"")
    (tmp_path / ".b.0123.partial").write_bytes(b"")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert [info.uri for info in STORE.list(to_uri(tmp_path) + "/")] == [to_uri(tmp_path / "a")]


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (errno.ENOSPC, NoSpaceError, "disk full: /some/file"),
        (errno.EDQUOT, NoSpaceError, "disk full: /some/file"),
        (errno.EACCES, PermanentError, "/some/file: Permission denied"),
        (errno.ENOENT, ObjectNotFoundError, "/some/file does not exist"),
        (errno.EIO, TransientError, "/some/file"),
    ],
)
def test_what_the_operating_system_says(number: int, kind: type[Exception], message: str) -> None:
    error = translate(OSError(number, os.strerror(number)), "file:///some/file")
    assert type(error) is kind
    assert message in str(error)


WRITE_TOO_MUCH = """
import sys
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.storage.file_store import FileStore
try:
    FileStore().write("file://" + sys.argv[1] + "/big", bytes(1 << 20))
except PermanentError as error:
    print(error)
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    script = f'mount -t tmpfs -o size=64k none {tmp_path} && "$@" && ls -A {tmp_path}'
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system")
    command = [unshare, "-rm", "sh", "-c", script, "sh", sys.executable, "-c", WRITE_TOO_MUCH, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"disk full: {tmp_path}/big can't be written (No space left on device)"


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/a/b", "file:///a/b"),
        ("/a/b/", "file:///a/b/"),
        ("/", "file:///"),
        ("/a b%", "file:///a%20b%25"),
        ("file:///a b", "file:///a%20b"),
        ("file:///a%20b", "file:///a%20b"),
        ("s3://b/k k", "s3://b/k k"),
        ("x", "file://" + os.getcwd() + "/x"),
        ("~/x", "file://" + os.path.expanduser("~") + "/x"),
    ],
)
def test_paths_become_uris(path: str, uri: str) -> None:
    assert to_uri(path) == uri


@pytest.mark.parametrize("uri", ["hdfs://x/y", "http://x", "memory://x", ""])
def test_storage_that_we_do_not_have(uri: str) -> None:
    with pytest.raises(UserError):
        open_store(uri)
