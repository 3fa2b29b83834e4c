"""Labels of navigation episodes: the printed log, the bound against true distances, planted defects."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot import certify
from pivot.core.errors import ConfigError
from pivot.solvers.base import Case, Needs, Unsolved, Verdict, prove, prover_of
from pivot.solvers.navigation.room import read_state
from pivot.solvers.navigation.solver import ACTIONS, NavigationSolver
from pivot.testing import altered
from pivot.tests.navigation_episodes import BruteRoom, printed_episode, random_room, thor_state, walks

SETTINGS: list[dict[str, Any]] = [
    {},
    {"threshold": 1.0},
    {"threshold": 0},
    {"window": 3, "eps": 0.6},
    {"pivot_rule": "earliest_event"},
    {"pivot_rule": "earliest_event", "window": 8, "threshold": 0.75},
    {"pivot_rule": "exact"},
    {"pivot_rule": "exact", "threshold": 0.75},
]


def label(case: Case, **options: Any) -> Verdict:
    answer = NavigationSolver(**options).certify([case])[0]
    assert isinstance(answer, Verdict), answer
    return answer


# The printed log


@pytest.mark.parametrize(
    ("options", "pivot", "mode", "also", "needed"),
    [
        ({}, 22, "stagnation", (), 3),
        ({"threshold": 1.0}, 21, "blocked", ("stagnation",), 4),
        ({"threshold": 0}, 19, "blocked", ("stagnation",), 6),
        ({"window": 8}, 22, "stagnation", (), 3),  # from 2.56 at step 14: moving away is not progress
        ({"window": 15}, 22, "budget", (), 3),  # from 3.36 at step 7
        ({"pivot_rule": "earliest_event"}, 0, "blocked", (), 3),
    ],
)
def test_the_printed_log(options: dict[str, Any], pivot: int, mode: str, also: tuple[str, ...], needed: int) -> None:
    answer = label(printed_episode(), **options)
    assert (answer.pivot_step, answer.failure_mode, answer.secondary_modes) == (pivot, mode, also)
    assert not answer.fallback and not answer.infeasible_at_start
    facts = answer.certificate
    assert (facts.kind, facts.unit, facts.reachable_after) == ("lower_bound", "turns", None)
    assert (facts.budget_before, facts.budget_after) == (25 - pivot, 24 - pivot)
    assert (facts.before, facts.after) == (needed, needed)
    assert (facts.reference_pivot, facts.reference_kind) == (None, None)
    assert prove("navigation", printed_episode(), answer, NavigationSolver(**options).config).problems == ()


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf"), "absent"])
def test_a_missing_distance_is_carried_forward(nothing: Any) -> None:
    steps = [{} if nothing == "absent" else {"dist": nothing}] * 25
    answer = label(Case(thor_state(3.0), ["rotateleft"] * 25, 25, steps))
    # 3.0 m are three turns: after step 22 two are left, with 3.0 carried on from the start.
    assert (answer.pivot_step, answer.failure_mode) == (22, "stagnation")
    assert (answer.certificate.raw_before, answer.certificate.raw_after) == (3.0, 3.0)
    late = [*steps[:4], {"dist": 5.0}, *steps[5:]]
    assert label(Case(thor_state(3.0), ["rotateleft"] * 25, 25, late)).pivot_step == 18  # seven turns from then on


# Rules


def straight(distances: list[float], actions: list[str] | None = None, start: float = 4.0, horizon: int = 25) -> Case:
    actions = actions or ["moveahead"] * len(distances)
    return Case(thor_state(start), actions, horizon, [{"dist": each} for each in distances])


def test_the_bound_counts_whole_turns_without_float_noise() -> None:
    solver = NavigationSolver()
    for tenths in range(0, 200):
        distance = tenths / 10
        whole = max(0, -(-(tenths - 15) // 5))
        for noisy in (distance, math.nextafter(distance, 0), math.nextafter(distance, 99), distance + 4e-7):
            assert solver.needed(noisy) == whole
    assert solver.needed(2.0 + 6e-7) == 2


def test_the_fallback_and_a_hopeless_start() -> None:
    short = label(straight([3.5, 3.0, 2.5]))
    assert (short.pivot_step, short.fallback, short.infeasible_at_start) == (2, True, False)
    hopeless = label(straight([13.6, 13.1], start=14.1))  # 26 turns
    assert (hopeless.pivot_step, hopeless.fallback, hopeless.infeasible_at_start) == (0, False, True)
    assert not label(straight([13.6, 13.1], start=14.0)).infeasible_at_start


def test_the_literal_rule_uses_the_first_event() -> None:
    far = [3.9, 3.8, 3.7, 3.6, 3.5, 3.4, 3.3, 3.2]
    suffix = straight(far, ["moveahead"] * 4 + ["invalid"] * 4, horizon=9)
    assert label(suffix).pivot_step == 5  # 3.4 m are four turns, three are left
    answer = label(suffix, pivot_rule="earliest_event")
    assert (answer.pivot_step, answer.failure_mode, answer.fallback) == (4, "format", False)
    middle = straight(far, ["moveahead", "invalid", *["moveahead"] * 6], horizon=25)
    assert label(middle, pivot_rule="earliest_event").fallback  # an unusable reply in the middle is not an event
    stagnant = straight([3.5, 3.6, 3.7, 3.8, 3.9, 3.45, 3.4, 3.0], horizon=25)
    answer = label(stagnant, pivot_rule="earliest_event")
    assert (answer.pivot_step, answer.failure_mode, answer.fallback) == (5, "stagnation", False)
    late = straight([4.0, 4.0, 4.0], ["moveahead", "moveahead", "invalid"], horizon=6)
    assert label(late, pivot_rule="earliest_event").pivot_step == 1  # the bound comes before the event


# Embedded rooms


def test_the_bound_is_never_above_the_true_number_of_turns() -> None:
    """10,000 random states; for a tenth of them, the true number by a search over poses with every action."""
    rng = random.Random(7)
    solver = NavigationSolver()
    states = detours = unreachable = searched = 0
    while states < 10_000:
        data = random_room(rng)
        room = read_state(json.dumps(data), 1.5).room
        assert room is not None
        brute = BruteRoom(data)
        pose, brute_pose = room.start, brute.start
        for step in range(20):
            true = room.turns(pose)
            distance = room.distance(pose)
            assert distance == pytest.approx(brute.distance(brute_pose), abs=1e-12)
            bound = solver.needed(distance)
            assert bound is not None
            assert true is None or bound <= true, (data, pose)
            states += 1
            detours += true is not None and bound < true
            unreachable += true is None
            if step % 10 == 0:
                assert true == brute.turns(brute_pose)
                searched += 1
            action = rng.choice(ACTIONS)
            pose, brute_pose = room.after(pose, action)[0], brute.after(brute_pose, action)
    assert detours > 500
    assert unreachable > 200
    assert searched >= 1000


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_the_second_opinion_agrees_on_random_walks(options: dict[str, Any]) -> None:
    cases = walks(3, 120) + walks(4, 120) + walks(5, 40, horizon=9)
    solver = NavigationSolver(**options)
    check = prover_of("navigation", solver.config)
    assert check is not None
    for case, answer in zip(cases, solver.certify(cases), strict=True):
        assert isinstance(answer, Verdict) and check.prove(case, answer).problems == ()


def test_the_witness_solves_the_task_in_time() -> None:
    cases, solver = walks(6, 100), NavigationSolver()
    actual = 0
    for case, answer, measured in zip(cases, solver.certify(cases), solver.measure(cases), strict=True):
        assert isinstance(answer, Verdict)
        assert isinstance(measured, Needs)
        assert measured.safe_actions[answer.pivot_step] == answer.feasible_actions, "credit and label agree"
        if answer.witness is None:
            assert answer.feasible_actions == ()
            continue
        actual += 1
        room = BruteRoom(json.loads(case.initial_state))
        pose = room.start
        for action in case.actions[: answer.pivot_step]:
            pose = room.after(pose, action)
        at_pivot = pose
        for action in answer.witness:
            pose = room.after(pose, action)
        assert room.distance(pose) <= 1.5
        assert len(answer.witness) == answer.certificate.reference_before == room.turns(at_pivot)
        assert answer.witness[0] in answer.feasible_actions
        left = answer.certificate.budget_after
        for action in ACTIONS:
            turns = room.turns(room.after(at_pivot, action))
            assert (action in answer.feasible_actions) == (turns is not None and turns <= left)
    assert actual > 20


def test_an_embedded_episode_needs_no_log() -> None:
    for case in walks(8, 30):
        with_log, without = NavigationSolver().certify([case, replace(case, steps=())])
        assert isinstance(without, Verdict) and with_log == without
        assert prove("navigation", replace(case, steps=()), without).problems == ()
        shown = certify("navigation", case.initial_state, case.actions, case.horizon)
        assert shown == without


@given(st.lists(st.floats(1.51, 20), min_size=1, max_size=25), st.integers(0, 5), st.data())
@settings(max_examples=200, deadline=None)
def test_any_log_of_a_simulator_is_proved_by_the_second_reading(
    distances: list[float], spare: int, data: st.DataObject
) -> None:
    flags = st.sampled_from([True, False, None])
    actions = [data.draw(st.sampled_from([*ACTIONS, "invalid", "empty"])) for _ in distances]
    steps = [{"dist": data.draw(st.sampled_from([d, round(d, 2), None])), "moved": data.draw(flags)} for d in distances]
    case = Case(thor_state(data.draw(st.floats(1.51, 20))), actions, len(actions) + spare, steps)
    for options in SETTINGS:
        solver = NavigationSolver(**options)
        if options.get("pivot_rule") == "exact":
            (answer,) = solver.certify([case])
            assert isinstance(answer, Unsolved) and "pivot_rule=budget" in answer.detail
            continue
        assert prove("navigation", case, label(case, **options), solver.config).problems == ()


# Defects


def test_every_altered_field_is_found() -> None:
    check = prover_of("navigation")
    assert check is not None
    for case in [*walks(9, 25), printed_episode()]:
        wrong = list(altered(label(case), case, NavigationSolver.modes, NavigationSolver.actions))
        assert len(wrong) > 25
        for name, each in wrong:
            assert not check.prove(case, each).holds, name


def test_labels_of_other_settings_are_not_proved() -> None:
    answer = label(printed_episode(), threshold=1.0)
    assert not prove("navigation", printed_episode(), answer).holds
    assert prove("navigation", printed_episode(), answer, {"threshold": 1.0}).holds


def test_a_log_of_another_room_is_found() -> None:
    case = walks(10, 1)[0]
    right = label(case)
    steps = [dict(info) for info in case.steps]
    steps[3]["dist"] += 0.02
    answer = NavigationSolver().certify([replace(case, steps=steps)])[0]
    assert isinstance(answer, Unsolved) and "dist of step 3" in answer.detail
    assert not prove("navigation", replace(case, steps=steps), right).holds
    rounded = [{**info, "dist": round(info["dist"], 2)} for info in case.steps]
    assert label(replace(case, steps=rounded)).pivot_step == right.pivot_step


def bad_cases() -> Iterator[tuple[Case, str]]:
    good = straight([3.0, 3.0])
    yield replace(good, actions=[], steps=[]), "0 actions"
    yield replace(good, horizon=1), "2 actions"
    yield replace(good, steps=good.steps[:1]), "1 steps for 2 actions"
    yield replace(good, steps=()), "0 steps for 2 actions"
    yield replace(good, actions=["moveahead", "fly"]), "unknown action 'fly' at step 1"
    for dist in (True, "3.0", -0.1):
        yield replace(good, steps=[{"dist": 3.0}, {"dist": dist}]), "dist of step 1"
    for text in ("", "[]", "{", '{"agent": 3}', "null", "[" * 100_000):
        yield replace(good, initial_state=text), "navigation state"
    yield replace(good, initial_state=thor_state(3.0).replace('"x": 0.0', '"x": NaN')), "x of the navigation state"
    room = json.dumps(random_room(random.Random(1)))
    yield replace(good, initial_state=room.replace('"rotation"', '"turn"')), "rotation"
    yield replace(good, initial_state=room.replace('"size"', '"sizes"')), "size"
    data = json.loads(room)
    data["agent"]["rotation"] = 45
    yield replace(good, initial_state=json.dumps(data)), "rotation is 45"
    data = json.loads(room)
    data["agent"]["position"]["x"] = 99.0
    yield replace(good, initial_state=json.dumps(data)), "outside"
    data = json.loads(room)
    data["room"]["size"]["x"] = 999_999.0
    yield replace(good, initial_state=json.dumps(data)), "places"


@pytest.mark.parametrize(
    ("bad", "words"), list(bad_cases()), ids=lambda value: value[:20] if isinstance(value, str) else ""
)
def test_what_cannot_be_an_episode_is_not_labelled(bad: Case, words: str) -> None:
    answer = NavigationSolver().certify([bad])[0]
    assert isinstance(answer, Unsolved) and answer.reason == "bad_episode" and words in answer.detail


def test_a_target_that_was_reached_is_no_failure() -> None:
    for case in (straight([2.0, 1.5]), straight([1.2, 2.5]), straight([2.0], start=1.4)):
        answer = NavigationSolver().certify([case])[0]
        assert isinstance(answer, Unsolved) and answer.reason == "not_a_failure"
        assert not prove("navigation", case, label(straight([2.0, 2.0]))).holds
    assert isinstance(NavigationSolver(threshold=1.0).certify([straight([2.0, 1.5])])[0], Verdict)


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": -1},
        {"threshold": "far"},
        {"threshold": True},
        {"step": 0},
        {"step": math.inf},
        {"window": 0},
        {"window": 2.0},
        {"eps": -0.1},
        {"eps": math.nan},
        {"pivot_rule": "first"},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        NavigationSolver(**wrong)
