"""The filters of each environment are recorded in the config: what is installed later changes no finished store."""

import shutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError, PluginError, StoreError
from pivot.core.plugins import Settings
from pivot.core.progress import Reporter
from pivot.datasets.store.config import make_config
from pivot.datasets.store.store import Store
from pivot.datasets.verify.verify import verify_store
from pivot.flows.build import build
from pivot.labeling.base import Draft, Filter, Objection
from pivot.labeling.episode import FailedEpisode


class Strict(Filter):
    """A stranger's filter that rejects every label it hears about."""

    name: ClassVar[str] = "strict"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban", "nowhere"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        return Objection("strict", "no")


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Strict]]:
    """Install the filter beside ours."""
    installed = plugins.entry_points
    point = EntryPoint("strict", f"{Strict.__module__}:Strict", "pivot.filters")
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: [*installed(group=group), *([point] if group == point.group else [])]
    )
    plugins.registered.cache_clear()
    plugins.load.cache_clear()
    yield Strict
    plugins.registered.cache_clear()
    plugins.load.cache_clear()


def test_a_config_records_the_filters_of_each_environment(strict: type[Strict]) -> None:
    config = make_config({"environments": {"sokoban": {"tasks": 1}, "frozenlake": {"tasks": 1}}})
    assert "strict" in config.filters["sokoban"]
    assert "strict" not in config.filters["frozenlake"]
    assert make_config(config.model_dump(mode="json")) == config


def test_filters_can_be_chosen() -> None:
    environments = {"sokoban": {"tasks": 1}, "frozenlake": {"tasks": 1}}
    config = make_config({"environments": environments, "filters": {"sokoban": ["target", "mode", "target"]}})
    assert config.filters["sokoban"] == ("mode", "target")
    assert config.filters["frozenlake"] == make_config({"environments": environments}).filters["frozenlake"]
    assert make_config({"environments": environments, "filters": {"sokoban": "target,mode"}}) == config
    with pytest.raises(ConfigError, match="environment 'svg' is not part of this run"):
        make_config({"environments": environments, "filters": {"svg": ["mode"]}})


def test_an_unknown_filter_is_refused(tmp_path: Path) -> None:
    config = make_config({"environments": {"frozenlake": {"tasks": 1}}, "filters": {"frozenlake": ["modes"]}})
    with pytest.raises(PluginError, match=r"unknown filter 'modes'; registered: .*mode, "):
        build(config, tmp_path / "store")


def test_a_plugin_for_another_environment_changes_no_finished_store(
    tiny_store: Path, tmp_path: Path, strict: type[Strict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Strict, "environments", frozenset({"nowhere"}))
    root = Path(shutil.copytree(tiny_store, tmp_path / "store"))
    assert verify_store(root, Reporter()).holds
    config = Store.open(root).config
    assert build(make_config({**config.model_dump(mode="json"), "filters": {}}), root).already_complete


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
