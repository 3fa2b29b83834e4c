"""The recorder: single and vector environments in every mode of autoreset give lines that import and agree."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pivot
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AddRenderObservation, TimeLimit
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.interop.recorder import _origin
from pivot.tests.stores import problems

from .recorded import imports_of


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def _played(env: Any, rng: np.random.Generator, **notes: Any) -> None:
    ended = False
    while not ended:
        env.note(**notes)
        *_, terminated, truncated, _ = env.step(int(rng.integers(env.action_space.n)))
        ended = terminated or truncated


def test_a_recorded_run_imports_and_agrees_in_everything(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in (SokobanEnv, FrozenLakeEnv):
        env = pivot.Recorder(kind(), tmp_path / "source", policy="random")
        for seed in range(3):
            env.reset(seed=seed)
            _played(env, rng, response="<think>a</think><action>up</action>", token_ids=[1, 2], logprobs=[-0.1, -0.2])
        env.reset(seed=9)
        env.step(0)
        env.close()
    result = pivot.import_rollouts(
        tmp_path / "source", tmp_path / "store", require=["end", "states", "rewards", "frames"]
    )
    assert result.problems == [] and result.episodes == 8
    rows = imports_of(tmp_path / "store")
    assert all(row["frames_agree"] and row["states_agree"] and row["rewards_agree"] for row in rows)
    assert {row["source_policy"] for row in rows} == {"random"}
    steps = pivot.load_store(tmp_path / "store").steps.collect()
    assert set(steps["response"].to_list()) == {"<think>a</think><action>up</action>", ""}
    assert problems(tmp_path / "store") == []
    for limit, horizon in ((5, 5), (100, 9)):
        limited: Any = TimeLimit(FrozenLakeEnv(), limit)
        assert _origin(limited.unwrapped, limited)["env_config"]["horizon"] == horizon


def _shown_twice() -> Any:
    """Return an environment that observes dicts."""
    return AddRenderObservation(FrozenLakeEnv(), render_only=False)


@pytest.mark.parametrize(("make", "mode", "kind"), [
    *((SyncVectorEnv, mode, FrozenLakeEnv) for mode in AutoresetMode),
    *((AsyncVectorEnv, mode, FrozenLakeEnv) for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)),
    *((SyncVectorEnv, mode, _shown_twice) for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)),
])  # fmt: skip
def test_vector_environments(tmp_path: Path, make: Any, mode: AutoresetMode, kind: Any) -> None:
    """In other processes, generators there make the levels of later episodes, so that their seeds are unknown."""
    rng = np.random.default_rng(1)
    env = pivot.Recorder(make([kind] * 3, autoreset_mode=mode), tmp_path / "source")
    env.reset(seed=[1, 2, 3])
    for number in range(40):
        if number % 2:
            env.note(0, response=f"reply {number}")
        *_, terminations, truncations, _ = env.step(rng.integers(4, size=3))
        ended = terminations | truncations
        if mode == AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": ended})
    env.reset(seed=[4, 5, 6])  # in the middle of episodes
    env.close()
    records = _records(tmp_path / "source")
    assert len(records) > 12 and len({record["initial_state"] for record in records}) > 4
    assert all((each["success"] is None) != (each["terminated"] or each["truncated"]) for each in records)
    said = [turn["response"] for record in records for turn in record["turns"] if turn.get("response")]
    assert 10 < len(said) == len({*said}) <= 20, "a turn without a note has no reply of an earlier one"
    require = ["end", "states", "rewards", "frames"]
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store", require=require)
    assert result.problems == [] and result.episodes == len(records)


def test_turns_of_several_actions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    env = pivot.Recorder(SokobanEnv(SokobanConfig(actions_per_turn=2, horizon=5)), tmp_path / "source")
    for seed in range(4):
        env.reset(seed=seed)
        _played(env, rng)
    env.close()
    require = ["end", "states", "rewards", "frames"]
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store", require=require)
    assert result.problems == [] and result.episodes == 4
    actions = set(pivot.load_store(tmp_path / "store").steps.collect()["action"])
    assert any("|" in action for action in actions) and {"up", "invalid"} & actions


@pytest.mark.parametrize(("name", "package", "kwargs"), [
    ("FrozenLake-v1", "", {"is_slippery": False}),
    ("Taxi-v4", "", {}),
    ("MiniGrid-LavaGapS5-v0", "minigrid", {}),
])  # fmt: skip
def test_any_gymnasium_environment_imports(name: str, package: str, kwargs: dict[str, Any], tmp_path: Path) -> None:
    """Catch a name, setting or horizon that is not recorded: the import needs no option and gives the same label."""
    pytest.importorskip(package or "gymnasium")
    made = gymnasium.make(f"{package}:{name}" if package else name, max_episode_steps=12, **kwargs)
    env, rng = pivot.Recorder(made, tmp_path / "source"), np.random.default_rng(0)
    env.reset(seed=1)
    _played(env, rng, response="I go on", messages=[{"role": "user", "content": "Now?"}])
    env.close()
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store", allow=package or ())
    assert result.problems == [] and result.episodes == 1
    store = pivot.load_store(tmp_path / "store")
    (row,) = store.labels.join(store.episodes, on="episode_id").collect().to_dicts()
    verdict = pivot.certify(made, seed=row["seed"], actions=row["actions"], horizon=12, checks=8, fresh=False)
    assert (row["seed"], row["pivot_step"], row["failure_mode"]) == (1, verdict.pivot_step, verdict.failure_mode)
    exported = pivot.export(tmp_path / "store", tmp_path / "corrections", format="corrections", workers=1)
    assert exported.rows == bool(row["witness"])


class _NotANumber(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A game with a reward that JSON cannot hold."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float("nan"), terminated, truncated, info | {"success": object()}


def test_what_json_cannot_hold_is_null_and_named(tmp_path: Path) -> None:
    env = pivot.Recorder(_NotANumber(FrozenLakeEnv()), tmp_path)
    env.reset(seed=1)
    messages = [{"role": "user", "content": {1, 2}}]
    env.note(response="r\ud800", logprobs=[-0.1, float("inf")], messages=messages)
    messages.clear()
    env.step(0)
    env.reset(seed=2)
    env.step(1)
    env.close()
    first, second = _records(tmp_path)
    turn = first["turns"][0]
    assert turn["reward"] is None and turn["logprobs"] is None and turn["response"] == "r\ud800"
    assert turn["messages"] == [{"role": "user", "content": None}]
    expected = ("logprobs[1]: inf", "messages[0].content: set", "reward: nan")
    assert first["unrecorded"] == [f"turns[0].{each}" for each in expected]
    assert second["unrecorded"] == ["turns[0].reward: nan"]


def test_errors_of_the_recorder_are_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs the episodes of that time, not the run; a misspelt note is dropped."""
    env, rng = pivot.Recorder(FrozenLakeEnv(), tmp_path), np.random.default_rng(0)
    with monkeypatch.context() as patched:
        full = OSError(28, "No space left on device")
        patched.setattr(type(env._writer), "line", lambda *_: (_ for _ in ()).throw(full))
        env.reset(seed=1)
        with pytest.warns(UserWarning, match="No space left"):
            _played(env, rng)
    env.reset(seed=2)
    with pytest.warns(UserWarning, match="no parameter 'reponse'.*parameters: response"):
        env.note(reponse="x")
    endless: list[Any] = []
    endless.append(endless)
    with pytest.warns(UserWarning, match="RecursionError"):
        env.note(messages=endless)
    _played(env, rng)
    env.close()
    assert [record["seed"] for record in _records(tmp_path)] == [2]


def test_copies_record_into_files_of_their_own(tmp_path: Path) -> None:
    env, rng = pivot.Recorder(FrozenLakeEnv(), tmp_path), np.random.default_rng(0)
    env.reset(seed=1)
    env.step(0)
    for each in (copy.deepcopy(env), pickle.loads(pickle.dumps(env)), env):
        _played(each, rng)
        each.close()
    records = _records(tmp_path)
    assert len(records) == len(list(tmp_path.glob("*.jsonl"))) == 3
    assert {record["turns"][0]["actions"][0] for record in records} == {"up"}
