"""The rollouts of a run are a store: counted, proved and shown like any other, whenever the run was stopped."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import pytest
from pivot.core.errors import ConfigError, StoreError
from pivot.core.progress import Reporter
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.schema import EPISODES
from pivot.datasets.store.store import Store
from pivot.datasets.verify.verify import verify_store
from pivot.flows.engines.local import InProcess
from pivot.flows.pipeline import finish_store
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.training import matrix
from pivot.training.policy_rl import loop

pytestmark = pytest.mark.train
FAMILY = "qwen3_vl"
UPDATES = 3


@contextmanager
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "load_weights", lambda *_: deepcopy(matrix.player(FAMILY)))
        patch.setattr(loop, "plan_levels", lambda _: matrix.levels_of("frozenlake"))
        yield


def _train(folder: Path, updates: int, *, resume: bool = False, **fields: int) -> Path:
    model = folder / "model"
    if not model.exists():
        for part in matrix.player(FAMILY):
            part.save_pretrained(model)
    config = matrix.config_of("frozenlake", "oracle", str(model))
    config = config.model_copy(update={"updates": updates, "save_every": 1, **fields})
    with _quick():
        loop.train(loop.prepare(config), folder / "run", resume=resume)
    return folder / "run" / "rollouts"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished store of a run that was stopped after two updates and gone on with for a third."""
    folder = tmp_path_factory.mktemp("played")
    root = _train(folder, 2)
    finish_store(root, InProcess(), Reporter())
    _train(folder, UPDATES, resume=True)
    with pytest.raises(StoreError, match="its build did not finish"):
        load_store(root)
    finish_store(root, InProcess(), Reporter())
    return root


def test_all_of_it_is_proved_again_from_its_config(played: Path) -> None:
    report = verify_store(played, Reporter())
    assert not report.problems
    assert report.checked["episodes"] == UPDATES * 2 * matrix.SCRIPTED
    assert report.checked["labels"] > 0


def test_episodes_carry_the_update_that_they_were_played_in(played: Path) -> None:
    rows = load_store(played).episodes.select("policy", "policy_config", "run_id", "group_id").collect()
    assert set(rows["policy"]) == {"trained"}
    configs = [json.loads(each) for each in rows["policy_config"]]
    assert [each["update"] for each in configs] == sorted([0, 1, 2] * 2 * matrix.SCRIPTED)
    assert rows["run_id"].n_unique() == UPDATES
    assert rows["group_id"].n_unique() == UPDATES * 2


def test_commands_for_stores_work_on_it(played: Path, tmp_path: Path) -> None:
    assert "frozenlake" in run("stats", played)
    run("peek", played, "--png", tmp_path / "failure.png")
    assert (tmp_path / "failure.png").read_bytes().startswith(b"\x89PNG")
    run("build", "--config", played / "run.json", "--out", played)


def test_a_planted_lie_is_told(played: Path) -> None:
    store = Store.open(played)
    shard = store.config.shards()[1]
    name = store.table_file(EPISODES, shard)
    whole = store.storage.read_bytes(name)
    other = store.storage.read_bytes(store.table_file(EPISODES, store.config.shards()[0]))
    store.storage.write_bytes(name, other)
    try:
        problems = verify_store(played, Reporter()).problems
    finally:
        store.storage.write_bytes(name, whole)
    assert any("episodes" in each for each in problems)


def test_nobody_can_play_on_as_the_model_was(played: Path, tmp_path: Path) -> None:
    problem = error_of("build", "--config", played / "run.json", "--out", tmp_path / "new")
    assert isinstance(problem, ConfigError)
    assert "play with a checkpoint of that run instead" in str(problem)


def test_only_every_second_update_is_kept_when_asked(tmp_path: Path) -> None:
    root = _train(tmp_path, 2, keep_rollouts=2)
    finish_store(root, InProcess(), Reporter())
    assert not verify_store(root, Reporter()).problems
    configs = [json.loads(each) for each in load_store(root).episodes.collect()["policy_config"]]
    assert {each["update"] for each in configs} == {1}
