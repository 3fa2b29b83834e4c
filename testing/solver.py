"""The contract of a solver, held against its environment's ``step()``: a solver has its own rules of the game.

Certificates are checked by brute play where that is possible. The oracle knows nothing but the environment: it
restores, steps and reads the state text until no new state turns up, and counts backwards from success.
"""

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from ..core.errors import LevelError
from ..environments.base import PivotEnv
from ..solvers.base import DistanceMap, ExactSolver, Unsolved
from .episodes import Failure, Labels, bad_cases

DAMAGED = 400
"""Levels to damage."""


class SolverContract(Labels):
    """Set the class attributes and inherit; every rule must hold for every failed play."""

    def replayed(self, failure: Failure, upto: int) -> PivotEnv:
        """Return the environment in its state before action ``upto``."""
        env, episode = self.env_type(failure.config), failure.episode
        env.draw_frames = False
        env.reset(options={"state": episode.initial_state, "instruction": episode.instruction})
        for name, payload in zip(episode.actions[:upto], episode.payloads, strict=False):
            env.step(env.encode_action(name, payload))
        return env

    def test_its_words_are_those_of_the_environment(self) -> None:
        assert self.solver_type.misfit() is None, "the class breaks its contract"
        solver, profile = self.solver_type, self.env_type.profile
        assert set(solver.modes) <= set(profile.failure_modes), "every mode must be a failure mode of the profile"
        assert len(set(solver.actions)) == len(solver.actions), "actions must differ"
        assert profile.unusable_action not in solver.actions, "the unusable action must not be among the solver's"

    def test_a_verdict_says_what_it_must(self) -> None:
        kind = self.solver_type
        for failure, verdict in self.labelled():
            episode, facts = failure.episode, verdict.certificate
            left, modes = episode.horizon - verdict.pivot_step, {verdict.failure_mode, *verdict.secondary_modes}
            assert 0 <= verdict.pivot_step < episode.num_steps, "the pivot must be a step of the episode"
            assert modes <= set(kind.modes), "a mode is not among the solver's modes"
            assert (facts.kind, facts.unit) == (kind.kind, kind.unit), "kind and unit must be those of the solver"
            assert facts.budget_before == left, "budget_before must be the turns left at the pivot"
            assert facts.budget_after == facts.budget_before - 1, "a step must cost one turn of the budget"
            assert set(verdict.feasible_actions) <= set(kind.actions), "a feasible action is not among the solver's"

    def test_answers_come_in_order_and_depend_on_nothing_else(self) -> None:
        cases = [failure.episode.case() for failure, _ in self.labelled()]
        verdicts = [verdict for _, verdict in self.labelled()]
        assert self.solver().certify(cases[::-1]) == verdicts[::-1], "verdicts must not depend on the order of cases"
        assert self.solver().certify(cases[:1]) == verdicts[:1], "a verdict must not depend on other cases"
        assert self.solver().certify([]) == [], "no cases must give no verdicts"

    def test_a_witness_wins(self) -> None:
        """The stored plan, played from the pivot state, succeeds in time; such an episode then gets no verdict."""
        for failure, verdict in self.labelled():
            if verdict.witness is None:
                continue
            env, facts = self.replayed(failure, verdict.pivot_step), verdict.certificate
            assert len(verdict.witness) <= facts.budget_before, "the witness takes more turns than are left"
            if facts.unit == "moves" and facts.kind == "exact":
                assert len(verdict.witness) == facts.before, "the witness must have the certified length"
            ends = [env.step(env.encode_action(name))[-1]["success"] for name in verdict.witness]
            assert ends == [False] * (len(ends) - 1) + [True], "the witness must succeed with its last action"
            case = failure.episode.case()
            if self.solver_type.kind == "exact":
                won = replace(case, actions=(*case.actions[: verdict.pivot_step], *verdict.witness), steps=())
                (answer,) = self.solver().certify([won])
                assert isinstance(answer, Unsolved), "an episode that was won must get no verdict"
                assert answer.reason == "not_a_failure"

    def test_what_is_no_episode_gets_no_verdict_and_raises_nothing(self) -> None:
        bad = bad_cases(self.failures()[0])
        for each, answer in zip(bad, self.solver().certify(bad), strict=True):
            assert isinstance(answer, Unsolved), f"a bad episode must get no verdict: {each}"
            assert answer.detail, "Unsolved needs a detail"

    def test_settings_are_stored_and_rebuild_it(self) -> None:
        solver = self.solver()
        assert type(solver)(**solver.config).config == solver.config, "the stored config must rebuild the solver"
        with pytest.raises(Exception, match="no_such_setting"):
            self.solver_type(no_such_setting=1)


class ExactSolverContract(SolverContract):
    """For a solver whose distances are exact: every state and every label of small levels, by brute play."""

    late_mode: ClassVar[str] = "timeout"
    """The mode of a failure in which the goal could still be reached, but too late."""
    lost_mode: ClassVar[str] = "deadlock"
    """The mode of a failure in which the goal could never be reached again."""
    alphabet: ClassVar[str] = ""
    """Symbols to damage levels with; nothing is damaged without."""

    def test_labels_are_those_of_brute_play(self) -> None:
        oracles: dict[tuple[str, str], StepOracle] = {}
        for failure, verdict in self.labelled():
            level = failure.episode.initial_state
            key = (failure.config.digest(), level)
            if key not in oracles:
                oracles[key] = StepOracle(self.replayed(failure, 0), level, self.solver_type.actions)
            right = self.expected(oracles[key], failure)
            stored = {name: getattr(verdict, name, getattr(verdict.certificate, name, None)) for name in right}
            assert stored == right, f"the label is not that of brute play: {(level, failure.episode.actions)}"

    def expected(self, oracle: "StepOracle", failure: Failure) -> dict[str, Any]:
        """Label one failed episode by the oracle alone."""
        texts, horizon = failure.texts, failure.episode.horizon
        needed = [oracle.distance.get(text) for text in texts]
        reach = [horizon + 1 if distance is None else distance for distance in needed]
        fatal = [t for t in range(len(texts) - 1) if reach[t + 1] > horizon - 1 - t]
        pivot = fatal[0] if fatal else len(texts) - 2
        after = [oracle.distance.get(text) for text in oracle.after[texts[pivot]]]
        actions = zip(self.solver_type.actions, after, strict=True)
        return {
            "pivot_step": pivot,
            "failure_mode": self.lost_mode if needed[pivot + 1] is None else self.late_mode,
            "fallback": not fatal,
            "infeasible_at_start": reach[0] > horizon,
            "feasible_actions": tuple(name for name, d in actions if d is not None and d <= horizon - 1 - pivot),
            "before": needed[pivot],
            "after": needed[pivot + 1],
            "reachable_after": needed[pivot + 1] is not None,
        }

    def distance_map(self, level: str) -> DistanceMap:
        """Ask the solver for the distances of a level."""
        solver = self.solver()
        assert isinstance(solver, ExactSolver), "the solver must be an ExactSolver"
        return solver.distance_map(level)

    def test_distances_are_those_of_brute_play(self) -> None:
        for settings in self.settings:
            env = self.env_type(self.env_type.config_type(**settings))
            env.draw_frames = False
            for seed in self.seeds:
                level = self.env_type.make_task(env.config, seed).initial_state
                oracle, distances = StepOracle(env, level, self.solver_type.actions), self.distance_map(level)
                for text, results in oracle.after.items():
                    right, after = oracle.distance.get(text), tuple(map(oracle.distance.get, results))
                    assert distances.distance(text) == right, f"the distance is not that of brute play: {text!r}"
                    assert right == 0 or distances.after_each_action(text) == after, (
                        f"nor those after actions: {text!r}"
                    )

    def test_what_the_environment_plays_the_solver_reads(self) -> None:
        """Damaged levels: refused with a LevelError, or playable, and then certifiable as well."""
        if not self.alphabet:
            pytest.skip("no alphabet to damage levels with")
        env = self.env_type()
        env.draw_frames = False
        played = 0
        for seed in range(DAMAGED):
            rng = random.Random(seed)
            cells = list(self.env_type.make_task(env.config, seed % 30).initial_state)
            for _ in range(rng.randrange(1, 4)):
                place = rng.randrange(len(cells))
                edit = rng.choice([[], [cells[place], rng.choice(cells)], *[[rng.choice(self.alphabet)]] * 4])
                cells[place : place + 1] = edit or ([] if len(cells) > 1 else cells)
            text = "".join(cells)
            try:
                canonical = self.env_type.canonical_state(text)
            except LevelError:
                with pytest.raises(LevelError):
                    env.reset(options={"state": text})
                continue
            played += 1
            assert self.env_type.canonical_state(canonical) == canonical, "a canonical text must stay as it is"
            env.reset(options={"state": text})
            assert env.state_text() == canonical, "the environment must show the canonical text"
            read = self.distance_map(text).distance(text), self.distance_map(canonical).distance(canonical)
            assert read[0] == read[1], "a level must have the distance of its canonical text"
        assert 0 < played < DAMAGED, f"{played} of {DAMAGED} damaged levels are playable; expected some, and not all"


class StepOracle:
    """Distances of every state that the environment can show after the level ``initial_state``."""

    def __init__(self, env: PivotEnv, initial_state: str, actions: tuple[str, ...]) -> None:
        """Play every action in every state."""
        self.after: dict[str, tuple[str, ...]] = {}
        came_from: dict[str, set[str]] = defaultdict(set)
        ended: dict[str, bool] = {}  # whether it was a success
        env.reset(options={"state": initial_state})
        waiting = [env.state_text()]
        while waiting:
            text = waiting.pop()
            if text in self.after:
                continue
            if text in ended:
                self.after[text] = (text,) * len(actions)  # an ended state stays as it is
                continue
            env.reset(options={"state": text})
            start, results = env.snapshot(), []
            for name in actions:
                env.restore(start)
                *_, terminated, _, info = env.step(env.encode_action(name))
                after = env.state_text()
                if terminated:
                    ended[after] = bool(info["success"])
                results.append(after)
                came_from[after].add(text)
                waiting.append(after)
            self.after[text] = tuple(results)
        self.distance: dict[str, int] = {}
        frontier, depth = [text for text, success in ended.items() if success], 0
        while frontier:
            new = [text for text in frontier if text not in self.distance]
            self.distance.update(dict.fromkeys(new, depth))
            frontier, depth = [before for text in new for before in came_from[text]], depth + 1
