"""Success in foreign environments, against a search of the tests' own that knows what each of them means by it."""

import copy
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
import pivot
import pytest
from pivot.core.admission import allowing
from pivot.core.errors import CertifyError, ConfigError
from pivot.environments.gym import GymConfig, GymEnv
from pivot.solvers.base import Case, Unsolved, Verdict
from pivot.solvers.closure.checks import Check
from pivot.solvers.closure.game import Game, Level
from pivot.solvers.closure.prover import GymProver
from pivot.solvers.closure.solver import ClosureSolver
from pivot.tests.environments import named_tracks, tracks
from pivot.tests.environments.tracks import CHANGING, Track

HORIZON = 8
MOVES = {f"action_{place}": place for place in range(3)}
QUICK: dict[str, Any] = {"checks": 16, "fresh": False}
CHECKED = (tracks.Coins, named_tracks.Named)
"""Tracks whose searches check as many states as those of users do, and which a run refuses, not Python alone."""
STEADY = [each for each in tracks.kinds() if each not in (*CHANGING, tracks.RaisingLate)]


@pytest.fixture(autouse=True)
def _code_of_the_tests() -> Iterator[None]:
    with allowing([named_tracks.__name__, tracks.__name__, __name__]):
        yield


@pytest.fixture
def unchecked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the replays that compare a searched graph with its game, which `Oracle` does; not for `CHECKED`."""
    if request.getfixturevalue("kind") not in CHECKED:
        monkeypatch.setattr(Check, "run", lambda _: 0)
        monkeypatch.setattr(import_module("pivot.solvers.closure.explore"), "compare", lambda *_: None)


def member(env: Track, place: int) -> Any:
    return copy.deepcopy([*env.members.values()][place])


class Oracle:
    """Turns to success from every state of a track, by playing every path again from the start."""

    def __init__(self, kind: type[Track], seed: int) -> None:
        self.kind, self.seed = kind, seed
        first, _ = self.play(())
        paths: dict[Any, tuple[int, ...]] = {first: ()}
        self.after: dict[Any, list[Any]] = {}
        for state in (waiting := [first]):
            self.after[state] = []
            for action in range(len(kind.members)):
                target, ended = self.play((*paths[state], action))
                self.after[state].append(target)
                if not ended and target not in paths:
                    paths[target] = (*paths[state], action)
                    waiting.append(target)

    def play(self, actions: Sequence[int]) -> tuple[Any, bool]:
        env = self.kind()
        env.reset(seed=self.seed)
        for place in actions:
            if not env.legal(place):
                continue
            terminated = env.step(member(env, place))[2]
            if env.truth() or terminated:
                return "success" if env.truth() else "end", True
        return env.state(), False

    def need(self, state: Any) -> float:
        """Fewest turns from a state, by rounds over all states."""
        needs: dict[Any, float] = {"success": 0}
        for turns in range(1, len(self.after) + 1):
            near = [each for each in self.after if any(needs.get(to) == turns - 1 for to in self.after[each])]
            needs |= {each: turns for each in near if each not in needs}
        return needs.get(state, float("inf"))

    def safe(self, actions: Sequence[int], step: int, names: Sequence[str]) -> list[str]:
        """Return the names of the actions before a step after which the goal is within reach."""
        env = self.kind()
        env.reset(seed=self.seed)
        for place in actions[:step]:
            env.step(member(env, place)) if env.legal(place) else None
        after = self.after[env.state()]
        return [
            name for place, name in enumerate(names) if env.legal(place) and self.need(after[place]) < HORIZON - step
        ]

    def label(self, actions: Sequence[int]) -> tuple[int, str, float, float] | None:
        """Return pivot, mode and needs of a failure within the horizon; None for a success."""
        states = [self.play(actions[:count])[0] for count in range(len(actions) + 1)]
        if "success" in states:
            return None
        needs = [self.need(state) for state in states]
        lost = [step for step in range(len(actions)) if needs[step + 1] > HORIZON - 1 - step]
        pivot_step = lost[0] if lost else len(actions) - 1
        mode = "deadlock" if needs[pivot_step + 1] == float("inf") else "timeout"
        return pivot_step, mode, needs[pivot_step], needs[pivot_step + 1]


def failures(kind: type[Track], seed: int, count: int) -> list[list[int]]:
    """Random episodes up to their end or the horizon, and mostly to the right."""
    choose, episodes = random.Random(seed), list[list[int]]()
    for _ in range(count):
        env, actions, ended = kind(), list[int](), False
        env.reset(seed=seed)
        while not ended and len(actions) < HORIZON:
            actions.append(choose.choice((0, 1, 1, 2) if len(episodes) % 2 else range(len(kind.members))))
            ended = env.legal(actions[-1]) and (env.step(member(env, actions[-1]))[2] or env.truth())
        episodes.append(actions)
    return episodes


def facts(verdict: Verdict) -> tuple[int, str, float, float]:
    certificate = verdict.certificate
    before, after = (float("inf") if each is None else each for each in (certificate.before, certificate.after))
    return verdict.pivot_step, verdict.failure_mode, before, after


def config_of(kind: type[Track], **settings: Any) -> GymConfig:
    settings = {"illegal": kind.illegal} | settings
    return GymConfig(id=f"Track{kind.__name__}-v0", package=kind.__module__, horizon=HORIZON, **settings)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", STEADY)
def test_a_game_is_labelled_and_proved_by_what_it_means_or_refused_with_the_rule_to_name(kind: type[Track]) -> None:
    """Catch a wrong meaning of success: a label, a rule in a refusal, or a reported step that the game contradicts."""
    if kind.default is not None:
        with pytest.raises(CertifyError, match=kind.default):
            pivot.explore(kind, seed=0, checks=2)
        if kind in CHECKED:
            with pytest.raises(ConfigError, match=kind.default):
                GymEnv.check_ready(config_of(kind))
    config = config_of(kind, success=kind.rule)
    table = GymEnv.check_ready(config)
    assert re.match(
        r"success \(.*\): on \d+ of \d+ steps of the levels of seeds 0 to 4; .*\n( +seed \d: .*\n?){5}$", table
    )
    env, solver, prover, labelled = GymEnv(config), ClosureSolver(), GymProver(), 0
    for seed in (0, 2):
        level = GymEnv.make_task(config, seed).initial_state
        oracle = Oracle(kind, seed)
        assert Level.read(level).success and Level.read(level).success_steps[0] > 0
        for actions in failures(kind, seed, 8):
            names, expected = [[*kind.members][each] for each in actions], oracle.label(actions)
            env.reset(options={"state": level})
            infos = [env.step(env.encode_action(name))[4] for name in names]
            assert [each["success"] for each in infos] == [False] * (len(actions) - 1) + [expected is None]
            case = Case(level, names, HORIZON)
            (answer,) = solver.certify([case])
            if expected is None:
                assert isinstance(answer, Unsolved) and answer.reason == "not_a_failure"
                continue
            assert isinstance(answer, Verdict), answer
            assert facts(answer) == expected
            assert set(answer.feasible_actions) == set(oracle.safe(actions, answer.pivot_step, [*kind.members]))
            assert prover.prove(case, answer).holds
            labelled += 1
    assert labelled > 4


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", CHANGING)
def test_a_level_that_contradicts_the_first_ones_has_no_label(kind: type[Track]) -> None:
    config = config_of(kind)
    GymEnv.check_ready(config)
    early, late = (GymEnv.make_task(config, seed).initial_state for seed in (0, 6))
    (right,) = ClosureSolver().certify([Case(early, ["action_1", "action_1", "action_2"], HORIZON)])
    assert isinstance(right, Verdict)
    assert GymProver().prove(Case(early, ["action_1", "action_1", "action_2"], HORIZON), right).holds
    case = Case(late, ["action_1", "action_1", "action_2"], HORIZON)
    (answer,) = ClosureSolver().certify([case])
    assert isinstance(answer, Unsolved)
    assert re.search("first level|pay a positive reward|no step of this level shows", answer.detail)
    proof = GymProver().prove(case, right)
    assert any("does not hold in the level" in each for each in proof.problems)


@pytest.mark.parametrize(
    ("kind", "illegal", "message"),
    [
        (tracks.Masked, "refuse", r"info\['action_mask'\] excludes actions; .* gym.illegal=invalid"),
        (tracks.Pairs, "refuse", r"info\['action_mask'\] excludes actions; .* gym.illegal=invalid"),
        (tracks.Raising, "refuse", r"step.* of Raising raised ValueError: not here.*gym.illegal=invalid"),
        (tracks.RaisingLate, "invalid", "raised ValueError: .*, and changed the state in .*mistakes: 0 and 1"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_illegal_actions_without_a_meaning_end_a_run_before_it_starts(
    kind: type[Track], illegal: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        GymEnv.check_ready(config_of(kind, illegal=illegal))


def test_an_illegal_action_refuses_its_episode_or_wastes_its_turn() -> None:
    graph = pivot.explore(tracks.Masked, checks=16)
    refused = graph.certify(["action_0", "action_1"], HORIZON)
    assert isinstance(refused, Unsolved) and "'action_0' at step 0 is illegal there" in refused.detail
    expected = ([-4, 1, -4], ["illegal", "state", "illegal"])
    assert (graph.successors[0].tolist(), graph.frame()["outcome"].to_list()[:3]) == expected
    env = pivot.Certified(tracks.Masked(), horizon=HORIZON, illegal="invalid", **QUICK)
    _, info = env.reset(seed=0)
    assert [int(each) for each in info["safe_actions"]] == [1]
    observation, reward, terminated, _, info = env.step(0)
    assert (observation, reward, terminated, info["need"], info["slack"]) == (0, 0.0, False, 5, 2)
    with pytest.raises(CertifyError, match="'action_0' at step 0 is illegal"):
        strict = pivot.Certified(tracks.Masked(), horizon=HORIZON, **QUICK)
        strict.reset(seed=0)
        strict.step(0)


@pytest.mark.parametrize("kind", [tracks.Raising, tracks.RaisingLate])
def test_a_turn_is_wasted_if_an_action_raises_and_changes_nothing(kind: type[Track]) -> None:
    settings = dict(config_of(kind, illegal="invalid").game) | {"clock": (), "seed": 0, "actions": MOVES}
    (game := Game(kind(), Level(**settings))).reset()
    with nullcontext() if kind is tracks.Raising else pytest.raises(ValueError, match="not here"):
        assert game.step("action_0") is None


@pytest.mark.parametrize("mask", ["yes", np.ones(2), np.full(3, 7), (np.ones(3), np.ones(1)), [1, 2, 3]])
def test_masks_that_do_not_fit_the_actions_are_refused(mask: Any) -> None:
    class Odd(tracks.Track):
        def mask(self) -> dict[str, Any]:
            return {"action_mask": mask}

    with pytest.raises(CertifyError, match=r"info\['action_mask'\]: found .*, expected 0 or 1 for each of the numbers"):
        pivot.explore(Odd)


class Forgetful(tracks.Track):
    """A game whose reset forgets a door that a step opens, without which the goal is out of reach."""

    opened = False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        if action == tracks.DIG:
            self.opened = True
        return super().step(action if self.opened or action != tracks.RIGHT else tracks.DIG)


@pytest.mark.parametrize("env", [Forgetful, Forgetful()])
def test_a_search_does_not_begin_with_what_random_play_left_behind(env: Any) -> None:
    with pytest.raises(CertifyError, match="two calls of reset with seed 0 differ"):
        pivot.explore(env)


class Counting(tracks.Track):
    """A game that counts turns twice, as an integer and as a float; the goal closes after turn 6."""

    turn, time = 0, 0.0

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        self.turn, self.time = 0, 0.0
        return super().reset(**settings)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        self.turn, self.time = self.turn + 2, self.time + 1.5
        return super().step(action)

    def terminated(self) -> bool:
        return self.event == tracks.TRAP or self.reward(new=False) > 0

    def reward(self, new: bool) -> Any:
        return float(self.event == tracks.GOAL and self.turn + self.time <= 21)


class Shrinking(Counting):
    """The goal pays less each turn, and nothing from turn 6 on, so that one success alone pays."""

    def terminated(self) -> bool:
        return self.event != tracks.WALK

    def reward(self, new: bool) -> Any:
        return (12 - self.turn) / 12 if self.event == tracks.GOAL else 0.0


class ShrinkingUnseen(tracks.Track):
    """The shrinking game without a counting attribute, so that no state repeats."""

    times = (0,)

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        self.times = (0,)
        return super().reset(**settings)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        self.times = (self.times[0] + 1,)
        return super().step(action)

    def reward(self, new: bool) -> Any:
        return max(0.0, (6 - self.times[0]) / 6) if self.event == tracks.GOAL else 0.0


class Bits(tracks.Track):
    """A game whose actions are bits: each step keeps and clears the array."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.MultiBinary(2)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        place = int(action[0]) + 2 * int(action[1])
        action[:] = 0
        return super().step(place)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Shrinking, "the reward of an end shrinks with turn, until it is none.*'terminated and reward>0'"),
        (ShrinkingUnseen, "no state repeats, and what ends after turn 5 pays nothing, .*terminated if every end"),
    ],
)
def test_a_goal_reward_that_does_not_mean_success_is_refused(kind: type[Track], message: str) -> None:
    with pytest.raises(CertifyError, match=message):
        pivot.explore(kind, horizon=HORIZON, **QUICK)


def test_states_that_never_repeat_are_searched_until_the_horizon_with_every_clock() -> None:
    graph = pivot.explore(Counting, horizon=HORIZON, max_states=2_000, **QUICK)
    assert graph.limit == f"horizon = {HORIZON}"
    late = graph.certify([f"action_{each}" for each in (0, 1, 0, 1, 0, 1, 1, 1)], HORIZON)
    assert isinstance(late, Verdict) and (late.pivot_step, late.failure_mode) == (2, "out_of_budget")


def test_bits_are_actions_that_a_step_may_change() -> None:
    graph = pivot.explore(Bits, checks=16)
    assert list(graph.actions) == ["action_0_0", "action_0_1", "action_1_0", "action_1_1"]
    assert (graph.need(0), graph.safe_actions(0, 5)) == (5, ("action_1_0",))


@pytest.mark.parametrize("rule", ["success", "reward", "reward>", "terminated and", "info.", "reward>=a lot", "a:b:c"])
def test_rules_that_no_one_knows_are_refused(rule: str) -> None:
    with pytest.raises(CertifyError, match="expected one of terminated, reward>=X"):
        pivot.explore(tracks.Paid, success=rule)
    with pytest.raises(ValueError, match="expected one of terminated, reward>=X"):
        config_of(tracks.Paid, success=rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (f"{tracks.__name__}:no_such", "a function that can be imported"),
        (f"{__name__}:broken", "raised KeyError"),
        (f"{__name__}:unsure", "returned 1, expected True or False"),
    ],
)
def test_predicates_that_cannot_judge_are_refused(rule: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"gym.success: .*{message}"):
        GymEnv.check_ready(config_of(tracks.Paid, success=rule))
    with pytest.raises(CertifyError, match=message):
        pivot.explore(tracks.Paid, success=rule)


def broken(env: Any, reward: float, terminated: bool, info: Any) -> bool:
    return info["no such"]


def unsure(env: Any, reward: float, terminated: bool, info: Any) -> int:
    return 1
