"""``pivot.certify`` at its door: types, other notations, limits, batches."""

import random
import time
from contextlib import suppress
from typing import Any

import pivot
import pytest
from pivot import Unsolved, Verdict
from pivot.core.errors import CertifyError
from pivot.solvers import api

ROOM = "######\n#@$ .#\n######"
LAKE = "SFF\nFHF\nFFG"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": 3}, "env: found 3, expected the name of an environment"),
        ({"initial_state": None}, "initial_state: found None, expected a level as text"),
        ({"initial_state": ""}, "initial_state: found an empty text"),
        ({"actions": "up"}, "actions: found 'up', expected a list of action names, such as"),
        ({"actions": {"up": 1}}, "actions: found {'up': 1}, expected a list"),
        ({"actions": None}, "actions: found None, expected a list"),
        ({"actions": ["up", 3]}, r"actions\[1\]: found 3, expected a text"),
        ({"actions": ["up|left"]}, "found 2 actions in the turn 'up|left', expected one"),
        ({"actions": ["Up, Left"]}, "found 2 actions in the turn 'Up, Left', expected one"),
        ({"horizon": "9"}, "horizon: found '9', expected a whole number of turns"),
        ({"horizon": True}, "horizon: found True, expected a whole number"),
        ({"horizon": 9.0}, "horizon: found 9.0, expected a whole number"),
        ({"horizon": 0}, "horizon: found 0, expected a whole number of turns, 1 or more"),
        ({"horizon": 10**30}, "at most 1000000 is supported"),
        ({"steps": 3}, "steps: found 3, expected a list of mappings"),
        ({"steps": [3]}, r"steps\[0\]: found 3, expected a mapping"),
        ({"observations": "seen"}, "observations: found 'seen', expected a list of texts"),
        ({"time_limit": -1}, "time_limit: found -1, expected seconds"),
        ({"time_limit": "1"}, "time_limit: found '1', expected seconds"),
        ({"max_states": "lots"}, "solver sokoban: max_states: found 'lots', expected a whole number"),
        ({"max_states": 1.5}, "solver sokoban: max_states: found 1.5, expected a whole number"),
        ({"initial_state": "", "distances": [2.0, 1.0]}, "distances: the solver of sokoban needs the level"),
        ({"env": "navigation", "distances": [2.0, 1.9]}, "distances: found together with initial_state or steps"),
        (
            {"env": "navigation", "initial_state": "", "distances": [2.0]},
            "distances: found 1 for 1 actions, expected 2",
        ),
        ({"env": "navigation", "initial_state": "", "distances": [2.0, None]}, r"distances\[1\]: found None"),
        ({"env": "navigation", "initial_state": "", "distances": [2.0, 10**400]}, r"distances\[1\]: found 1000"),
    ],
)
def test_a_wrong_argument_is_named(changes: dict[str, Any], message: str) -> None:
    arguments = {"env": "sokoban", "initial_state": ROOM, "actions": ["up"], "horizon": 9, **changes}
    with pytest.raises(CertifyError, match=message) as caught:
        pivot.certify(**arguments)
    assert "\n" not in str(caught.value)


def test_logs_of_nonsense_are_refused_in_one_line() -> None:
    draw = random.Random(0)
    values = (None, 3, -1, float("nan"), float("inf"), "x", [], {}, True, 10**400)
    keys = ("dist", "legal", "remaining_stages", "valid_svg", "average_score", "moved", "last_action_success")
    for env, actions in (
        ("navigation", "moveahead"),
        ("primitiveskill", "pick(1,2,3)"),
        ("svg", "svg"),
        ("sokoban", "up"),
    ):
        for _ in range(100):
            steps = [{key: draw.choice(values) for key in keys if draw.random() < 0.6} for _ in range(2)]
            try:
                pivot.certify(env, draw.choice(("{}", "null", ROOM, "<svg/>")), [actions] * 2, 5, steps=steps)
            except CertifyError as error:
                assert "\n" not in str(error)


def test_actions_in_any_case_and_levels_in_vagens_symbols() -> None:
    ours = pivot.certify("sokoban", ROOM, ["right", "left"], 2)
    assert pivot.certify("sokoban", ROOM, [" Right", "LEFT"], 2) == ours
    spaced = "\n".join("".join(f" {cell} \t" for cell in row) for row in ("######", "#PX_O#", "######"))
    for level in ("######\n#PX_O#\n######", spaced):
        assert pivot.certify("sokoban", level, ["Right", "Left"], 2) == ours
    fall = pivot.certify("frozenlake", LAKE, ["right", "down"], 9)
    assert (
        pivot.certify("frozenlake", " P \t _ \t _ \t\n _ \t O \t _ \t\n _ \t _ \t G \t", ["Right", "Down"], 9) == fall
    )
    boxed = pivot.certify("sokoban", "#######\n#S√XO_#\n#######", ["invalid"], 9)
    assert boxed == pivot.certify("sokoban", "#######\n#+*$. #\n#######", ["invalid"], 9)


def test_navigation_from_distances_alone() -> None:
    verdict = pivot.certify("navigation", "", ["MoveAhead", "MoveBack"], 3, distances=[2.9, 2.4, 2.9])
    certificate = verdict.certificate
    assert (verdict.pivot_step, certificate.before, certificate.after) == (1, 2, 3)
    assert (certificate.raw_before, certificate.reference_pivot, verdict.witness) == (2.4, None, None)


def _open_room(side: int, boxes: int) -> str:
    draw = random.Random(0)
    rows = [list("#" * side), *([*"#", *" " * (side - 2), *"#"] for _ in range(side - 2)), list("#" * side)]
    cells = [(y, x) for y in range(2, side - 2) for x in range(2, side - 2)]
    for symbol, (y, x) in zip("$." * boxes + "@", draw.sample(cells, 2 * boxes + 1), strict=True):
        rows[y][x] = symbol
    return "\n".join(map("".join, rows))


def test_a_search_gives_up_in_time() -> None:
    room = _open_room(60, 4)
    assert len(room) > 3600
    with suppress(CertifyError):
        pivot.certify("sokoban", room, ["up"] * 5, 9, time_limit=0.5)  # compiled by now
    began = time.process_time()
    with pytest.raises(CertifyError, match=r"solver_limit: no answer after \d+ states and 0.5 s; raise time_limit"):
        pivot.certify("sokoban", room, ["up"] * 5, 9, time_limit=0.5)
    assert time.process_time() - began < 5


def test_a_time_limit_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "FIRST_CAP", 2)
    for limit in (None, 60.0):
        assert pivot.certify("sokoban", _open_room(9, 1), ["invalid"] * 3, 40, time_limit=limit).fallback
    with pytest.raises(CertifyError, match="more than max_states = 5 states"):
        pivot.certify("sokoban", _open_room(9, 1), ["invalid"] * 3, 40, max_states=5)


def test_a_batch_answers_in_order_and_takes_rows_of_a_store() -> None:
    row = {"initial_state": ROOM, "horizon": 2, "episode_id": "e", "rewards": [0.0]}
    episodes = [row | {"actions": actions} for actions in (["right", "left"], ["right", "right"], ["jump"])]
    lost, won, bad = pivot.certify_batch("sokoban", episodes)
    assert lost == pivot.certify("sokoban", ROOM, ["right", "left"], 2)
    assert isinstance(lost, Verdict)
    assert isinstance(won, Unsolved)
    assert won.reason == "not_a_failure"
    assert isinstance(bad, Unsolved)
    assert "unknown action 'jump'" in bad.detail
    assert pivot.certify_batch("sokoban", []) == []


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (3, r"episodes\[0\]: found 3, expected a mapping"),
        ({"actions": ["up"]}, r"episodes\[0\]: found no 'horizon', expected one"),
        ({"initial_state": ROOM, "actions": "up", "horizon": 2}, r"episodes\[0\]: actions: found 'up'"),
    ],
)
def test_a_wrong_episode_of_a_batch_is_named(episode: Any, message: str) -> None:
    with pytest.raises(CertifyError, match=message):
        pivot.certify_batch("sokoban", [episode])
