"""A start that fails leaves nothing to resume: no run.json, so that the corrected command finds an empty folder."""

from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import ConfigError, PivotError
from pivot.datasets.store.stages.rollout import RolloutStage
from pivot.environments.sokoban import SokobanEnv
from pivot.tests.flow_runs import config_of, files_of


def _unreachable(port: int = 9) -> dict[str, Any]:
    service = {"base_url": f"http://127.0.0.1:{port}/v1", "patience_seconds": 0.5}
    return {"name": "openai", "options": {"model": "m"}, "service": service}


STARTS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown environment": (config_of({"chess": 1}), "unknown environment 'chess'"),
    "unknown policy": (config_of(policy={"name": "oracle"}), "unknown policy 'oracle'"),
    "unknown setting": (config_of() | {"environments": {"sokoban": {"tasks": 1, "settings": {"boxs": 1}}}}, "boxs"),
    "levels that cannot be made": (
        config_of() | {"environments": {"frozenlake": {"tasks": 99, "settings": {"size": 2}}}},
        "no level for task 44",
    ),
    "no simulator": (
        config_of() | {"environments": {"navigation": {"tasks": 1, "settings": {"backend": "thor"}}}},
        "plays navigation in embedded rooms",
    ),
    "unreachable server": (config_of(policy=_unreachable()), "http://127.0.0.1:9"),
}


@pytest.mark.parametrize(("config", "message"), STARTS.values(), ids=STARTS)
def test_a_start_that_fails_leaves_no_run_json(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with pytest.raises(PivotError, match=message):
        pivot.build(config, root)
    assert [name for name in files_of(root) if not name.startswith(".")] == []
    if message != "http://127.0.0.1:9":
        return
    pivot.build(config_of(), root)  # the failed start left nothing that fixes the config
    assert (root / "manifest.json").exists()


@pytest.mark.parametrize("role", ["policy", "teacher"])
def test_a_key_that_is_not_set_leaves_no_file(role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    part = {"name": "openai", "options": {"model": "m"}, "service": {"key_variable": "MY_KEY"}}
    flag = "--key-variable" if role == "policy" else "--writer-service key_variable=NAME"
    with pytest.raises(ConfigError, match=f"{role}: MY_KEY should hold the key .* with {flag}"):
        pivot.build(config_of() | {role: part}, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/below", "foreign"])
def test_a_folder_that_is_none_is_left_as_it_is(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "cat.jpg").touch()
    before = files_of(tmp_path)
    with pytest.raises(PivotError):
        pivot.build(config_of(), tmp_path / place)
    assert files_of(tmp_path) == before


def _boom(*_: Any, **__: Any) -> Any:
    raise LookupError("a plugin's own bug")


@pytest.mark.parametrize(("owner", "name"), [(SokobanEnv, "make_level"), (RolloutStage, "make")])
def test_a_bug_of_a_plugin_leaves_no_run_json(
    owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, _boom)
    with pytest.raises(LookupError):
        pivot.build(config_of(), tmp_path / "store")
    assert [name for name in files_of(tmp_path) if not name.split("/")[1].startswith(".")] == []
    monkeypatch.undo()
    pivot.build(config_of(), tmp_path / "store")
