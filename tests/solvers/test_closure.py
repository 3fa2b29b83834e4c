"""The closure search: ways back to a state, proofs, limits, and planted faults of environments."""

import copy
import random
from collections.abc import Sequence
from importlib import import_module
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pivot
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle
from pivot.core.errors import CertifyError
from pivot.solvers.base import Unsolved, Verdict
from pivot.solvers.closure.graph import Graph
from pivot.solvers.closure.worlds import How

QUICK: dict[str, Any] = {"checks": 32, "fresh": False}


class Line(gymnasium.Env[Any, Any]):
    """Five cells in a row; the last is the goal, cell 0 is the start, and `dig` in cell 1 is a trap."""

    LEFT, RIGHT, DIG = range(3)

    def __init__(self) -> None:
        self.action_space, self.observation_space = spaces.Discrete(3), spaces.Discrete(5)
        self.render_mode = "rgb_array"
        self.cell, self.board, self.count = 0, np.zeros(1, np.int64), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self.count = 0, 0
        self.board = np.zeros(1, np.int64)
        return self.cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count += 1
        trapped = action == self.DIG and self.cell == 1
        self.cell = min(self.cell + 1, 4) if action == self.RIGHT else max(self.cell - (action == self.LEFT), 0)
        return self.cell, self.reward(), trapped or self.cell == 4, False, self.info()

    def reward(self) -> float:
        return float(self.cell == 4)

    def info(self) -> dict[str, Any]:
        return {}

    def render(self) -> Any:
        return np.zeros((4, 4, 3), np.uint8)


class Copied(Line):
    """A game that can be restored by copies."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Copied":
        other = copy.copy(self)
        other.board = self.board.copy()
        return other


class Restored(Line):
    """A game with snapshots of its own."""

    def snapshot(self) -> Any:
        return self.cell, self.count

    def restore(self, snapshot: Any) -> None:
        self.cell, self.count = snapshot


class Uncopied(Line):
    """A game that can be restored by replay alone."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Uncopied":
        raise TypeError("a window cannot be copied")


@pytest.mark.parametrize(("kind", "how"), [(Copied, "deepcopy"), (Restored, "snapshot"), (Uncopied, "replay")])
def test_every_way_back_gives_the_same_graph(kind: type[Line], how: str) -> None:
    graph = pivot.explore(kind, actions={"left": 0, "right": 1, "dig": 2}, key="observation", **QUICK)
    assert (graph.how, graph.most.tolist(), graph.plan(0)) == (how, [4, 3, 2, 1], ("right",) * 4)
    safe = [graph.safe_actions(1, left) for left in (3, 4, 5)]
    assert safe == [("right",), ("right",), ("left", "right")]
    lost = graph.certify(["right", "dig"], 9)
    assert isinstance(lost, Verdict)
    assert (lost.pivot_step, lost.failure_mode, lost.witness) == (1, "deadlock", ("right",) * 3)
    late = graph.certify(["right", "left", "left", "right", "right"], 5)
    assert isinstance(late, Verdict)
    assert (late.pivot_step, late.failure_mode, late.certificate.before, late.certificate.after) == (1, "timeout", 3, 4)
    frame = graph.frame()
    assert frame.shape == (12, 7) and frame.filter(frame["outcome"] == "success")["state"].to_list() == [3]
    assert frame.filter(frame["outcome"] == "end")["need_after"].to_list() == [float("inf")]
    assert graph.networkx().number_of_edges() == 12


class Pickled(Line, EzPickle):
    """A game whose copies lose their state, because EzPickle stores only the arguments of the constructor."""

    def __init__(self) -> None:
        Line.__init__(self)
        EzPickle.__init__(self)


def test_an_environment_whose_copies_start_over_is_replayed() -> None:
    graph = pivot.explore(Pickled, key=lambda env: env.unwrapped.cell, **QUICK)
    assert (graph.how, graph.most.tolist()) == ("replay", [4, 3, 2, 1])
    with pytest.raises(CertifyError, match=r"'deepcopy'.*Pickled is an EzPickle, whose copies start over"):
        pivot.explore(Pickled, how="deepcopy")


def test_episodes_that_are_none_are_refused() -> None:
    graph = pivot.explore(Copied, actions=[0, 1, 2], **QUICK)
    for actions, horizon, reason in (
        ([], 9, "bad_episode"),
        (["1"] * 5, 4, "bad_episode"),
        (["7"], 9, "bad_episode"),
        (["1", "2", "1"], 9, "bad_episode"),
        (["1"] * 4, 9, "not_a_failure"),
    ):
        answer = graph.certify(actions, horizon)
        assert isinstance(answer, Unsolved) and answer.reason == reason


@pytest.mark.parametrize("limits", [{"max_states": 2}, {"max_steps": 6}])
def test_what_a_limit_leaves_open_is_not_guessed(limits: dict[str, Any]) -> None:
    """Two states are searched: the goal is not within two turns of the start; nothing else is known."""
    settings: dict[str, Any] = {"actions": [0, 1, 2], "key": "observation", **limits, **QUICK}
    with pytest.raises(CertifyError, match=f"no step succeeds until {next(iter(limits))} .* ended the search"):
        pivot.explore(Copied, **settings)
    graph = pivot.explore(Copied, success="goal-reward", **settings)
    assert graph.limit is not None and graph.need(0) is None
    assert graph.least[0] == 3 and np.isinf(graph.most[0])
    unknown = graph.certify(["0", "0"], 9)
    assert isinstance(unknown, Unsolved) and unknown.reason == "solver_limit"
    assert next(iter(limits)) in unknown.detail


class Timed(Copied):
    """A game whose steps each take a second of its own clock."""

    seconds: ClassVar[float] = 0.0

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        Timed.seconds += 1
        return super().step(action)


@pytest.mark.parametrize(("most", "is_enough"), [(100, False), (1_000, True)])
def test_checks_keep_to_max_seconds(most: int, is_enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stop within a walk when time is up, and refuse an environment that they saw too little of."""
    clock = SimpleNamespace(monotonic=lambda: Timed.seconds, process_time=float)
    for name in ("checks", "explore", "search"):
        monkeypatch.setattr(import_module(f"pivot.solvers.closure.{name}"), "time", clock)
    Timed.seconds = 0.0
    settings: dict[str, Any] = {"key": "observation", "clock": (), "checks": 1_000, "fresh": False}
    try:
        assert len(pivot.explore(Timed, max_seconds=most, **settings).successors) == 4 and is_enough
    except CertifyError as error:
        assert "of max_seconds, expected at least 8 of each" in str(error) and not is_enough
    assert Timed.seconds <= most + 64


class HiddenCounter(Copied):
    """The goal is blocked from the 30th step on, which random walks seldom survive."""

    def reward(self) -> float:
        return float(self.cell == 4 and self.count < 30)


class HiddenLoad(Copied):
    """Digging in cell 0 breaks the shovel, which the observation does not show."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if action == self.DIG and self.cell == 0:
            self.board[0] = 1
        elif action == self.RIGHT and self.board[0] and self.cell == 2:
            action = self.LEFT
        return super().step(action)


class SharedArray(HiddenLoad):
    """A game whose key shows the load, but whose copies share it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "SharedArray":
        return copy.copy(self)


class Slippery(Copied):
    """A game whose steps fail at random, by the seeded generator."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return super().step(self.LEFT if self.np_random.random() < 0.3 else action)


class RandomStart(Copied):
    """A game whose start differs from reset to reset."""

    dice: ClassVar[random.Random] = random.Random()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = self.dice.randrange(4)
        return self.cell, {}


class Forgetful(Restored):
    """Restores the cell without the load that decides whether the goal opens."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if action == self.DIG and self.cell == 0:
            self.board[0] = 1
        return super().step(self.LEFT if self.board[0] and self.cell == 2 else action)


class PaysOnce(Copied):
    """The reward of cell 2 is paid once."""

    def reward(self) -> float:
        if self.cell == 2 and not self.board[0]:
            self.board[0] = 1
            return -0.5
        return super().reward()


class TimeInState(Copied):
    """A game whose own time limit ends the episode as a failure."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or self.count >= 12, truncated, info


class Raises(Copied):
    """A game in which an action raises in one state."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self.cell == 2 and action == self.DIG:
            raise RuntimeError("no ground")
        return super().step(action)


class DrawsChange(Copied):
    """Drawing the third picture moves the agent."""

    draws = 0

    def render(self) -> Any:
        self.draws += 1
        if self.draws >= 3:
            self.cell = 0
        return np.zeros((4, 4, 3), np.uint8)


class GlobalCount(Copied):
    """A counter of the class outlives resets and opens the trap."""

    total: ClassVar[list[int]] = [0]

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.total[0] += 1
        return super().step(self.LEFT if self.total[0] > 40 and self.cell == 3 else action)


class EndsByHistory(Copied):
    """A game in which three visits of cell 0 end the episode."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self.board[0] += self.cell == 0
        return observation, reward, terminated or bool(self.board[0] >= 3), truncated, info


class LiveSnapshot(Restored):
    """Its snapshot is the state itself, which later steps change."""

    live: list[int]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        self.live = [0]
        return super().reset(seed=seed)

    def snapshot(self) -> Any:
        return self.live

    def restore(self, snapshot: Any) -> None:
        self.live, self.cell = snapshot, snapshot[0]

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        outcome = super().step(action)
        self.live[0] = self.cell
        return outcome


class FadingReward(Copied):
    """The reward of success shrinks with the steps, as MiniGrid's does."""

    def reward(self) -> float:
        return (1 - 0.9 * self.count / 100) * (self.cell == 4)


FAULTS = [
    *(HiddenCounter, HiddenLoad, Slippery, RandomStart, Forgetful, PaysOnce, TimeInState, Raises, DrawsChange),
    *(GlobalCount, EndsByHistory, FadingReward, SharedArray),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_refused(fault: type[Line]) -> None:
    """Catch a check that lets a hidden rule pass, with the few checks of a build's first level."""
    GlobalCount.total[0] = 0  # as in a new process
    with pytest.raises(CertifyError, match=r"lead to the same key|two calls of reset|raised RuntimeError"):
        pivot.explore(fault, key="observation", clock=(), checks=60)


@pytest.mark.parametrize("fault", FAULTS)
def test_without_settings_planted_faults_are_refused_or_searched_with_their_state(fault: type[Line]) -> None:
    """Without settings all attributes are the key: the search is refused, or its plan is a shortest one."""
    try:
        graph = pivot.explore(fault, max_states=120, checks=24, fresh=fault is GlobalCount)
    except CertifyError:
        return
    shortest = next(
        (length for length in range(1, 8) if any(wins(fault, plan) for plan in product(range(3), repeat=length))), None
    )
    assert graph.need(0) in (None, shortest)


def wins(kind: type[Line], plan: Sequence[int]) -> bool:
    """Play a plan from the start of a new environment; return whether its last step succeeds."""
    env = kind()
    env.reset(seed=0)
    for place, action in enumerate(plan):
        _, reward, terminated, _, info = env.step(action)
        won = bool(info.get("success", reward > 0))
        if terminated or won:
            return won and place == len(plan) - 1
    return False


def test_a_way_back_that_leads_elsewhere_gives_way_to_the_next() -> None:
    """Copies that share an array, and snapshots that later steps change; a way that the user chose is refused."""

    def key(env: Any) -> Any:
        return env.unwrapped.cell, int(env.unwrapped.board[0])

    quick: dict[str, Any] = {"clock": (), **QUICK}
    right, shared = (pivot.explore(kind, key=key, **quick) for kind in (HiddenLoad, SharedArray))
    assert (right.how, shared.how) == ("deepcopy", "replay")
    assert np.array_equal(right.successors, shared.successors)
    assert pivot.explore(LiveSnapshot, key="observation", **quick).how == "deepcopy"
    ways: tuple[tuple[type[Line], How], ...] = ((SharedArray, "deepcopy"), (LiveSnapshot, "snapshot"))
    for fault, how in ways:
        with pytest.raises(CertifyError, match="lead to the same key"):
            pivot.explore(fault, key=key, how=how, **quick)


def test_a_declared_clock_is_no_hidden_state() -> None:
    """Catch a counter that is taken for a state although it decides rewards alone."""
    graph = pivot.explore(FadingReward, **QUICK)
    assert graph.need(0) == 4 and graph.rewards[3, Line.RIGHT] == pytest.approx(0.991)
    with pytest.raises(CertifyError, match="clock: found ticks, expected attributes of FadingReward"):
        pivot.explore(FadingReward, clock=("ticks",))


def test_the_lake_of_gymnasium() -> None:
    graph = pivot.explore(lambda: gymnasium.make("FrozenLake-v1", is_slippery=False))
    assert len(graph.successors) == 11  # 16 cells, four holes and the goal
    assert graph.need(0) == 6
    with pytest.raises(CertifyError, match=r"a step drew a random number from P, .*: the environment is random"):
        pivot.explore(lambda: gymnasium.make("FrozenLake-v1", is_slippery=True))


@pytest.mark.parametrize(("name", "settings"), [("FrozenLake-v1", {"is_slippery": False}), ("Taxi-v4", {})])
def test_snapshots_of_toy_text_lead_where_a_replay_leads(name: str, settings: dict[str, Any]) -> None:
    """Catch a snapshot that leaves out a part of the state."""
    graphs = [
        pivot.explore(lambda: gymnasium.make(name, **settings), seed=3, how=how, checks=8)
        for how in ("snapshot", "replay")
    ]
    first, second = graphs
    assert (first.how, second.how) == ("snapshot", "replay") and len(first.successors) > 10
    assert np.array_equal(first.successors, second.successors) and np.array_equal(first.rewards, second.rewards)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"how": "snapshot"}, "how: found 'snapshot', expected one of deepcopy, replay"),
        ({"actions": []}, "actions: found none"),
        ({"actions": [1, 1]}, "actions: found equal names"),
        ({"key": lambda env: (_ for _ in ()).throw(CertifyError("no key"))}, "no key"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CertifyError, match=message):
        pivot.explore(Copied, **settings)
    with pytest.raises(CertifyError, match="env: found 7"):
        pivot.explore(7)


def test_a_clock_is_seen_although_random_plays_end_soon() -> None:
    """Half of all random plays fall into the trap at once."""

    class Short(FadingReward):
        def reset(self, **settings: Any) -> tuple[int, dict[str, Any]]:
            _, info = super().reset(**settings)
            self.cell = 1
            return 1, info

    assert pivot.explore(Short, **QUICK).need(0) == 3


class WonAtStart(Copied):
    """A game that is won at reset."""

    def reset(self, **settings: Any) -> tuple[int, dict[str, Any]]:
        return super().reset(**settings)[0], {"success": True}

    def info(self) -> dict[str, Any]:
        return {"success": self.cell == 4}


def test_in_a_game_that_is_won_at_reset_every_action_is_too_late() -> None:
    answer = pivot.explore(WonAtStart, key="observation", success="info.success", **QUICK).certify(["action_0"], 9)
    assert isinstance(answer, Unsolved) and "at step 0 follows the end of the episode" in answer.detail


def test_a_plan_that_a_limit_hides_may_be_as_short_and_earlier() -> None:
    bounds = {-2: (2.0, np.inf), -1: (2.0, 2.0)}
    for order, is_first in (([-2, -1], False), ([-1, -2], True)):
        graph: Any = SimpleNamespace(limit="max_states", successors=np.array([order]), bounds=bounds.get)
        assert Graph._is_first(graph, 0) is is_first
