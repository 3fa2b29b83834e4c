"""The pipeline on storages that are no plain folder: one that fails at any change, one that has no files at all."""

import random
import shutil
from pathlib import Path

import pivot
import pytest
from pivot.core.errors import StoreError
from pivot.core.progress import Reporter
from pivot.datasets.store.config import make_config
from pivot.datasets.store.dataset_rows import plan_split
from pivot.datasets.store.stages.base import run_stage
from pivot.datasets.store.stages.export import ExportStage
from pivot.datasets.store.stages.label import LabelStage
from pivot.datasets.store.stages.rollout import RolloutStage
from pivot.datasets.store.store import RUN, Store
from pivot.flows.pipeline import plan
from pivot.tests.core.faults import Fate, Killed, mortal
from pivot.tests.core.memory import MemoryStorage
from pivot.tests.flow_runs import assert_nothing_is_torn, assert_whole, config_of, fingerprint

CONFIG = config_of({"frozenlake": 1})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A store of ``CONFIG``, and the changes that made it."""
    root = tmp_path_factory.mktemp("undisturbed") / "store"
    with mortal(Fate()) as fate:
        pivot.build(CONFIG, root)
    return root, fate.changes


def test_a_fault_at_any_change_loses_nothing(undisturbed: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Killed, or refused by the disk, from one change on; the next run ends as if nothing had happened."""
    expected, changes = undisturbed
    assert len(changes) > 20
    moments = {1, len(changes), *random.Random(6).sample(range(2, len(changes)), 5)}
    for moment in sorted(moments):
        root, fault = tmp_path / "store", Killed() if moment % 2 else StoreError("the disk is full")
        with mortal(Fate(moment, fault)), pytest.raises(type(fault)):
            pivot.build(CONFIG, root)
        assert_nothing_is_torn(root)
        with pytest.raises(StoreError, match=r"did not finish|holds no run\.json"):
            Store.open(root)
        pivot.build(CONFIG, root)
        assert fingerprint(root) == fingerprint(expected), f"failed at: {changes[moment - 1]}"
        assert_whole(root)
        shutil.rmtree(root)


def test_a_stage_needs_no_file(undisturbed: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards are made, read back and resumed through the storage alone, with the same bytes."""
    storage = MemoryStorage()
    monkeypatch.setattr(pivot.core.storage, "LocalStorage", lambda root: storage)
    nowhere = Path("/nowhere/at/all")
    store = Store(nowhere, make_config(CONFIG))
    (shard,) = store.config.shards()
    tasks = plan(store.run, Reporter())[shard]
    for reused in (False, True):
        results = [run_stage(RolloutStage(store, shard, tasks)), run_stage(LabelStage(store, shard))]
        results.append(run_stage(ExportStage(store, shard, plan_split(store)[shard])))
        assert [result.reused for result in results] == [reused] * 3
    assert not nowhere.parent.exists()
    built, _ = undisturbed
    made = {name: content for name, content in storage.objects.items() if not name.startswith((".", "calls/"))}
    assert made == {name: (built / name).read_bytes() for name in made}
    assert len(made) == len([name for name in fingerprint(built) if name.endswith(".parquet")])
    assert RUN not in made
