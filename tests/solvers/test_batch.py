"""Labels, credit and rows of many episodes of an environment of one's own, judged by a search of the test."""

import random
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pivot
import pytest
from pivot.core.errors import CertifyError
from pivot.solvers.closure import batch

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
BY_NAME: Any = {"actions_by_name": {name: index for index, name in enumerate(MOVES)}}
NAMED: Any = {**BY_NAME, "checks": 16}
HORIZON, SIZE = 12, 5


class Cave(gymnasium.Env[Any, Any]):
    """A grid with traps; the agent sees the cells around it, and the seed or ``traps`` is the level."""

    action_space = gymnasium.spaces.Discrete(4)
    observation_space = gymnasium.spaces.Box(0, 3, (3, 3), np.int8)

    def __init__(self, traps: Any = None) -> None:
        self.fixed = traps

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.traps, self.at = traps_of(seed) if self.fixed is None else frozenset(self.fixed), (0, 0)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.at = after(self.at, [*MOVES][int(action)])
        won = self.at == (SIZE - 1, SIZE - 1)
        return self._seen(), float(won), won or self.at in self.traps, False, {}

    def _seen(self) -> Any:
        around = [(self.at[0] + r, self.at[1] + c) for r in (-1, 0, 1) for c in (-1, 0, 1)]
        return np.array([cell in self.traps for cell in around], np.int8).reshape(3, 3)


def traps_of(seed: int | None) -> frozenset[tuple[int, int]]:
    cells = [(r, c) for r in range(SIZE) for c in range(SIZE) if 1 < r + c < 2 * SIZE - 3]
    return frozenset(random.Random(seed).sample(cells, 4))


def after(at: tuple[int, int], move: str) -> tuple[int, int]:
    r, c = at[0] + MOVES[move][0], at[1] + MOVES[move][1]
    return min(SIZE - 1, max(0, r)), min(SIZE - 1, max(0, c))


@cache
def within(traps: frozenset[tuple[int, int]], at: tuple[int, int], turns: int) -> bool:
    if at == (SIZE - 1, SIZE - 1):
        return True
    return at not in traps and turns > 0 and any(within(traps, after(at, move), turns - 1) for move in MOVES)


def failures(count: int, levels: int) -> list[dict[str, Any]]:
    rng, failed = random.Random(3), list[dict[str, Any]]()
    while len(failed) < count:
        seed, env, over = len(failed) % levels, Cave(), False
        actions, seen, won = list[str](), [env.reset(seed=seed)[0].tolist()], 0.0
        while not over and len(actions) < HORIZON:
            actions.append(rng.choice([*MOVES]))
            observation, won, over, *_ = env.step([*MOVES].index(actions[-1]))
            seen.append(observation.tolist())
        if not won:
            failed.append({"seed": seed, "horizon": HORIZON, "actions": actions, "observations": seen})
    return failed


@pytest.fixture(scope="module")
def played() -> list[dict[str, Any]]:
    return failures(60, 3)


@pytest.fixture(scope="module")
def verdicts(played: list[dict[str, Any]]) -> list[Any]:
    return pivot.certify_batch(Cave, played, **NAMED)


def _states(trajectory: dict[str, Any]) -> list[tuple[int, int]]:
    states = [(0, 0)]
    for action in trajectory["actions"]:
        states.append(after(states[-1], action))
    return states


def test_a_level_is_searched_once_and_labels_are_those_of_single_calls(
    played: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched, explore = list[Any](), batch.explore
    monkeypatch.setattr(batch, "explore", lambda env, **more: searched.append(more["seed"]) or explore(env, **more))
    made = pivot.certify_batch(Cave, played, **NAMED)
    assert searched == [0, 1, 2]
    one = played[4]
    assert made[4] == pivot.certify(Cave, actions=one["actions"], horizon=HORIZON, seed=one["seed"], **NAMED)
    levels = [{**each, "level": tuple(traps_of(each["seed"]))} for each in played]
    for each in levels:
        del each["seed"]
    assert pivot.certify_batch(Cave, levels, **NAMED) == made


def test_pivots_pairs_and_corrections_are_true(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    def prompt(observation: Any, history: Any) -> str:
        return f"{np.asarray(observation).tolist()} after {[action for _, action in history]}"

    for trajectory, verdict in zip(played, verdicts, strict=True):
        traps, states = traps_of(trajectory["seed"]), _states(trajectory)
        lost = [not within(traps, state, HORIZON - t - 1) for t, state in enumerate(states[1:])]
        assert verdict.pivot_step == lost.index(True)
    pairs = pivot.pairs(verdicts, played, prompt)
    replayed = pivot.pairs(verdicts, [_bare(each) for each in played], prompt, make_env=Cave, **BY_NAME)
    assert len(pairs) > 40 and pairs == replayed
    for row in pairs:
        trajectory, t = played[row["index"]], row["t"]
        traps, state = traps_of(trajectory["seed"]), _states(trajectory)[t]
        chosen, rejected = row["chosen"][0]["content"], row["rejected"][0]["content"]
        assert within(traps, after(state, chosen), HORIZON - t - 1)
        assert rejected == trajectory["actions"][t] and not within(traps, after(state, rejected), HORIZON - t - 1)
        question = f"{trajectory['observations'][t]} after {trajectory['actions'][:t]}"
        assert row["prompt"] == [{"role": "user", "content": question}]
    rows = pivot.corrections(verdicts, played, prompt, make_env=Cave, **BY_NAME)
    assert len(rows) == sum(len(verdict.witness or ()) for verdict in verdicts)
    for row in rows:
        trajectory, first = played[row["index"]], verdicts[row["index"]]
        taken = [*trajectory["actions"][: first.pivot_step], *first.witness][: row["t"]]
        state = _states({"actions": taken})[-1]
        move = row["completion"][0]["content"]
        assert within(traps_of(trajectory["seed"]), after(state, move), HORIZON - row["t"] - 1)
        assert row["prompt"][0]["content"].endswith(f"after {taken}")
    assert len(pivot.corrections(verdicts, played, prompt)) == len([each for each in verdicts if each.witness])


def _bare(trajectory: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in trajectory.items() if name != "observations"}


def test_replies_and_pictures_are_kept(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    said = [{**each, "replies": [f"<think>hm</think><move>{a}</move>" for a in each["actions"]]} for each in played]

    def prompt(observation: Any, history: Any) -> Any:
        parts = [{"type": "image", "image": np.array(observation)}, {"type": "text", "text": "Where?"}]
        return [{"role": "user", "content": parts}]

    row = pivot.pairs(verdicts, said, prompt)[0]
    assert row["rejected"][0]["content"] == f"<think>hm</think><move>{row['rejected_action']}</move>"
    chosen = row["chosen"][0]["content"]
    assert chosen.startswith("<think>The goal takes") and chosen.endswith(
        f"</think><move>{row['chosen_action']}</move>"
    )
    assert row["prompt"][0]["content"] == [{"type": "image"}, {"type": "text", "text": "Where?"}]
    assert row["images"][0].tolist() == played[row["index"]]["observations"][row["t"]]


def test_credit_is_that_of_the_labels(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    for turns, verdict in zip(pivot.credit(Cave, played, **NAMED), verdicts, strict=True):
        assert not isinstance(turns, pivot.Unsolved)
        assert [turn.is_pivot for turn in turns].index(True) == verdict.pivot_step
        assert turns[verdict.pivot_step].safe_actions == verdict.feasible_actions


def test_bad_episodes_have_a_reason_and_stop_nothing(played: list[dict[str, Any]]) -> None:
    good = played[0]
    won = {**good, "actions": ["down"] * 4 + ["right"] * 4, "level": ()}
    episodes = [
        {**good, "rewards": [1.0] * len(good["actions"])},
        {**good, "actions": ["jump"]},
        won,
        {**good, "level": tuple((r, 2) for r in range(SIZE))},
        {**good, "rewards": [0.0] * len(good["actions"])},
    ]
    answers = pivot.certify_batch(Cave, episodes, **NAMED)
    assert [getattr(each, "reason", None) for each in answers] == [
        *("bad_episode", "bad_episode", "not_a_failure", "solver_limit", None),
    ]
    with pytest.raises(CertifyError, match=r"episodes\[0\]: found .*, expected a mapping with actions and horizon"):
        pivot.certify_batch(Cave, [{"actions": []}])
    with pytest.raises(CertifyError, match="found 5 for 1 trajectories"):
        pivot.pairs(answers, [good], lambda *_: "")
    with pytest.raises(CertifyError, match="record them, or pass make_env"):
        pivot.pairs(answers[-1:], [_bare(good)], lambda *_: "")
