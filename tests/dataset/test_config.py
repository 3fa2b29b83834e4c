"""The run config and its filters: resolved once, fed back from run.json, refused with the field's name."""

import json
import shutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pivot.cli.relabel import RelabelForm
from pivot.core import plugins
from pivot.core.errors import ConfigError, PluginError, StoreError
from pivot.core.plugins import Settings
from pivot.core.progress import Reporter
from pivot.datasets.store.config import EnvRun, RunConfig, make_config
from pivot.datasets.store.run import Run
from pivot.datasets.store.store import Store
from pivot.datasets.verify.verify import verify_store
from pivot.flows.build import build
from pivot.flows.relabel import LabelChanges
from pivot.labeling.base import Draft, Filter, Objection
from pivot.labeling.episode import FailedEpisode

SOKOBAN = {"sokoban": {"tasks": 4, "settings": {}}}
BOTH = {"sokoban": {"tasks": 1}, "frozenlake": {"tasks": 1}}


def _one(env: str, **settings: int) -> dict[str, Any]:
    return {"environments": {env: {"tasks": 1, "settings": settings}}}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "config field environments: found nothing, expected a value"),
        ({"environments": {}}, "config field environments"),
        ({"environments": SOKOBAN, "rollout": 8}, r"field rollout; did you mean 'rollouts'\? known: environments, "),
        ({"environments": SOKOBAN, "rollouts": "many"}, "config field rollouts: found 'many', expected a whole number"),
        ({"environments": SOKOBAN, "rollouts": 0}, "config field rollouts: found 0, expected more than 0"),
        ({"environments": SOKOBAN, "seed": -1}, "config field seed"),
        ({"environments": SOKOBAN, "validation_fraction": 1.0}, "config field validation_fraction"),
        ({"environments": {"sokoban": {"tasks": 0, "settings": {}}}}, "config field environments.sokoban.tasks"),
        ({"environments": {"sokoban": {"settings": {}}}}, "field environments.sokoban.tasks: found nothing"),
        (_one("sokoban", boxen=1), r"unknown setting sokoban.boxen; did you mean 'boxes'\? known: "),
        (_one("sokoban", boxes=0), "sokoban.boxes: found 0, expected 1 or more"),
        (_one("sokoban", min_solution=6), "min_solution=6 is larger than max_solution=5"),
        ({"environments": SOKOBAN, "policy": {"name": "scripted", "option": 1}}, "unknown config field policy.option"),
    ],
)
def test_a_wrong_field_is_named(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(raw)


def test_unknown_parts_are_named() -> None:
    with pytest.raises(PluginError, match=r"unknown environment 'chess'; registered: frozenlake, gym, .*, sokoban"):
        make_config(_one("chess"))
    with pytest.raises(PluginError, match=r"unknown policy 'nobody'; registered: .*scripted"):
        Run(make_config({"environments": SOKOBAN, "policy": {"name": "nobody"}}))
    with pytest.raises(PluginError, match=r"unknown writer 'nobody'; registered: .*template"):
        Run(make_config({"environments": SOKOBAN, "teacher": {"name": "nobody"}}))
    config = make_config({"environments": SOKOBAN, "policy": {"name": "scripted", "options": {"skil": 1}}})
    with pytest.raises(ConfigError, match="policy scripted: unknown setting skil; known: habits"):
        Run(config)


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 100))
def test_shards_hold_every_task_once_and_full_ones_never_move(tasks: int, per_shard: int, more: int) -> None:
    def shards(count: int) -> list[Any]:
        run = EnvRun(tasks=count, settings={})
        return RunConfig(environments={"sokoban": run, "frozenlake": run}, tasks_per_shard=per_shard).shards()

    small, large = shards(tasks), shards(tasks + more)
    for env in ("sokoban", "frozenlake"):
        mine = [shard for shard in small if shard.env == env]
        assert [task for shard in mine for task in range(shard.first, shard.stop)] == list(range(tasks))
        assert all(0 < shard.stop - shard.first <= per_shard for shard in mine)
        full = [shard for shard in mine if shard.stop - shard.first == per_shard]
        assert set(full) <= set(large)
    assert len({shard.file for shard in large}) == len(large)


def test_the_run_id_is_that_of_seed_rollouts_and_policy() -> None:
    def run_id(**fields: Any) -> str:
        return Run(make_config({"environments": SOKOBAN} | fields)).run_id

    more = {"sokoban": {"tasks": 9, "settings": {}}, "frozenlake": {"tasks": 1, "settings": {}}}
    assert run_id() == run_id(environments=more) == run_id(split="episode", tasks_per_shard=3, label_version=2)
    changed = {"name": "scripted", "options": {"habits": {"sokoban": {"skill": 0.1}}}}
    assert len({run_id(), run_id(seed=1), run_id(rollouts=4), run_id(policy=changed)}) == 4


def test_an_environment_may_have_shards_of_its_own_size(tmp_path: Path) -> None:
    runs = {"sokoban": {"tasks": 7, "tasks_per_shard": 3}, "frozenlake": {"tasks": 7}}
    config = make_config({"environments": runs, "tasks_per_shard": 5})
    ranges = {env: [(each.first, each.stop) for each in config.shards() if each.env == env] for env in runs}
    assert ranges == {"sokoban": [(0, 3), (3, 6), (6, 7)], "frozenlake": [(0, 5), (5, 7)]}
    assert make_config(json.loads(config.model_dump_json())) == config
    plain = make_config({"environments": SOKOBAN}).model_dump(mode="json")
    assert "tasks_per_shard" not in plain["environments"]["sokoban"], "older versions read stores without it"
    with pytest.raises(ConfigError, match=r"environments\.sokoban\.tasks_per_shard: found 0"):
        make_config({"environments": {"sokoban": {"tasks": 7, "tasks_per_shard": 0}}})


@pytest.mark.parametrize(
    ("levels", "size"), [(1, 16), (4096, 16), (4097, 32), (16_000, 64), (125_000, 128), (10**7, 128)]
)
def test_large_stores_get_larger_shards(levels: int, size: int) -> None:
    config = make_config({"environments": BOTH | {"frozenlake": {"tasks": levels}}})
    assert config.with_fitting_shards().tasks_per_shard == size


class Strict(Filter):
    """A foreign filter that rejects every label it gets."""

    name: ClassVar[str] = "strict"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban", "nowhere"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        return Objection("strict", "no")


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Strict]]:
    """Install the filter beside ours."""
    installed, more = plugins.entry_points, EntryPoint("strict", f"{Strict.__module__}:Strict", "pivot.filters")
    points = lambda group: [*installed(group=group), *([more] if group == more.group else [])]  # noqa: E731
    monkeypatch.setattr(plugins, "entry_points", points)
    plugins.registered.cache_clear()
    plugins.load.cache_clear()
    yield Strict
    plugins.registered.cache_clear()
    plugins.load.cache_clear()


def test_a_config_records_the_filters_of_each_environment(strict: type[Strict]) -> None:
    config = make_config({"environments": BOTH})
    assert ["strict" in config.filters[env] for env in BOTH] == [True, False]
    assert make_config(config.model_dump(mode="json")) == config


def test_filters_can_be_chosen(tmp_path: Path) -> None:
    config = make_config({"environments": BOTH, "filters": {"sokoban": ["target", "mode", "target"]}})
    assert config.filters["sokoban"] == ("mode", "target")
    assert config.filters["frozenlake"] == make_config({"environments": BOTH}).filters["frozenlake"]
    chosen = {"filters": {"sokoban": "target,mode"}}
    assert make_config({"environments": BOTH, **chosen}) == config
    assert LabelChanges.model_validate(chosen).filters == {"sokoban": ("target", "mode")}
    Store(tmp_path / "old", config).write_run()
    changes = {"options__root": str(tmp_path / "old"), "relabel__filters": ["frozenlake=target,mode"]}
    assert RelabelForm().read(changes, {}, "")["filters"] == {env: ["mode", "target"] for env in BOTH}
    with pytest.raises(ConfigError, match="environment 'svg' is not part of this run"):
        make_config({"environments": BOTH, "filters": {"svg": ["mode"]}})
    with pytest.raises(PluginError, match=r"unknown filter 'modes'; did you mean 'mode'\? registered: .*mode, "):
        build(make_config({"environments": BOTH, "filters": {"sokoban": ["modes"]}}), tmp_path / "store")


def test_a_plugin_for_the_same_environment_asks_for_a_relabel(
    tiny_store: Path, tmp_path: Path, strict: type[Strict]
) -> None:
    root = Path(shutil.copytree(tiny_store, tmp_path / "store"))
    config = Store.open(root).config
    assert "strict" not in config.filters["sokoban"]
    assert verify_store(root, Reporter()).holds
    assert build(config, root).already_complete
    with pytest.raises(StoreError, match=r"filters of sokoban \(strict\).*relabel it"):
        build(make_config({**config.model_dump(mode="json"), "filters": {}}), root)
