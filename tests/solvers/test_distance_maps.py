"""Distance maps and level sampling: every state of a level, exact and uniform."""

import random
from collections import Counter
from itertools import combinations

import pytest
from pivot.core.errors import CertifyError, LevelError
from pivot.solvers.frozenlake.solver import FrozenLakeSolver, state_text
from pivot.solvers.sokoban.board import SokobanLevel, parse_level, parse_room
from pivot.solvers.sokoban.search import sample_level
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.tests.solvers import level_makers, solver_oracle

ROOM = "########\n#      #\n#  .   #\n# # .  #\n#      #\n########"


def fillings(room: str, boxes: int) -> dict[str, int | None]:
    """Return every level that the room can become, with its distance by the oracle."""
    empty = parse_room(room, boxes)
    rows = room.split("\n")
    floor = [(y, x) for y, row in enumerate(rows) for x, symbol in enumerate(row) if symbol in " ."]
    distances: dict[str, int | None] = {}
    for places in combinations(floor, boxes):
        for player in set(floor) - set(places):
            text = str(SokobanLevel(empty.walls, empty.targets, frozenset(places), player, empty.lines))
            game = solver_oracle.sokoban(text)
            distance = game.d(game.start)
            distances[text] = None if distance == solver_oracle.INFINITE else distance
    return distances


def test_every_state_of_a_level_is_known() -> None:
    """The map has the distance of each state, also after each action."""
    room = "######\n#  . #\n#    #\n##.  #\n######"
    for boxes, count in ((1, 11 * 10), (2, 55 * 9)):
        reference = fillings(room, boxes)
        assert len(reference) == count
        for depth_limit in (None, 6):
            distances = SokobanSolver().distance_map(next(iter(reference)), depth_limit)
            for text, distance in reference.items():
                expected = distance if distance is not None and distance <= (depth_limit or 10**6) else None
                assert distances.distance(text) == expected, text
                if boxes == 1 and depth_limit is None:
                    game = solver_oracle.sokoban(text)
                    after = [game.d(game.step(game.start, action)) for action in solver_oracle.ORDER]
                    expected_after = [None if each == solver_oracle.INFINITE else each for each in after]
                    assert [*distances.after_each_action(text)] == expected_after, text


def test_sampling_is_uniform_over_depths_and_then_over_states() -> None:
    """Chi-square over all states of the allowed depths, with a bound that a right sampler misses once in a million."""
    by_depth: dict[int, list[str]] = {}
    for text, distance in fillings(ROOM, 1).items():
        if distance is not None and 3 <= distance <= 6:
            by_depth.setdefault(distance, []).append(text)
    draws = 4_000
    rng = random.Random(1)
    seen = Counter(str(parse_level(sample_level(ROOM, 1, 3, 6, rng) or "")) for _ in range(draws))
    assert set(seen) <= {text for texts in by_depth.values() for text in texts}
    chi_square, freedom = 0.0, -1
    for texts in by_depth.values():
        share = draws / len(by_depth) / len(texts)
        chi_square += sum((seen[text] - share) ** 2 / share for text in texts)
        freedom += len(texts)
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5 + 20


@pytest.mark.parametrize("boxes", [1, 2])
def test_sampled_levels_have_the_wanted_length(boxes: int) -> None:
    rng = random.Random(boxes)
    for _ in range(60):
        low = rng.randint(0, 8)
        high = low + rng.randint(0, 4)
        text = sample_level(ROOM, boxes, low, high, rng)
        assert text is not None
        game = solver_oracle.sokoban(text)
        assert low <= game.d(game.start) <= high
    assert sample_level(ROOM, boxes, 500, 600, rng) is None and sample_level(ROOM, boxes, 5, 4, rng) is None


def test_sampling_in_open_ragged_and_divided_rooms() -> None:
    rng = random.Random(0)
    ragged = "  ####\n###  ###\n#   .  #\n###    #\n  ######"
    assert len({sample_level(ragged, 1, 2, 9, rng) for _ in range(50)}) > 10
    divided = "#######\n#.  #.#\n#   # #\n#######"
    for _ in range(20):
        text = sample_level(divided, 1, 1, 9, rng)
        assert text is not None and SokobanSolver().distance_map(text).distance(text) is not None
    assert sample_level("####\n#. #\n####", 1, 1, 9, rng) is None
    assert sample_level("###\n#.#\n###", 1, 0, 9, rng) is None
    with pytest.raises(LevelError):
        sample_level("####\n#.@#\n####", 1, 1, 9, rng)


def test_a_cap_raises_a_typed_error() -> None:
    with pytest.raises(CertifyError, match="more than max_states = 100 states"):
        SokobanSolver(max_states=100).distance_map(sample_level(ROOM, 2, 3, 5, random.Random(1)) or "")
    with pytest.raises(CertifyError, match="more than max_states = 100 states"):
        sample_level(ROOM, 2, 3, 30, random.Random(1), max_states=100)


@pytest.mark.parametrize(
    "other",
    [
        "#####\n#.$@#\n#####",
        "#####\n#@$.#\n#####\n#####\n#",
        "######\n#@$. #\n######",
        "#####\n#@$*#\n#####",
        " #####\n #@$.#\n #####",
    ],
)
def test_a_state_of_another_level_is_refused(other: str) -> None:
    distances = SokobanSolver().distance_map("#####\n#@$.#\n#####")
    if other.endswith("\n#"):
        assert distances.distance(other) == 1  # walls that nothing can reach do not matter
        return
    with pytest.raises(LevelError, match=r"a different level|2 boxes"):
        distances.distance(other)


def test_frozen_lake_maps_know_every_cell() -> None:
    rng = random.Random(2)
    for _ in range(100):
        text = level_makers.frozenlake_map(rng.randint(1, 7), rng.randint(2, 7), 0.3, rng)
        distances = FrozenLakeSolver().distance_map(text)
        rows = text.split("\n")
        for y, row in enumerate(rows):
            for x, tile in enumerate(row):
                at = state_text(text, y, x)
                game = solver_oracle.frozenlake(text)
                game = solver_oracle.explore(
                    100 * y + x,
                    game.step,
                    lambda state, rows=rows: rows[state // 100][state % 100] == "G",
                    lambda state, rows=rows: rows[state // 100][state % 100] in "GH",
                )
                expected = [game.d(game.start)] + [
                    game.d(game.start if tile in "GH" else game.step(game.start, action))
                    for action in solver_oracle.ORDER
                ]
                actual = [distances.distance(at), *distances.after_each_action(at)]
                assert [solver_oracle.INFINITE if depth is None else depth for depth in actual] == expected, at


def test_frozen_lake_maps_refuse_other_states_and_keep_to_the_limit() -> None:
    text = "SFF\nFHF\nFFG"
    distances = FrozenLakeSolver().distance_map(f"{text}\n@ 2 1", depth_limit=2)
    assert (distances.distance(text), distances.distance(f"{text}\n@ 1 2")) == (None, 1)
    assert distances.after_each_action(f"{text}\n@ 0 1") == (None, None, None, 2)
    for other in ("SFF\nFFF\nFFG", f"{text}\n@ 3 0", f"{text}\n@ 0 3", f"{text}\n@ x"):
        with pytest.raises(LevelError):
            distances.distance(other)
