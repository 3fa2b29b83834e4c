"""Stores in an object store, end to end: as built locally byte by byte, whatever was killed or cut meanwhile."""

import json
import threading
from datetime import date
from pathlib import Path
from unittest.mock import Mock

import pivot
import polars as pl
import pytest
from pivot.core.errors import StoreError
from pivot.core.progress import Reporter
from pivot.core.storage import Url, objects, open_storage
from pivot.core.storage.files import StorageFiles
from pivot.core.storage.lease import LOCK, VARIABLE
from pivot.datasets.sql.views import query
from pivot.datasets.store.location import refuse_while_written
from pivot.datasets.store.nights import nights_of, write_nights_card
from pivot.datasets.store.store import DATABASE, RUN
from pivot.flows.engines.local import InProcess
from pivot.flows.relabel import relabel_store
from pivot.insight.probe.records import ProbeSettings
from pivot.insight.probe.run import probe_store
from pivot.tests.cli.command_line import run
from pivot.tests.core.object_server import Line, ObjectServer, promised
from pivot.tests.faults.victim import Victim
from pivot.tests.flow_runs import config_of, fingerprint, python
from pivot.tests.stores import built_once, problems
from pivot.training.records import find_files

CONFIG = config_of({"sokoban": 2, "frozenlake": 2})
SMALL = config_of(2, rollouts=2)
TINY = config_of(1, rollouts=2)


local, _small = built_once(CONFIG), built_once(SMALL)


@pytest.fixture
def small(_small: Path) -> dict[str, str]:
    """Bytes of the uninterrupted store, without files that may differ."""
    return fingerprint(_small)


@pytest.fixture(scope="module")
def _stored() -> dict[str, Url]:
    return {}


@pytest.fixture
def stored(s3: ObjectServer, _stored: dict[str, Url]) -> Url:
    """A finished store that tests read and do not change."""
    if not _stored:
        _stored["root"] = s3.store()
        pivot.build(CONFIG, str(_stored["root"]))
    return _stored["root"]


# Reading


def test_a_store_has_the_bytes_of_a_local_one(stored: Url, local: Path) -> None:
    """Catch a byte of a store that depends on where it lies."""
    assert promised(stored) == fingerprint(local)
    assert problems(stored) == []
    again = pivot.build(CONFIG, stored)
    assert (again.already_complete, str(again.root)) == (True, str(stored))


def test_a_complete_store_is_seen_by_listings(stored: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    library = objects._library()
    for name in ("head", "get", "list", "put", "get_range"):
        real = getattr(library, name)
        monkeypatch.setattr(library, name, lambda *a, real=real, **k: requests.append(str(a[1:])) or real(*a, **k))
    assert pivot.build(CONFIG, stored).already_complete
    assert not [each for each in requests if ".parquet" in each]
    # One request per receipt; the number of all others depends on the folders, not on the size of the store.
    listed = {name.rpartition("/")[0] for name in open_storage(stored).listing() if not name.startswith(".")}
    assert len([each for each in requests if ".receipts" not in each]) <= len(listed) + 28


def test_frames_and_queries_are_those_of_a_local_store(stored: Url, local: Path) -> None:
    there, here = pivot.load_store(str(stored)), pivot.load_store(local)
    for name in ("episodes", "steps", "frames", "prompts", "labels"):
        mine: pl.DataFrame = getattr(there, name).collect()
        assert mine.equals(getattr(here, name).collect()), name
    for sql in ("from modes", "from groups order by all", "select count(*) from frames", "from pivots order by all"):
        assert query(stored, sql) == query(local, sql)
    files, others = find_files(str(stored), ["sokoban"]), find_files(str(local), ["sokoban"])
    assert files.by_side == others.by_side


def test_its_database_names_addresses(stored: Url, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / DATABASE).write_bytes(open_storage(stored).read_bytes(DATABASE))
    with duckdb.connect(tmp_path / DATABASE, read_only=True) as connection:
        text = connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'episodes'").fetchall()[0][0]
        assert f"'{stored}/episodes/sokoban/00000.parquet'" in text
        connection.register_filesystem(StorageFiles(open_storage(stored)))  # DuckDB's own would be downloaded
        assert connection.execute("SELECT count(*) FROM episodes").fetchall() == [(16,)]


LOAD = """
import sys
from datasets import load_dataset
root = sys.argv[1]
rows = load_dataset("parquet", data_files={"train": f"{root}/dataset/sokoban/train-*.parquet"}, split="train")
options = {"endpoint_url": sys.argv[2], "key": "testing", "secret": "testing"}
same = load_dataset("parquet", data_files=f"{root}/dataset/sokoban/train-*.parquet", storage_options=options)["train"]
streamed = load_dataset("parquet", data_files=f"{root}/dataset/sokoban/train-*.parquet", streaming=True)["train"]
first = next(iter(streamed))
assert rows[0]["panel"].size == same[0]["panel"].size == first["panel"].size
assert rows[0]["images"][0].size[0] > 100
print(len(rows), len(same), first["episode_id"] == rows[0]["episode_id"])
"""


def test_the_datasets_library_loads_it(stored: Url, s3: ObjectServer, local: Path, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    done = python(LOAD, stored, s3.url, env={"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"})
    rows = sum(pl.read_parquet(path).height for path in (local / "dataset/sokoban").glob("train-*.parquet"))
    assert done.stdout.split() == [str(rows), str(rows), "True"], done.stderr


def test_the_commands_read_it(stored: Url, local: Path, tmp_path: Path) -> None:
    for command in (["stats"], ["stats", "from modes"], ["peek"]):
        shown = [run(command[0], str(root), *command[1:]).replace(str(root), "ROOT") for root in (stored, local)]
        assert shown[0] == shown[1]
    run("view", str(stored), "--out", tmp_path / "there", "--limit", "1")
    run("view", local, "--out", tmp_path / "here", "--limit", "1")
    there, here = (json.loads((tmp_path / place / "contents.json").read_text()) for place in ("there", "here"))
    assert there | {"name": here["name"]} == here
    assert f"would be {stored}" in run("build", "--config", str(stored / RUN), "--out", str(stored), "--dry-run")


def test_relabel_and_probe(s3: ObjectServer, local: Path, tmp_path: Path) -> None:
    """Catch a command on a store that takes an address for a path, or writes other bytes there."""
    there, here = s3.store(), tmp_path / "here"
    for root in (there, here):
        pivot.build(TINY, root)
        relabel_store(root, {"split": "episode", "log": "actions"}, InProcess(), Reporter())
        probe_store(root, ProbeSettings(arms=("no_hint",)), Reporter())
    assert problems(there) == []
    assert promised(there) == fingerprint(here)
    assert pivot.build(TINY | {"split": "episode", "log": "actions"}, there).already_complete


def test_nights_are_read_merged_and_pruned(s3: ObjectServer, tmp_path: Path) -> None:
    """Catch a command on a folder of stores that takes an address for a path, or misses one of its requests."""
    there, here = s3.store(), tmp_path / "here"
    for folder in (there, here):
        for day, seed in (("2026-01-01", 0), ("2026-01-02", 1)):
            pivot.build(TINY | {"seed": seed}, folder / "nights" / day)
        assert write_nights_card(folder / "nights")
        pivot.merge(*(folder / "nights" / day for day in ("2026-01-01", "2026-01-02")), out=folder / "one")
    assert problems(there / "one") == []
    assert promised(there / "one") == fingerprint(here / "one")
    frames = [pivot.load_store(folder / "nights") for folder in (there, here)]
    assert frames[0].episodes.collect().equals(frames[1].episodes.collect())
    assert query(there / "nights", "from modes") == query(here / "nights", "from modes")
    for folder in (there, here):
        for day, kind in ((1, "mark"), (2, "night")):
            pruned = pivot.prune(folder / "nights", keep="1", today=date(2026, 2, day))
            assert [each.kind for each in pruned.removals] == [kind]
        assert [*nights_of(folder / "nights")] == ["2026-01-02/"]
        assert b"2026-01-01" not in open_storage(folder / "nights").read_bytes("README.md")


# Killed, cut, and two at once


@pytest.mark.operations
@pytest.mark.xdist_group("kill")
def test_killed_at_a_request_a_rerun_has_equal_bytes(s3: ObjectServer, victim: Victim, small: dict[str, str]) -> None:
    root = s3.store()
    undisturbed = victim.run("build", root, SMALL, env=s3.environment)
    assert promised(root) == small
    count = len(undisturbed)
    for number, moment in enumerate((3, count // 3, 2 * count // 3, count - 2, count)):
        root = s3.store()
        victim.run("build", root, SMALL, moment, workers=1 + number % 2, env=s3.environment)
        assert not [name for name in open_storage(root).listing() if name == "manifest.json"] or moment > count - 2
        # The lease of a dead process of this machine does not count: the next run need not wait.
        result = pivot.build(SMALL, root)
        assert promised(root) == small, moment
        assert not result.already_complete
    assert problems(root) == []


def test_a_line_that_is_cut_and_comes_back_is_no_matter(line: Line, s3: ObjectServer, small: dict[str, str]) -> None:
    root = s3.store()
    line.break_at = 100_000
    pivot.build(SMALL, root)
    assert (line.breaks, promised(root)) == (1, small)


def test_two_writers_at_once_one_is_refused(s3: ObjectServer, small: dict[str, str]) -> None:
    root = s3.store()
    refused = Mock()

    class Slow(Reporter):
        def start(self, stage: str, total: int) -> None:
            if stage == "label":
                with pytest.raises(StoreError, match=r"is being written by another run \(process \d+ on "):
                    pivot.build(SMALL, root)
                with pytest.raises(StoreError, match="there is nothing to verify yet"):
                    refuse_while_written(root)
                refused()

    pivot.build(SMALL, root, reporter=Slow())
    refused.assert_called_once()
    assert promised(root) == small


def test_a_writer_without_lease_stops(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch, small: dict[str, str]) -> None:
    """Catch a run that writes on in a store that another run took over."""
    monkeypatch.setenv(VARIABLE, "0.3")
    root = s3.store()

    class Robbed(Reporter):
        def start(self, stage: str, total: int) -> None:
            if stage == "label":
                storage = open_storage(root)
                taken = json.loads(storage.read_bytes(LOCK)) | {"token": "another", "host": "elsewhere"}
                objects._library().put(objects._client(str(root)), LOCK, json.dumps(taken).encode())
                self.before = storage.listing()
                threading.Event().wait(0.2)

    robbed = Robbed()
    with pytest.raises(StoreError, match=r"is lost to process \d+ on elsewhere; this run wrote nothing more"):
        pivot.build(SMALL, root, reporter=robbed)
    storage = open_storage(root)
    assert storage.listing() == robbed.before
    threading.Event().wait(3.0)  # until the other's lease is over, which nobody renews
    pivot.build(SMALL, root)
    assert promised(root) == small
