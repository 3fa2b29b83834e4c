"""Solvers have their own rules of the game; here they are held against the environment's ``step()``.

The oracle knows nothing but the environment: it restores, steps and reads the state text until no new state turns up,
and counts backwards from success. What it finds must be what the solver says about every state, and about every label
of random failed episodes: pivot, mode, flags, witness, feasible actions.
"""

import random
from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest
from gymnasium.error import ResetNeeded
from pivot import plugins
from pivot.environments.base import PivotEnv
from pivot.errors import LevelError
from pivot.solvers.base import Case, ExactSolver, Verdict

CASES = [
    ("sokoban", {}, 30),
    ("sokoban", {"boxes": 2, "max_solution": 12, "horizon": 20}, 3),
    ("frozenlake", {}, 30),
    ("frozenlake", {"size": 6, "frozen_probability": 0.6, "horizon": 14, "cell": 16}, 10),
]


class StepOracle:
    """Distances of every state that the environment can show after the level ``initial_state``."""

    def __init__(self, env: PivotEnv, initial_state: str, actions: tuple[str, ...]) -> None:
        self.after: dict[str, tuple[str, ...]] = {}
        came_from: dict[str, set[str]] = defaultdict(set)
        solved: list[str] = []
        env.reset(options={"state": initial_state})
        waiting = [env.state_text()]
        while waiting:
            text = waiting.pop()
            if text in self.after:
                continue
            _, info = env.reset(options={"state": text})
            if info["success"]:
                solved.append(text)
            start, results = env.snapshot(), []
            for name in actions:
                env.restore(start)
                with suppress(ResetNeeded):  # a finished state stays as it is
                    env.step(env.encode_action(name))
                after = env.state_text()
                results.append(after)
                came_from[after].add(text)
                waiting.append(after)
            self.after[text] = tuple(results)
        self.distance: dict[str, int] = {}
        frontier, depth = solved, 0
        while frontier:
            new = [text for text in frontier if text not in self.distance]
            self.distance.update(dict.fromkeys(new, depth))
            frontier, depth = [before for text in new for before in came_from[text]], depth + 1


def random_failures(env: PivotEnv, level: str, rng: random.Random, count: int) -> list[tuple[list[str], list[str]]]:
    """Play; return actions and visited state texts of the episodes that failed."""
    names = [env.profile.unusable_action, *(name for name in ("up", "down", "left", "right") for _ in range(3))]
    failures = []
    for _ in range(count):
        env.reset(options={"state": level})
        actions, texts, over, success = [], [env.state_text()], False, False
        while not over:
            actions.append(rng.choice(names))
            _, _, terminated, truncated, info = env.step(env.encode_action(actions[-1]))
            texts.append(env.state_text())
            over, success = terminated or truncated, info["success"]
        if not success:
            failures.append((actions, texts))
    return failures


def expected(oracle: StepOracle, solver: ExactSolver, texts: list[str], horizon: int) -> dict[str, Any]:
    """Label one failed episode from the oracle alone (spec sections 1 and 3)."""
    far = horizon + 1
    needed = [oracle.distance.get(text) for text in texts]
    reach = [far if distance is None else distance for distance in needed]
    fatal = [t for t in range(len(texts) - 1) if reach[t + 1] > horizon - 1 - t]
    pivot = fatal[0] if fatal else len(texts) - 2
    budget = horizon - 1 - pivot
    distances = [oracle.distance.get(after) for after in oracle.after[texts[pivot]]]
    return {
        "pivot_step": pivot,
        "failure_mode": "deadlock" if needed[pivot + 1] is None else "timeout",
        "fallback": not fatal,
        "infeasible_at_start": reach[0] > horizon,
        "feasible_actions": tuple(
            name for name, d in zip(solver.actions, distances, strict=True) if d is not None and d <= budget
        ),
        "before": needed[pivot],
        "after": needed[pivot + 1],
    }


@pytest.mark.parametrize(("name", "settings", "levels"), CASES)
def test_solver_and_environment_agree(name: str, settings: dict[str, Any], levels: int) -> None:
    env_type: type[PivotEnv] = plugins.load("environments", name)
    solver = plugins.load("solvers", name)()
    assert isinstance(solver, ExactSolver)
    env = env_type.from_settings(settings)
    env.draw_frames = False
    horizon, labels = env.config.horizon, 0
    for seed in range(levels):
        level = env_type.make_task(env.config, seed).initial_state
        oracle = StepOracle(env, level, solver.actions)
        distances = solver.distance_map(level)
        for text, results in oracle.after.items():
            assert distances.distance(text) == oracle.distance.get(text), text
            if oracle.distance.get(text) != 0:
                assert distances.after_each_action(text) == tuple(map(oracle.distance.get, results)), text
        failures = random_failures(env, level, random.Random(seed), 10)
        verdicts = solver.certify([Case(level, actions, horizon) for actions, _ in failures])
        for verdict, (actions, texts) in zip(verdicts, failures, strict=True):
            assert isinstance(verdict, Verdict), verdict
            found = {field: getattr(verdict, field, None) for field in expected(oracle, solver, texts, horizon)}
            found |= {"before": verdict.certificate.before, "after": verdict.certificate.after}
            assert found == expected(oracle, solver, texts, horizon), (level, actions)
            check_witness(env, level, actions, verdict)
            labels += 1
    assert labels > 3 * levels


@pytest.mark.parametrize(("name", "alphabet"), [("sokoban", "# @+$*.-_\nx"), ("frozenlake", "SFFFHHHG\n@1 ")])
def test_what_an_environment_plays_its_solver_reads(name: str, alphabet: str) -> None:
    """Damaged levels: refused with a LevelError, or playable, and then certifiable as well."""
    env_type: type[PivotEnv] = plugins.load("environments", name)
    solver, env = plugins.load("solvers", name)(), env_type()
    env.draw_frames = False
    played = refused = 0
    for seed in range(600):
        rng = random.Random(seed)
        cells = list(env_type.make_task(env.config, seed % 30).initial_state)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(cells))
            edit = rng.choice([[], [cells[place], rng.choice(cells)], *[[rng.choice(alphabet)]] * 4])
            cells[place : place + 1] = edit
        text = "".join(cells)
        try:
            canonical = env_type.canonical_state(text)
        except LevelError:
            refused += 1
            with pytest.raises(LevelError):
                env.reset(options={"state": text})
            continue
        played += 1
        assert env_type.canonical_state(canonical) == canonical
        env.reset(options={"state": text})
        assert env.state_text() == canonical
        assert solver.distance_map(text).distance(text) == solver.distance_map(canonical).distance(canonical)
    assert played > 60
    assert refused > 60


def check_witness(env: PivotEnv, level: str, actions: list[str], verdict: Verdict) -> None:
    """The stored plan, played from the pivot state, must succeed in as many moves as the certificate says."""
    if verdict.infeasible_at_start:
        return
    env.reset(options={"state": level})
    for name in actions[: verdict.pivot_step]:
        env.step(env.encode_action(name))
    assert verdict.witness is not None
    assert len(verdict.witness) == verdict.certificate.before
    infos = [env.step(env.encode_action(name))[-1] for name in verdict.witness]
    assert [info["success"] for info in infos] == [False] * (len(infos) - 1) + [True]
