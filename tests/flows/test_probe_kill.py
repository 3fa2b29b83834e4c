"""A probe that is killed, anywhere, and started again leaves the bytes of an undisturbed one."""

import signal
from pathlib import Path

import pivot
import pytest
from pivot.datasets.store.store import Store
from pivot.insight.probe.rates import probe_rows
from pivot.tests.flow_runs import assert_nothing_is_torn, assert_whole, config_of, fingerprint
from pivot.tests.flows.victim import Victim
from pivot.tests.stores import copy_store

pytestmark = pytest.mark.xdist_group("kill")

MOMENTS = {
    "in the rollouts of the first shard": "/probe/sokoban/00000.parquet",
    "while the second shard is written": "/probe/sokoban/00001.parquet",
    "between a shard and its receipt": "/.probe/sokoban/00001.json",
    "between the last shard and the settings": "/probe/probe.json",
    "while the manifest is written": "/manifest.json",
}
"""Paths of the changes that a kill prevents: all changes before them are on disk."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two shards of each environment."""
    root = tmp_path_factory.mktemp("bare") / "store"
    pivot.build(config_of({"sokoban": 2, "frozenlake": 2}), root)
    return root


@pytest.fixture(scope="module")
def whole(bare: Path, victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, probed without a disturbance."""
    root = copy_store(bare, tmp_path_factory.mktemp("whole") / "store")
    victim.run("probe", root, {})
    assert probe_rows(Store.open(root)).height > 20
    return root


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_a_stopped_probe_goes_on_to_the_same_bytes(
    moment: str, how: signal.Signals, bare: Path, whole: Path, victim: Victim, tmp_path: Path
) -> None:
    root = copy_store(bare, tmp_path / "store")
    victim.run("probe", root, {}, MOMENTS[moment], how=how)
    assert_nothing_is_torn(root)
    assert len(list((root / ".probe").rglob("*.json"))) == {0: 0, 1: 1, 2: 1}.get([*MOMENTS].index(moment), 4)
    unfinished = pivot.verify(root).problems
    assert all("a probe did not finish; run: pivot probe" in text for text in unfinished)
    assert bool(unfinished) == any((root / "probe").rglob("*.parquet"))
    victim.run("probe", root, {})
    assert fingerprint(root) == fingerprint(whole)
    assert_whole(root)
    assert pivot.verify(root).problems == []


def test_one_that_was_asked_for_more_and_killed_leaves_no_manifest_that_lies(
    whole: Path, victim: Victim, tmp_path: Path
) -> None:
    root = copy_store(whole, tmp_path / "store")
    victim.run("probe", root, {"resamples": 2}, "/probe/frozenlake/00000.parquet")
    store = Store.open(root)
    manifest = store.manifest()
    assert {name: store.storage.record(name) for name in manifest} == manifest
    victim.run("probe", root, {"resamples": 2})
    fresh = copy_store(whole, tmp_path / "fresh")
    victim.run("probe", fresh, {"resamples": 2})
    assert fingerprint(root) == fingerprint(fresh)
