"""The sound bound of PrimitiveSkill: examples, a second implementation, a world of blocks, and the embedded table."""

import random
from collections import Counter, deque
from collections.abc import Iterator

import pytest
from pivot.core.errors import LevelError
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig, PrimitiveSkillEnv
from pivot.environments.primitiveskill.expert import expert_action
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.solvers.base import Case, Verdict, prove
from pivot.solvers.primitiveskill.planner import fewest_turns, read_observation
from pivot.solvers.primitiveskill.solver import PrimitiveSkillSolver
from pivot.tests.primitiveskill_episodes import STAGES, log, observation, random_places, wild_action

Point = tuple[int, int, int]
A, B, C = (0, 0), (100, 100), (-90, -90)
HOME = (-150, 0)


def at(spot: tuple[int, int], z: int) -> Point:
    return (*spot, z)


@pytest.mark.parametrize(
    ("red", "green", "purple", "turns"),
    [
        (at(A, 20), at(B, 20), at(C, 20), 2),  # red up, onto green, purple up, onto red
        (at(B, 60), at(B, 20), at(C, 20), 1),  # purple up, onto red
        (at(A, 20), at(B, 20), at(A, 60), 1),  # red up with purple on it, onto green
        (at(C, 60), at(B, 20), at(C, 20), 2),  # red is on purple: away first, or set down on green
        (at(HOME, 350), at(B, 20), at(C, 20), 2),  # red is let go on green, but purple is far from there
        (at(HOME, 350), at(C, 20), at((-50, -90), 20), 1),  # the hand that takes purple may let red go on green
        (at(HOME, 350), at(B, 20), at(HOME, 390), 1),
        (at(B, 60), at(B, 20), at(HOME, 350), 1),
        (at(A, 20), at(B, 20), at(HOME, 350), 1),  # purple may be let go on red, which is then taken up
        (at(A, 20), at(A, 60), at(A, 100), 1),  # the hand that takes red from below may shift all three
        (at(B, 60), at(B, 20), at(B, 100), 1),  # within the rounding it stands: a play that goes on needs a turn
        (at(A, 60), at(B, 20), at(C, 20), 1),  # red floats: no bound is known
        (at(A, 45), at(B, 20), at(C, 20), 2),
    ],
)
def test_towers_by_hand(red: Point, green: Point, purple: Point, turns: int) -> None:
    assert fewest_turns("stack", observation("stack", red, green, purple)) == turns


@pytest.mark.parametrize(
    ("z", "opening", "turns"),
    [(35, 180, 2), (35, 142, 2), (35, 141, 1), (35, 90, 1), (480, 180, 1), (145, 180, 1), (97, 180, 2), (98, 180, 1)],
)
def test_the_drawer_by_hand(z: int, opening: int, turns: int) -> None:
    assert fewest_turns("drawer", observation("drawer", (-120, 150, z), opening=opening)) == turns


@pytest.mark.parametrize("task", ["align", "place"])
def test_cubes_can_always_be_pushed_in_a_turn(task: str) -> None:
    for red in (at(A, 20), at(C, 60), at(HOME, 350)):
        assert fewest_turns(task, observation(task, red, at(C, 20))) == 1


GOOD = observation("stack", at(A, 20), at(B, 20), at(C, 20))


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD + "\n",
        GOOD.replace("Object", "object"),
        GOOD.replace("(0,0,20)", "(0,0)"),
        GOOD.replace("(0,0,20)", "(0,0,2.5)"),
        GOOD.replace("(0,0,20)", "(0,0,020)"),
        GOOD.replace("(0,0,20)", "(0,0,9999999)"),
        GOOD.replace("(0,0,20),", ""),
        GOOD.replace("a cube has sides of 40 mm", "the drawer is open by 180 of 300 mm"),
        observation("drawer", (0, 0, 35)),
        observation("place", at(A, 20), at(B, 20)),
        "Object positions in mm: [" * 10_000,
    ],
)
def test_what_does_not_say_where_things_are_gives_no_bound(text: str) -> None:
    with pytest.raises(LevelError, match="stack"):
        read_observation("stack", text)
    case = log("stack", [("pick(1,2,3)", 3)] * 6)
    (answer,) = PrimitiveSkillSolver().certify(
        [Case(case.initial_state, case.actions, 6, case.steps, [GOOD] * 5 + [text])]
    )
    assert isinstance(answer, Verdict) and answer.certificate.reference_pivot is None
    assert prove("primitiveskill", case, answer).problems == ()


def test_two_implementations_agree() -> None:
    """The planner searches backward over all states, the prover plays forward; each verdict holds both together."""
    rng = random.Random(4)
    actual = Counter[int]()
    for _ in range(2500):
        task = rng.choice(["stack", "stack", "stack", "drawer"])
        shown = observation(task, *random_places(rng, task), opening=rng.choice((0, 90, 141, 142, 180)))
        case = log(task, [("pick(1,2,3)", STAGES[task])] * 6)
        case = Case(case.initial_state, case.actions, 6, case.steps, [shown] * 6)
        (answer,) = PrimitiveSkillSolver().certify([case])
        assert isinstance(answer, Verdict)
        assert prove("primitiveskill", case, answer).problems == (), shown
        actual[fewest_turns(task, shown)] += 1
    assert min(actual[1], actual[2]) > 300


# A world of blocks: towers of whole blocks, which only pick and place move. No play there can beat the bound.

Blocks = tuple[tuple[str, ...], ...]
SPOTS = ((-80, -150), (0, 0), (80, 150))


World = tuple[Blocks, tuple[str, ...]]
"""The piles on three spots, and what hangs in the hand."""


def block_moves(world: World) -> Iterator[World]:
    piles, in_hand = world
    if in_hand:
        for spot in range(3):
            yield tuple(pile + in_hand if index == spot else pile for index, pile in enumerate(piles)), ()
        return
    for spot, pile in enumerate(piles):
        for height in range(len(pile)):
            left = tuple(pile[:height] if index == spot else other for index, other in enumerate(piles))
            yield left, pile[height:]


def searched(start: World) -> dict[World, int]:
    """The fewest moves from a world to every other, in order of their number."""
    actual, queue = {start: 0}, deque([start])
    while queue:
        world = queue.popleft()
        for after in block_moves(world):
            if after not in actual:
                actual[after] = actual[world] + 1
                queue.append(after)
    return actual


def block_distances() -> dict[World, int]:
    """The fewest moves to the tower from every world, by a search from each."""
    worlds = searched(((("red",), ("green",), ("purple",)), ()))
    return {
        world: next(moves for (piles, in_hand), moves in searched(world).items() if not in_hand and DONE in piles)
        for world in worlds
    }


DONE = ("green", "red", "purple")


def test_no_play_with_blocks_beats_the_bound() -> None:
    actual = block_distances()
    tight = 0
    for (piles, in_hand), moves in actual.items():
        places = {
            cube: (*SPOTS[spot], 20 + 40 * level) for spot, pile in enumerate(piles) for level, cube in enumerate(pile)
        }
        places |= {cube: (*HOME, 350 + 40 * level) for level, cube in enumerate(in_hand)}
        bound = fewest_turns("stack", observation("stack", *(places[cube] for cube in ("red", "green", "purple"))))
        assert bound <= max(1, -(-moves // 2)), (piles, in_hand)
        tight += bound == -(-moves // 2)
        if not in_hand and all(len(pile) == 1 for pile in piles):
            assert bound == -(-moves // 2) == 2
    # Pushes, knocks and lucky releases save what a world of blocks has to do, so most of its distances are longer.
    assert len(actual) > 100
    assert tight > 20


@pytest.mark.parametrize("task", KINDS)
def test_no_play_at_the_embedded_table_beats_the_bound(task: str) -> None:
    """Wild, noisy and nearly perfect play: whenever it succeeds, the bound held at every turn before."""
    rng = random.Random(f"bound {task}")
    env = PrimitiveSkillEnv(PrimitiveSkillConfig(tasks=(task,), horizon=8))
    env.draw_frames = False
    successes, bounds = 0, Counter[int]()
    for _ in range(220):
        skill = rng.choice((0.2, 0.5, 0.7, 0.9))
        _, info = env.reset(seed=rng.randrange(10**6))
        needed = []
        done = ended = False
        while not (done or ended):
            needed.append(fewest_turns(task, info["observation_text"]))
            _, _, done, ended, info = env.step(wild_action(rng, env, skill))
        bounds.update(needed)
        successes += done
        if done:
            assert all(bound <= len(needed) - t for t, bound in enumerate(needed))
    assert successes > 80
    if task in ("stack", "drawer"):
        assert bounds[2] > 100


@pytest.mark.parametrize("task", KINDS)
def test_the_bound_is_reached_from_the_start(task: str) -> None:
    """A perfect player takes two turns where the bound says two, so the bound is as high as it can be."""
    env = PrimitiveSkillEnv(PrimitiveSkillConfig(tasks=(task,)))
    env.draw_frames = False
    for seed in range(10):
        _, info = env.reset(seed=seed)
        bound, done, turns = fewest_turns(task, info["observation_text"]), False, 0
        while not done:
            _, _, done, _, _ = env.step(expert_action(env.state.kind, env.state.scene))
            turns += 1
        assert turns == 2
        assert bound == (2 if task in ("stack", "drawer") else 1)
