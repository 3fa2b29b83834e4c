"""Check episodes that end in an error: kept as data, without labels, outside groups, pending until they complete."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pivot
import polars as pl
import pytest
from pivot.core import plugins
from pivot.core.errors import PolicyError
from pivot.datasets.sql.views import query
from pivot.datasets.store.nights import load_store
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import GROUP_SIZE
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.flow_runs import assert_whole, config_of, fingerprint
from pivot.tests.stores import problems

ROLLOUTS = 4
RUN = {"rollouts": ROLLOUTS, "tasks_per_shard": 2, "policy": {"name": "flaky"}}
SMALL, CONFIG = (config_of({"sokoban": tasks, "frozenlake": 2}, **RUN) for tasks in (3, 4))


class FlakyPolicy(ScriptedPolicy):
    """The scripted policy behind a server that fails now and then; it counts the answers."""

    name: ClassVar[str] = "flaky"
    fails: ClassVar[Callable[[Turn], bool]] = staticmethod(lambda turn: False)
    episode_ids: ClassVar[set[str]] = set()

    async def reply(self, turn: Turn) -> Reply:
        self.episode_ids.add(turn.episode_id)
        if FlakyPolicy.fails(turn):
            raise PolicyError("the server answered 503 five times; start it again")
        return await super().reply(turn)


@pytest.fixture(scope="module")
def faultless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of a policy that never fails, which this process knows meanwhile; read it only."""
    load, names, root = plugins.load, plugins.names, tmp_path_factory.mktemp("faultless")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "load", lambda group, name: FlakyPolicy if name == "flaky" else load(group, name))
        patch.setattr(plugins, "names", lambda group: [*names(group), *["flaky"] * (group == "policies")])
        pivot.build(CONFIG, root)
        yield root


@pytest.fixture(autouse=True)
def _calm(faultless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlakyPolicy, "fails", staticmethod(lambda turn: False))
    monkeypatch.setattr(FlakyPolicy, "episode_ids", set())


def _one_in_five_at_its_third_turn(turn: Turn) -> bool:
    return turn.t == 2 and turn.seed % 5 == 0


def _one_task_at_once(turn: Turn) -> bool:
    return turn.task.task_id.endswith("1") or turn.t == 4


@pytest.mark.parametrize("fails", [_one_in_five_at_its_third_turn, _one_task_at_once])
def test_broken_and_added_episodes_are_made_and_nothing_else(
    faultless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Callable[[Turn], bool]
) -> None:
    monkeypatch.setattr(FlakyPolicy, "fails", staticmethod(fails))
    first = pivot.build(SMALL, tmp_path / "store")
    episodes = load_store(tmp_path / "store").episodes.collect()
    broken = set(episodes.filter(pl.col("status") == "error")["episode_id"])
    assert 3 <= first.pending_episodes == len(broken) < len(episodes)
    assert_whole(tmp_path / "store")

    monkeypatch.setattr(FlakyPolicy, "fails", staticmethod(lambda turn: False))
    FlakyPolicy.episode_ids.clear()
    second = pivot.build(CONFIG, tmp_path / "store")
    added = {*load_store(faultless).episodes.collect()["episode_id"]} - {*episodes["episode_id"]}
    assert broken | added == FlakyPolicy.episode_ids and len(added) == ROLLOUTS
    assert (second.pending_episodes, second.already_complete) == (0, False)
    assert fingerprint(tmp_path / "store") == fingerprint(faultless)
    assert _requests(tmp_path / "store") == _requests(faultless)
    assert problems(tmp_path / "store") == []
    assert_whole(tmp_path / "store")
    assert pivot.build(CONFIG, tmp_path / "store").already_complete


def _requests(root: Path) -> list[str]:
    """Requests of a store in any order: their costs differ between runs, so fingerprints leave them out."""
    return sorted(load_store(root).calls.collect()["request_id"])


def test_broken_episodes_are_kept_without_labels_and_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlakyPolicy, "fails", staticmethod(_one_in_five_at_its_third_turn))
    pivot.build(CONFIG | {"rollouts": GROUP_SIZE}, tmp_path)
    frames = load_store(tmp_path)
    broken = frames.episodes.filter(pl.col("status") == "error").collect()
    assert broken.select("failed", "success").null_count().row(0) == (len(broken), len(broken))
    assert set(broken["stop_reason"]) == {"policy_error"} and all("503" in error for error in broken["error"])
    assert set(broken["num_steps"]) == {2}
    ids = broken.lazy().select("episode_id")
    assert frames.labels.join(ids, on="episode_id").collect().is_empty()
    # Their steps stay as they were, and their groups lack a rollout.
    assert len(frames.steps.join(ids, on="episode_id").collect()) == 2 * len(broken)
    whole = {group for (group,) in query(tmp_path, "select group_id from groups")[1]}
    assert whole and not whole & set(broken["group_id"])
    assert whole | set(broken["group_id"]) == set(frames.episodes.collect()["group_id"])
    for config in ("sokoban", "frozenlake", "sokoban_episodes", "frozenlake_episodes"):
        shown = pl.read_parquet(tmp_path / "dataset" / config / "*.parquet", columns=["episode_id"])
        assert not set(shown["episode_id"]) & set(broken["episode_id"])
    assert problems(tmp_path) == []
