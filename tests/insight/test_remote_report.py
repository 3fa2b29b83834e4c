"""Reports in an object store: the files of one on disk, also after a kill, and never over something else."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pivot.core.errors import ConfigError
from pivot.core.progress import Silent
from pivot.core.storage import Url, open_storage
from pivot.core.storage.objects import ObjectStorage
from pivot.flows.prune import Pruned, _remove_report
from pivot.insight.report.contents import Selection
from pivot.insight.report.site import MARKER, write_remote_report, write_report
from pivot.tests.core.object_server import ObjectServer
from pivot.tests.flow_runs import files_of


def _files(target: Url | Path) -> dict[str, str]:
    storage = open_storage(target)
    names = files_of(target) if isinstance(target, Path) else [name for name in storage.listing() if name != ".lock"]
    return {name: hashlib.sha256(storage.read_bytes(name)).hexdigest() for name in sorted(names)}


def test_a_remote_report_has_the_files_of_a_local_one(s3: ObjectServer, tiny_store: Path, tmp_path: Path) -> None:
    target, few = s3.store(), Selection(limit=1)
    for selection in (Selection(), few):  # the second has fewer pages
        write_remote_report(tiny_store, target, selection, Silent())
        write_report(tiny_store, tmp_path / "site", selection, Silent())
        assert _files(target) == _files(tmp_path / "site")
    pruned = Pruned(dry_run=False)
    _remove_report(target, pruned)
    assert pruned.removals[0].kind == "report"
    assert _files(target) == {}
    foreign = s3.store()
    open_storage(foreign).write_bytes("notes.txt", b"mine")
    with pytest.raises(ConfigError, match=rf"holds notes.txt but no {MARKER}"):
        write_remote_report(tiny_store, foreign, Selection(), Silent())
    assert list(_files(foreign)) == ["notes.txt"]


class _Killed(BaseException):
    """The process is dead."""


@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_killed_report_is_not_opened_and_completed_later(
    s3: ObjectServer, tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    target, write, count = s3.store(), ObjectStorage.write, 0
    write_remote_report(tiny_store, target, Selection(), Silent())

    def until(self: ObjectStorage, name: str, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count > at:
            raise _Killed
        return write(self, name, *arguments, **options)

    monkeypatch.setattr(ObjectStorage, "write", until)
    with pytest.raises(_Killed):
        write_remote_report(tiny_store, target, Selection(limit=1), Silent())
    monkeypatch.setattr(ObjectStorage, "write", write)
    assert "index.html" not in _files(target)
    write_remote_report(tiny_store, target, Selection(limit=1), Silent())
    write_report(tiny_store, tmp_path / "site", Selection(limit=1), Silent())
    assert _files(target) == _files(tmp_path / "site")
