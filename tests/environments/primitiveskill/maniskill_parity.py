"""Comparison of the embedded table with ManiSkill: the same primitives from the same start, compared after each one.

A sequence is what the perfect player does on the embedded table when it is disturbed: every coordinate is off by up to
a few millimetres (the amplitude is drawn for each sequence, up to 15), in some turns it takes one thing for another,
and in some the primitives come in the wrong order. What is compared is what an episode is scored by: the stages that
are achieved so far, and success.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pivot.environments.primitiveskill.actions import Primitive, read_primitives
from pivot.environments.primitiveskill.expert import expert_action
from pivot.environments.primitiveskill.levels import draw_level
from pivot.environments.primitiveskill.state import EMBEDDED, MANISKILL, SkillState
from pivot.environments.primitiveskill.table.tabletop import TabletopWorld
from pivot.environments.primitiveskill.tasks import Scene, TaskKind, reached, update_achieved
from pivot.environments.primitiveskill.world import World

MOST_NOISE = 15
"""Largest amplitude of the noise on coordinates, millimetres."""
CONFUSED, HASTY = 0.2, 0.2
"""Shares of turns that confuse two objects, and of turns with their primitives in the wrong order."""
HORIZON = 6


@dataclass(frozen=True, slots=True)
class Moment:
    """State after a primitive."""

    scene: Scene
    achieved: tuple[bool, ...]
    success: bool

    @property
    def outcome(self) -> tuple[tuple[bool, ...], bool]:
        """Facts by which an episode is scored."""
        return self.achieved, self.success


@dataclass(frozen=True, slots=True)
class Run:
    """A start and the primitives that were executed from it, turn by turn."""

    start: SkillState
    turns: tuple[tuple[Primitive, ...], ...]

    @property
    def primitives(self) -> list[Primitive]:
        """All primitives in the order of execution."""
        limits = self.start.kind.workspace
        return [primitive.clipped(limits) for turn in self.turns for primitive in turn]


@dataclass
class Report:
    """Agreement of the two worlds in a task."""

    task: str
    sequences: int = 0
    primitives: int = 0
    equal: int = 0
    succeeded: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of the sequences that agree after every primitive."""
        return self.equal / self.sequences if self.sequences else 0.0


def level(task: str, seed: int, backend: str) -> SkillState:
    """Return the start of a seed."""
    state = draw_level(random.Random(f"{task}-{seed}"), backend, (task,))
    assert state is not None, f"no layout for {task}-{seed}"
    return state


def follow(world: World, start: SkillState, primitives: Sequence[Primitive]) -> Iterator[Moment]:
    """Yield the moment after every primitive, until the goal is reached."""
    world.load(start)
    achieved = start.achieved
    for primitive in primitives:
        world.execute(primitive)
        achieved = update_achieved(start.kind, world.scene, achieved)
        success = reached(start.kind, world.scene)
        yield Moment(world.scene, achieved, success)
        if success:
            return


def disturbed_run(task: str, seed: int) -> Run:
    """Return what the disturbed player does on the embedded table; see the module docstring."""
    start, world = level(task, seed, EMBEDDED), TabletopWorld()
    rng = random.Random(f"player-{task}-{seed}")
    noise = rng.uniform(0, MOST_NOISE)
    world.load(start)
    turns: list[tuple[Primitive, ...]] = []
    while len(turns) < HORIZON and not reached(start.kind, world.scene):
        turn = _disturbed_turn(rng, start.kind, world.scene, int(noise))
        turns.append(turn)
        for primitive in turn:
            world.execute(primitive.clipped(start.kind.workspace))
            if reached(start.kind, world.scene):
                break
    return Run(start, tuple(turns))


def _disturbed_turn(rng: random.Random, kind: TaskKind, scene: Scene, noise: int) -> tuple[Primitive, ...]:
    confused, hasty = rng.random() < CONFUSED, rng.random() < HASTY
    if confused and len(kind.things) > 1:
        one, other = rng.sample(kind.things, 2)
        places = dict(scene.positions)
        places[one], places[other] = places[other], places[one]
        scene = Scene(places, scene.in_hand, scene.opening)
    primitives = read_primitives(expert_action(kind, scene))[0]
    if hasty:
        primitives = primitives[::-1]
    return tuple(
        Primitive(primitive.name, tuple(value + rng.randint(-noise, noise) for value in primitive.arguments))
        for primitive in primitives
    )


def compare(run: Run, table: World, simulator: World) -> tuple[list[Moment], list[Moment], int | None]:
    """Return both backends' moments, and the index of the first primitive after which their outcomes differ."""
    start = run.start
    real = SkillState(MANISKILL, start.task, start.scene, start.achieved)
    ours = list(follow(table, start, run.primitives))
    theirs = list(follow(simulator, real, run.primitives))
    for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one.outcome != other.outcome:
            return ours, theirs, index
    return ours, theirs, None


def measure(task: str, seeds: Sequence[int], simulator: World) -> Report:
    """Compare the sequences of some seeds."""
    report, table = Report(task), TabletopWorld()
    for seed in seeds:
        run = disturbed_run(task, seed)
        ours, theirs, index = compare(run, table, simulator)
        report.sequences += 1
        report.primitives += len(ours)
        report.equal += index is None
        report.succeeded += ours[-1].success
        if index is not None:
            last = run.primitives[index], ours[index], theirs[index]
            report.differences.append(f"{task} seed {seed}: {run.start.scene}; after {index} primitives {last}")
    return report
