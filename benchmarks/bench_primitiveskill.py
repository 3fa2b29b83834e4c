"""PrimitiveSkill: seconds per primitive and per picture, and the levels that the perfect player solves.

The player sees the scene, not the picture, and plays the same levels in every installed backend. Embedded rows count
processor seconds of one core; ManiSkill works in a separate process, so its rows count elapsed seconds.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import mean, median
from time import perf_counter, process_time

from pivot.benchmarks.harness import Row
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig, PrimitiveSkillEnv
from pivot.environments.primitiveskill.expert import expert_action
from pivot.environments.primitiveskill.state import EMBEDDED, MANISKILL
from pivot.environments.primitiveskill.tasks import KINDS, Scene, TaskKind
from pivot.environments.primitiveskill.view.picture import draw_scene
from pivot.environments.primitiveskill.world import CAMERAS

SEEDS = 50
PICTURE_SECONDS = 0.005
PRIMITIVE_SECONDS = {EMBEDDED: 0.001, MANISKILL: 1.0}
"""Allowed mean of a primitive, without pictures."""
ROUNDS = 5  # neighbours on a busy machine take cache and clock away, but not in every round


@dataclass
class Played:
    """Results of playing one task."""

    solved: int = 0
    most_turns: int = 0
    seconds: list[float] = field(default_factory=list)
    """Seconds of each turn."""
    primitives: int = 0
    scenes: list[Scene] = field(default_factory=list)
    """Scene before each turn, and the last one."""


def rows() -> Iterator[Row]:
    """Yield one row per claim; those of ManiSkill only if it is installed."""
    played = _played(EMBEDDED, process_time)
    yield from _backend_rows(EMBEDDED, played)
    yield _picture(played)
    if find_spec("mani_skill") is not None:
        yield from _backend_rows(MANISKILL, _played(MANISKILL, perf_counter))


def _played(backend: str, clock: Callable[[], float]) -> dict[str, Played]:
    """Let the perfect player play the levels of the seeds in every task."""
    results = {}
    for task in KINDS:
        result = results[task] = Played()
        env = PrimitiveSkillEnv(PrimitiveSkillConfig.model_validate({"backend": backend, "tasks": (task,)}))
        env.draw_frames = False
        for seed in range(SEEDS):
            _play(env, seed, result, clock)
        env.close()
    return results


def _play(env: PrimitiveSkillEnv, seed: int, result: Played, clock: Callable[[], float]) -> None:
    _, info = env.reset(seed=seed)
    turns, over = 0, False
    while not over:
        state = env.state
        result.scenes.append(state.scene)
        action = expert_action(state.kind, state.scene)
        start = clock()
        _, _, success, truncated, info = env.step(action)
        result.seconds.append(clock() - start)
        result.primitives += 1 + action.count("|")
        turns, over = turns + 1, success or truncated
    result.scenes.append(env.state.scene)
    result.solved += info["success"]
    result.most_turns = max(result.most_turns, turns)


def _backend_rows(backend: str, played: dict[str, Played]) -> Iterator[Row]:
    solved, levels = sum(result.solved for result in played.values()), SEEDS * len(played)
    seconds = sum(sum(result.seconds) for result in played.values())
    primitives = sum(result.primitives for result in played.values())
    turns = sum(len(result.seconds) for result in played.values())
    one, limit = seconds / primitives, PRIMITIVE_SECONDS[backend]
    each = ", ".join(f"{task} {1000 * sum(r.seconds) / r.primitives:.3g}" for task, r in played.items())
    where = "the embedded table" if backend == EMBEDDED else "ManiSkill"
    yield Row(
        name=f"PrimitiveSkill levels solved by the perfect player, {where}",
        ours=solved,
        baseline=levels,
        ratio=solved / levels,
        required=1.0,
        passed=solved == levels,
        note="solved, most turns: "
        + ", ".join(f"{task} {result.solved}, {result.most_turns}" for task, result in played.items())
        + f" (of {SEEDS} each, 6 turns)",
    )
    yield Row(
        name=f"a primitive, {where}, without pictures",
        ours=one,
        baseline=limit,
        ratio=limit / one,
        required=1.0,
        passed=one <= limit,
        note=f"seconds; ms by task: {each}; {_rate(1 / one)} primitives, {_rate(turns / seconds)} turns per second",
    )


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def _picture(played: dict[str, Played]) -> Row:
    views: list[tuple[TaskKind, Scene]] = []
    for task, result in played.items():
        views += ((KINDS[task], scene) for scene in random.Random(0).sample(result.scenes, 15))
    for kind, scene in views:
        draw_scene(kind, scene, CAMERAS["near"][kind.name])
    taken = [float("inf")] * len(views)
    for _ in range(ROUNDS):
        for number, (kind, scene) in enumerate(views):
            start = process_time()
            draw_scene(kind, scene, CAMERAS["near"][kind.name])
            taken[number] = min(taken[number], process_time() - start)
    ours = mean(taken)
    return Row(
        name="a view of the tabletop, 420x420",
        ours=ours,
        baseline=PICTURE_SECONDS,
        ratio=PICTURE_SECONDS / ours,
        required=1.0,
        passed=ours <= PICTURE_SECONDS,
        note=f"processor seconds on one core, least of {ROUNDS} rounds; "
        f"slowest {1000 * max(taken):.1f}, median {1000 * median(taken):.1f} ms",
    )
