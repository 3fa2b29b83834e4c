"""The exact solvers, their second search and their maps against the plain oracle, and properties of every episode."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from pivot.core.errors import CertifyError, LevelError
from pivot.environments.sokoban.environment import SokobanEnv
from pivot.solvers import puzzle_rules as games
from pivot.solvers.base import Case, ExactSolver, Solver, Unsolved, Verdict, prove, prover_of
from pivot.solvers.frozenlake.solver import FrozenLakeSolver, state_text
from pivot.solvers.puzzle_provers import PuzzleSettings, SokobanProver
from pivot.solvers.sokoban.board import SokobanLevel, parse_level, parse_room
from pivot.solvers.sokoban.search import sample_level
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.tests.solvers import solver_oracle
from pivot.tests.solvers.solver_oracle import Game


def facts(verdict: Verdict) -> dict[str, object]:
    """Return the fields of a verdict that the oracle knows."""
    certificate = verdict.certificate
    assert (certificate.kind, certificate.unit) == ("exact", "moves")
    assert certificate.reachable_after == (certificate.after is not None)
    return {
        "pivot_step": verdict.pivot_step,
        "failure_mode": verdict.failure_mode,
        "fallback": verdict.fallback,
        "infeasible_at_start": verdict.infeasible_at_start,
        "before": certificate.before,
        "after": certificate.after,
        "budget_before": certificate.budget_before,
        "budget_after": certificate.budget_after,
        "witness": verdict.witness,
        "feasible_actions": verdict.feasible_actions,
    }


def compare(solver: Solver, games: list[tuple[str, Game]], rng: random.Random, horizons: tuple[int, int]) -> Counter:
    """Play one episode per game, label all in one batch, and compare every label with the oracle's."""
    cases, target = [], []
    for text, game in games:
        horizon = rng.randint(*horizons)
        length = horizon if rng.random() < 0.7 else rng.randint(1, horizon)
        actions = solver_oracle.play(game, length, rng.choice((0.0, 0.5, 0.8, 0.95)), rng)
        if actions is None:
            continue
        if solver.name == "frozenlake":
            rows = text.split("\n")
            tiles = [rows[state // 100][state % 100] for state in solver_oracle.replay(game, actions)]
            actions = actions[: tiles.index("H")] if "H" in tiles else actions
        cases.append(Case(text, actions, horizon))
        target.append(solver_oracle.expected(game, actions, horizon))
    seen = Counter()
    for case, answer, want in zip(cases, solver.certify(cases), target, strict=True):
        assert isinstance(answer, Verdict), (case, answer)
        assert facts(answer) == want, case
        seen[answer.failure_mode] += 1
        seen["fallback"] += answer.fallback
        seen["at start"] += answer.infeasible_at_start
        seen["late"] += answer.pivot_step > 0
    return seen


def sokoban_games(count: int, boxes: int, sides: tuple[int, int], seed: int) -> list[tuple[str, Game]]:
    rng = random.Random(seed)
    games = []
    while len(games) < count:
        height, width = rng.randint(*sides), rng.randint(*sides)
        grid = solver_oracle.room(
            height, width, rng.uniform(0.0, 0.4) if sides[1] == 6 else rng.uniform(0.25, 0.45), rng
        )
        if sum(line.count(" ") for line in grid) < 2 * boxes + 2:
            continue
        text = solver_oracle.sokoban_level(grid, boxes, rng.choice((None, 10, 60, 200)), rng)
        game = solver_oracle.sokoban(text)
        if game.d(game.start) > 0:
            games.append((text, game))
    return games


def test_one_box_in_small_rooms() -> None:
    """Catch a wrong pivot, need, witness or mode of the solver."""
    seen = compare(SokobanSolver(), sokoban_games(2_000, 1, (6, 6), 1), random.Random(2), (1, 12))
    assert sum(seen[mode] for mode in SokobanSolver.modes) >= 2_000
    assert min(seen["timeout"], seen["deadlock"], seen["fallback"], seen["at start"], seen["late"]) >= 40, seen


def test_frozen_lakes() -> None:
    rng = random.Random(3)
    games = []
    for _ in range(2_500):
        text = solver_oracle.frozenlake_map(rng.randint(2, 8), rng.randint(1, 8), rng.uniform(0.0, 0.5), rng)
        games.append((text, solver_oracle.frozenlake(text)))
    seen = compare(FrozenLakeSolver(), games, rng, (1, 20))
    assert sum(seen[mode] for mode in FrozenLakeSolver.modes) >= 2_500
    assert min(seen["timeout"], seen["deadlock"], seen["fallback"], seen["at start"], seen["late"]) >= 50, seen


@pytest.mark.parametrize(
    ("boxes", "sides", "each", "seeds"),
    [
        (2, (6, 10), 5, range(2, 1502, 100)),
        (3, (8, 8), 5, range(3, 553, 100)),
        (3, (10, 10), 1, (1000, 1001, 1003, 1006, 1034, 1055)),  # three with more than 8,000 states to solve it from
        (1, (11, 20), 5, range(1, 301, 100)),
        (2, (11, 12), 5, range(2, 102, 50)),
    ],
    ids=["2 boxes to 10x10", "3 boxes in 8x8", "3 boxes in 10x10", "1 box to 20x20", "2 boxes to 12x12"],
)
def test_several_boxes(boxes: int, sides: tuple[int, int], each: int, seeds: Sequence[int]) -> None:
    """Use four episodes per level, because exploring a level takes the time."""
    seen = Counter()
    rng = random.Random(boxes)
    for seed in seeds:
        seen += compare(SokobanSolver(), 4 * sokoban_games(each, boxes, sides, seed), rng, (5, 90))
    assert sum(seen[mode] for mode in SokobanSolver.modes) >= 4 * each * len(seeds)
    assert min(seen["timeout"], seen["deadlock"], seen["late"]) >= 1, seen


@pytest.mark.long
def test_a_thousand_rooms_with_three_boxes() -> None:
    seen = Counter()
    rng = random.Random(77)
    for part in range(1_000):
        seen += compare(SokobanSolver(), sokoban_games(1, 3, (10, 10), 1_000_000 + part), rng, (20, 120))
    assert sum(seen[mode] for mode in SokobanSolver.modes) >= 1_000
    assert min(seen["timeout"], seen["deadlock"], seen["late"]) >= 100, seen


def test_witness_is_the_first_of_all_shortest_plans() -> None:
    """Compare with all sequences of the four actions, which also checks the oracle's greedy choice."""
    checked = 0
    for text, game in sokoban_games(400, 1, (6, 6), 9):
        if not 0 < game.d(game.start) <= 6:
            continue
        answer = SokobanSolver().certify([Case(text, ["invalid"], 9)])[0]
        assert isinstance(answer, Verdict)
        for plan in (plan for length in range(7) for plan in product(solver_oracle.ORDER, repeat=length)):
            if game.d(solver_oracle.replay(game, plan)[-1]) == 0:
                assert answer.witness == plan
                break
        checked += 1
    assert checked >= 40


def test_a_tiny_cap_is_answered_and_never_guessed() -> None:
    games = sokoban_games(60, 2, (7, 7), 4) + sokoban_games(20, 1, (7, 7), 4)
    rng = random.Random(5)
    limited = 0
    for text, game in games:
        actions = solver_oracle.play(game, 15, 0.5, rng)
        if actions is None:
            continue
        for cap in (1, 30, 200, 1000):
            answer, again = SokobanSolver(max_states=cap).certify([Case(text, actions, 15)] * 2)
            assert again == answer, "what an interrupted search left is not read"
            if isinstance(answer, Unsolved):
                assert answer.reason == "solver_limit"
                limited += 1
            else:
                assert facts(answer) == solver_oracle.expected(game, actions, 15), (cap, text, actions)
    assert limited >= 60


ORDER = solver_oracle.ORDER


def failures(count: int, seed: int, boxes: int = 1, side: int = 6) -> list[Case]:
    rng = random.Random(seed)
    cases = []
    while len(cases) < count:
        grid = solver_oracle.room(side, side, 0.2, rng)
        text = solver_oracle.sokoban_level(grid, boxes, rng.choice((None, 40, 100)), rng)
        horizon = rng.randint(3, 12)
        length, skill = rng.choice((horizon, rng.randint(1, horizon))), rng.choice((0.3, 0.9))
        if actions := solver_oracle.play(solver_oracle.sokoban(text), length, skill, rng):
            cases.append(Case(text, actions, horizon))
    return cases


def test_an_equally_short_later_plan_is_found() -> None:
    case = Case("SFF\nFFF\nFFG", ["invalid"], 9)
    right = FrozenLakeSolver().certify([case])[0]
    assert isinstance(right, Verdict) and right.witness == ("down", "down", "right", "right")
    problems = prove("frozenlake", case, replace(right, witness=("down", "right", "down", "right"))).problems
    assert len(problems) == 1 and "action 1 of the witness is 'right'" in problems[0]


@pytest.mark.parametrize(("boxes", "side", "count"), [(2, 7, 30), (3, 8, 4)])
def test_several_boxes_are_proved(boxes: int, side: int, count: int) -> None:
    cases = failures(count, boxes, boxes, side)
    for case, answer in zip(cases, SokobanSolver().certify(cases), strict=True):
        assert isinstance(answer, Verdict) and prove("sokoban", case, answer).problems == ()


@pytest.mark.parametrize("few", [0, games.FEW_NUMBERS])
@pytest.mark.parametrize("boxes", [1, 2])
def test_distances_are_those_of_an_unbounded_search(boxes: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check every state of an episode in both searches, also where depth limits omit distances."""
    monkeypatch.setattr(games, "FEW_NUMBERS", few)
    counts = {True: 0, False: 0}
    for case in failures(60, 8, boxes):
        oracle = solver_oracle.sokoban(case.initial_state)
        game, state = games.BoxGame(case.initial_state, case.horizon), None
        for t, (place, action) in enumerate(
            zip(solver_oracle.replay(oracle, case.actions), [None, *case.actions], strict=True)
        ):
            state = game.start if state is None else game.after(state, str(action))
            right = oracle.distance.get(place)
            for budget in range(case.horizon - t + 1):
                in_time = right is not None and right <= budget
                assert game.in_time(state, budget) == in_time
                counts[in_time] += 1
            assert game.distance(state) == right
            for limit in (0, 5, right or 7, (right or 7) - 1):
                reached = right is not None and right <= limit
                assert game.distance(state, limit) == (right if reached else math.inf)
    assert min(counts.values()) > 100


def test_large_rooms_are_proved() -> None:
    """Ten by ten cells with four boxes have tens of millions of states; a proof looks at few of them."""
    settings = {"rows": 10, "cols": 10, "boxes": 4, "max_solution": 12, "horizon": 20}
    env = SokobanEnv.from_settings(settings)
    rng = random.Random(4)
    cases = []
    for seed in range(3):
        level = SokobanEnv.make_task(env.config, seed).initial_state
        cases += [Case(level, [rng.choice(ORDER) for _ in range(20)], 20) for _ in range(3)]
    check = prover_of("sokoban")
    assert check is not None
    labelled = 0
    for case, answer in zip(cases, SokobanSolver().certify(cases), strict=True):
        if isinstance(answer, Verdict):
            labelled += 1
            assert check.prove(case, answer).holds, (case, answer)
            facts = answer.certificate
            wrong = replace(answer, certificate=replace(facts, after=(facts.after or 3) + 1))
            assert check.prove(case, wrong).problems
    assert labelled >= 6


def test_what_cannot_be_proved_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    case = failures(1, 2)[0]
    verdict = SokobanSolver().certify([case])[0]
    assert isinstance(verdict, Verdict)
    for bad in (replace(case, initial_state="#"), replace(case, initial_state="?")):
        assert "could not be re-proved" in prove("sokoban", bad, verdict).problems[0]
    for bad in (replace(case, actions=["jump"]), replace(case, actions=[]), replace(case, horizon=0)):
        assert "not an episode" in prove("sokoban", bad, verdict).problems[0]
    solved = Case("######\n#@ $.#\n######", ["right", "right", "up"], 9)
    assert "over after 2 of 3" in prove("sokoban", solved, verdict).problems[0]
    fallen = Case("SH\nFG", ["right", "up"], 9)
    assert "over after 1 of 2" in prove("frozenlake", fallen, verdict).problems[0]
    monkeypatch.setattr(games, "FEW_NUMBERS", 0)
    monkeypatch.setattr(games, "MAX_NUMBERS", 10)
    assert "more than 10 states" in str(prove("sokoban", case, verdict).undecided)
    monkeypatch.undo()
    small = SokobanProver(settings=PuzzleSettings(max_states=10)).prove(case, verdict)
    assert "more than 10 states" in str(small.undecided) and not small.holds and not small.problems
    assert prover_of("chess") is None
    with pytest.raises(CertifyError, match="'chess' has no prover"):
        prove("chess", case, verdict)


SOLVERS: dict[str, ExactSolver] = {"sokoban": SokobanSolver(), "frozenlake": FrozenLakeSolver()}


def test_more_targets_than_boxes_and_boxes_behind_walls() -> None:
    solver = SokobanSolver()
    assert solver.distance_map("#######\n#.@$ .#\n#######").distance("#######\n#.@$ .#\n#######") == 2
    apart = "#######\n#@$.#*#\n#######"
    assert solver.distance_map(apart).distance(apart) == 1
    lost = "########\n#@$.#$.#\n########"
    assert solver.distance_map(lost).distance(lost) is None


def test_levels_wider_than_a_machine_word() -> None:
    for width in (61, 62, 63, 64, 65, 130):
        text = "\n".join(["#" * (width + 2), "#@$" + " " * (width - 3) + ".#", "#" * (width + 2)])
        turned = "\n".join("".join(column) for column in zip(*text.split("\n"), strict=True))
        for level, forward, backward in ((text, "right", "left"), (turned, "down", "up")):
            answer = SokobanSolver().certify([Case(level, [forward, backward, "invalid"], width - 1)])[0]
            assert isinstance(answer, Verdict)
            facts = answer.certificate
            assert (answer.pivot_step, facts.before, facts.after) == (1, width - 3, width - 2)
            assert answer.witness == (forward,) * (width - 3)


@pytest.mark.parametrize("env", sorted(SOLVERS))
def test_bad_episodes_are_answered(env: str) -> None:
    text = {"sokoban": "######\n#@ $.#\n######", "frozenlake": "SFF\nHFF\nFFG"}[env]
    cases = {
        "no actions": Case(text, [], 9),
        "unknown action 'jump' at step 1": Case(text, ["up", "jump"], 9),
        "3 actions, more than its horizon of 2": Case(text, ["up"] * 3, 2),
        "at most 1000000": Case(text, ["up"], 10**7),
    }
    if env == "frozenlake":
        cases["in a hole after 1 actions"] = Case(text, ["down", "up"], 9)
    for reason, answer in zip(cases, SOLVERS[env].certify(list(cases.values())), strict=True):
        assert isinstance(answer, Unsolved) and answer.reason == "bad_episode" and reason in answer.detail
    solved = {"sokoban": ["right", "right"], "frozenlake": ["right", "right", "down", "down", "up"]}[env]
    answer = SOLVERS[env].certify([Case(text, solved, 9)])[0]
    assert isinstance(answer, Unsolved) and answer.reason == "not_a_failure"


# Distance maps and level sampling

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
        text = solver_oracle.frozenlake_map(rng.randint(1, 7), rng.randint(2, 7), 0.3, rng)
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
