"""Relabelling replaces labels and dataset in one step: after a kill, the store is the old or the new one."""

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.core.errors import StoreError
from pivot.core.progress import Reporter
from pivot.core.storage import LocalStorage
from pivot.core.storage.commit import JOURNAL
from pivot.datasets.sql.views import query
from pivot.datasets.store.dataset_rows import ShardSplit
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.stages import ExportStage, LabelStage
from pivot.datasets.store.store import Store, finish_relabel
from pivot.datasets.verify.verify import verify_store
from pivot.flows.engines.local import InProcess
from pivot.flows.pipeline import BuildResult
from pivot.flows.relabel import relabel_store
from pivot.tests.faults.victim import Victim
from pivot.tests.flow_runs import assert_nothing_is_torn, assert_whole, config_of, files_of, fingerprint
from pivot.tests.stores import built_once, copy_store, problems

ALL = os.environ.get("PIVOT_KILL_POINTS") == "all"
CONFIG = config_of({"sokoban": 2, "frozenlake": 1}, rollouts=3)
SMALL = config_of({"sokoban": 1, "frozenlake": 1}, rollouts=2)
BY_EPISODE = {"split": "episode"}
COUNTS = "select (select count(*) from labels), (select count(*) from prompts), (select count(*) from failures)"


def relabel(root: Path, changes: dict[str, Any]) -> BuildResult:
    return relabel_store(root, changes, InProcess(), Reporter())


built, small = built_once(CONFIG), built_once(SMALL)


def _dataset(root: Path) -> dict[str, str]:
    files = fingerprint(root).items()
    return {name: digest for name, digest in files if re.fullmatch(r"dataset/.*\.(parquet|png)", name)}


def _labels(root: Path) -> pl.DataFrame:
    return load_store(root).labels.drop("label_version").collect()


# Changes


def test_the_next_version_takes_the_place_of_the_old_one(built: Path, store: Path) -> None:
    result = relabel(store, BY_EPISODE)
    assert_whole(store)
    assert problems(store) == []
    assert _labels(store).equals(_labels(built))
    assert set(load_store(store).labels.collect()["label_version"]) == {"2"}
    assert not (store / "labels" / "v1").exists()
    assert [name for name in files_of(store) if "labels-v1" in name] == []
    kept = ("episodes", "steps", "frames", "calls")
    rollouts = {name: digest for name, digest in fingerprint(built).items() if name.startswith(kept)}
    assert rollouts.items() <= fingerprint(store).items()
    assert _dataset(store) != _dataset(built)
    assert result.environments == pivot.build(CONFIG | BY_EPISODE, store).environments
    assert [name for name in files_of(store) if name.startswith((".dataset", ".commit", ".tmp"))] == []
    for infeasible in (True, False):
        pivot.relabel(store, {"include_infeasible": infeasible})
        assert Store.open(store).config.include_infeasible is infeasible


def test_the_log_can_be_cut_to_the_actions(built: Path, store: Path, tmp_path: Path) -> None:
    relabel(store, {"log": "actions"})
    assert problems(store) == []
    pivot.build(CONFIG | {"log": "actions"}, tmp_path / "direct")
    assert _dataset(store) == _dataset(tmp_path / "direct")
    columns = ["actions", "action_log", "prompt"]
    records = pl.read_parquet(store / "dataset/sokoban/*.parquet", columns=columns).to_dicts()
    assert len(records) > 2
    for row in records:
        assert row["action_log"] == "\n".join([f"step {t}: action={action}" for t, action in enumerate(row["actions"])])
        assert row["prompt"][0]["content"][1]["text"].endswith(row["action_log"])
    versions = "select distinct version from prompts where template like 'analyzer.%'"
    assert [query(root, versions)[1] for root in (built, store)] == [[("2",)], [("2+actions",)]]
    cards = [(root / "dataset/README.md").read_text() for root in (built, store)]
    assert ["`--log actions` leaves the decision" in card for card in cards] == [True, False]
    assert ["(`actions`)" in card for card in cards] == [False, True]


def test_a_relabelled_store_still_grows(store: Path, tmp_path: Path) -> None:
    """Catch labels of new levels that stay in the folder of the old version."""
    relabel(store, BY_EPISODE)
    more = config_of({"sokoban": 2, "frozenlake": 2}, rollouts=3) | BY_EPISODE
    result = pivot.build(more, store)
    assert_whole(store)
    assert problems(store) == []
    pivot.build(more, tmp_path / "direct")
    assert _labels(store).equals(_labels(tmp_path / "direct"))
    assert result.environments == pivot.build(more, store).environments
    assert pivot.build(more, store).already_complete


def test_a_damaged_file_of_the_new_version_is_noticed(store: Path) -> None:
    relabel(store, BY_EPISODE)
    assert pivot.build(CONFIG | BY_EPISODE, store).already_complete
    path = store / "dataset/sokoban/train-00000.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert not pivot.build(CONFIG | BY_EPISODE, store).already_complete
    assert problems(store) == []


def test_counts_are_those_of_the_new_dataset(store: Path) -> None:
    before = pivot.build(CONFIG, store)
    after = relabel(store, {"include_infeasible": True})
    assert pivot.build(CONFIG | {"include_infeasible": True}, store).environments == after.environments
    infeasible = load_store(store).labels.filter(pl.col("accepted") & pl.col("infeasible_at_start")).collect()
    rows = [sum(counts["rows"] for counts in result.environments.values()) for result in (before, after)]
    assert rows[1] - rows[0] == len(infeasible)


# Killed


@dataclass(frozen=True)
class Relabelling:
    """One way to relabel `small`, with its uninterrupted result, to which killed runs are compared."""

    action: str
    old: Path
    new: Path
    changes: list[str]

    def moment(self, kind: str, name: str = "") -> int:
        """Number of the last change of this kind to something of this name."""
        return max(
            number
            for number, change in enumerate(self.changes, 1)
            if change.startswith(kind) and change.endswith(f"/{name}" if name else "")
        )

    def moments(self) -> list[int]:
        """Two moments while the new version is prepared, every move from the journal on, and some of the removals."""
        journal = self.moment("replace", "journal.json")
        later = range(journal, len(self.changes) + 1)
        removals = [number for number in later if self.changes[number - 1].startswith(("unlink", "rmdir"))]
        return sorted({1, journal // 2, *later, len(self.changes)} - set(removals) | set(removals[::5]))


def _undisturbed(victim: Victim, action: str, old: Path, tmp_path: Path) -> Relabelling:
    new = copy_store(old, tmp_path / "new")
    return Relabelling(action, old, new, victim.run(action, new, BY_EPISODE))


def _content(root: Path) -> frozenset[tuple[str, str]]:
    """Name and digest of every file but the views, whose bytes vary."""
    names = [name for name in files_of(root) if name != "pivot.duckdb"]
    return frozenset((name, hashlib.sha256((root / name).read_bytes()).hexdigest()) for name in names)


@pytest.mark.xdist_group("kill")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("action", ["relabel", "relabel without exchange"])
def test_killed_anywhere_a_store_is_old_or_new(victim: Victim, small: Path, tmp_path: Path, action: str) -> None:
    """Catch a relabelling that leaves files of two versions, or none, at some moment."""
    whole = _undisturbed(victim, action, small, tmp_path)
    datasets = {1: _dataset(small), 2: _dataset(whole.new)}
    labels, counts, done = _labels(small), query(small, COUNTS), fingerprint(whole.new)
    moments = whole.moments()[:: 1 if ALL else 8] if action == "relabel" else whole.moments()[2 :: 5 if ALL else 12]
    seen, verified = set(), set()
    for moment in moments:
        root = copy_store(small, tmp_path / "killed")
        victim.run(action, root, BY_EPISODE, die_at=moment)
        place = f"killed before change {moment}: {whole.changes[moment - 1]}"
        assert_nothing_is_torn(root)
        # A trainer sees one dataset, whole, whatever happened.
        # Without an exchange there is none for a moment, and then the next writer puts one in place.
        none = [{}] if action == "relabel without exchange" else []
        assert _dataset(root) in [*datasets.values(), *none], place
        # A reader of the store also sees one version, without repair.
        assert _labels(root).equals(labels), place
        assert query(root, COUNTS) == counts, place
        # Verify changes nothing: it names the command that finishes what was bound, as the next writer does.
        storage = LocalStorage(root)
        if storage.stat(JOURNAL) is not None:
            with pytest.raises(StoreError, match="finish it with: pivot relabel"):
                verify_store(root, Reporter())
        with storage.lock():
            finish_relabel(storage)
        version = Store.open(root).config.label_version
        assert _dataset(root) == datasets[version], place
        if _content(root) not in verified:
            unfinished = ": a file of label version 2, left by a relabelling that did not finish; run the same"
            assert [each for each in verify_store(root, Reporter()).problems if unfinished not in each] == [], place
            verified.add(_content(root))
        seen.add(version)
        # The same command again ends as if nothing had happened.
        relabel(root, BY_EPISODE)
        if version == 1:
            assert fingerprint(root) == done, place
        assert_whole(root)
        shutil.rmtree(root)
    assert seen == {1, 2}


@pytest.mark.xdist_group("kill")
def test_the_next_writer_after_a_kill_finishes_the_bound_step_and_goes_on(
    victim: Victim, small: Path, tmp_path: Path
) -> None:
    whole = _undisturbed(victim, "relabel", small, tmp_path)
    moments = whole.moment("exchange"), whole.moment("replace", "manifest.json")
    for later, version in (({}, 2), ({"include_infeasible": True}, 3), (None, 2)):
        root = copy_store(small, tmp_path / "killed")
        victim.run("relabel", root, BY_EPISODE, die_at=moments[later is None])
        if later is None:
            assert pivot.build(SMALL | BY_EPISODE, root).already_complete
            assert fingerprint(root) == fingerprint(whole.new)
        else:
            relabel(root, later)
        config = Store.open(root).config
        assert (config.label_version, config.split) == (version, "episode")
        assert config.include_infeasible is bool(later)
        assert_whole(root)


@pytest.mark.xdist_group("kill")
def test_labels_of_another_solver_are_not_taken_up_after_a_kill(victim: Victim, small: Path, tmp_path: Path) -> None:
    hasty = {"solvers": {"sokoban": {"max_states": 1}}}
    whole = copy_store(small, tmp_path / "whole")
    changes = victim.run("relabel", whole, hasty)
    assert not _labels(whole).equals(_labels(small))
    root = copy_store(small, tmp_path / "killed")
    journal = next(number for number, change in enumerate(changes, 1) if change.endswith("/journal.json"))
    victim.run("relabel", root, hasty, die_at=journal)
    assert (root / "labels" / "v2").is_dir()
    relabel(root, BY_EPISODE)
    assert _labels(root).equals(_labels(small))
    assert_whole(root)


@pytest.mark.parametrize("field", [{"guidance": "prose"}, {"include_infeasible": True}, {"log": "actions"}])
def test_what_a_killed_relabel_left_is_kept_for_equal_changes_alone(built: Path, field: dict[str, Any]) -> None:
    old = Store.open(built)
    shard, new = old.config.shards()[0], Store(built, old.config.model_copy(update=field))
    stages = [(LabelStage(each, shard), ExportStage(each, shard, ShardSplit())) for each in (old, new)]
    inputs = [(label.inputs(), export.inputs()) for label, export in stages]
    assert inputs[0] != inputs[1]
