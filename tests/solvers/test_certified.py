"""Labels of live environments, afterwards and turn by turn."""

import math
import random
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pivot
import pytest
from pivot import Certified
from pivot.core.errors import CertifyError
from pivot.solvers.base import Unsolved, Verdict
from pivot.solvers.closure import batch, certified
from pivot.tests.solvers.test_closure import Copied, Line, Slippery

QUICK: dict[str, Any] = {"checks": 8, "fresh": False}


def test_an_episode_of_a_live_environment_is_certified() -> None:
    """Catch a label of another episode: wrong names of actions, or rewards that the environment does not give."""
    verdict = pivot.certify(Copied, actions=[1, 2], horizon=9, seed=3, rewards=[0.0, 0.0], key="observation", checks=8)
    assert (verdict.pivot_step, verdict.failure_mode, verdict.feasible_actions) == (
        1,
        "deadlock",
        ("action_0", "action_1"),
    )
    named = pivot.certify(
        Copied(),
        actions=["right", "invalid", "dig"],
        horizon=9,
        actions_by_name={"left": 0, "right": 1, "dig": 2},
        **QUICK,
    )
    assert (named.pivot_step, named.witness) == (2, ("right",) * 3)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"actions": [1, 2], "rewards": [0.0, 1.0]}, r"rewards\[1\]: found 1, but the environment gives 0"),
        ({"actions": [1, 2], "rewards": [0.0]}, "rewards: found 1, expected 2"),
        ({"actions": [7]}, "actions: found 7, expected one of action_0"),
        ({"actions": [1] * 4}, "not_a_failure"),
        ({"actions": [Slippery]}, "actions: found"),
    ]
    for arguments, message in wrong:
        with pytest.raises(CertifyError, match=message):
            pivot.certify(Copied, horizon=9, **QUICK, **arguments)


@pytest.mark.parametrize(("limit", "seconds"), [({}, 60), ({"time_limit": None}, math.inf), ({"time_limit": 5}, 5)])
def test_a_time_limit_reaches_the_search(limit: Any, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[float] = []
    for module in (batch, certified):
        search: Any = lambda env, **more: passed.append(more["max_seconds"]) or pivot.explore(env, **more)  # noqa: E731
        monkeypatch.setattr(module, "explore", search)
    alone = pivot.certify(Copied, actions=[1, 2], horizon=2, **QUICK, **limit)
    assert pivot.certify_batch(Copied, [{"actions": [1, 2], "horizon": 2}], **QUICK, **limit) == [alone]
    assert passed == [seconds, seconds]
    for call in (partial(pivot.certify, Copied, horizon=2), partial(pivot.certify_batch, Copied, [])):
        with pytest.raises(CertifyError, match="time_limit: found -5, expected seconds"):
            call(time_limit=-5)


def test_a_wrapper_reports_during_play_what_the_label_says_afterwards() -> None:
    names = ("left", "right", "dig")
    env = Certified(Copied(), horizon=6, actions={name: place for place, name in enumerate(names)}, **QUICK)
    choose, pivots = random.Random(4), 0
    for _ in range(25):
        _, info = env.reset(seed=5)
        assert (info["need"], info["slack"], info["safe_actions"]) == (4, 2, (0, 1, 2))
        taken: list[str] = []
        said: list[int] = []
        ended = False
        while not ended and len(taken) < 6:
            action = choose.randrange(3)
            taken.append(names[action])
            safe = action in info["safe_actions"]
            _, _, ended, _, info = env.step(action)
            assert safe == (info["slack"] >= 0)
            if info["is_pivot"]:
                said.append(len(taken) - 1)
        label = env.graph.certify(taken, 6)
        if isinstance(label, Verdict):
            assert said == ([] if label.fallback else [label.pivot_step])
            pivots += 1
    assert pivots > 8
    with pytest.raises(CertifyError, match="call reset"):
        _ = Certified(Copied(), horizon=6).graph


class Masked(Line):
    """A row that allows no step to the left of its start."""

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.array([self.cell > 0, True, True], np.int8)}

    def reset(self, **options: Any) -> tuple[int, dict[str, Any]]:
        return super().reset(**options)[0], self.info()


class Shifted(Line):
    """A row whose options choose the cell of the start."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = int(options["row"][600])
        return self.cell, {}


def test_levels_whose_arrays_print_equally_are_searched_separately() -> None:
    env, rows = Certified(Shifted(), horizon=6, **QUICK), np.zeros((2, 2000), np.int8)
    rows[1, 600] = 2
    assert [env.reset(seed=0, options={"row": row})[1]["need"] for row in rows] == [4, 2]
    episodes = [{"actions": [1], "horizon": 1, "options": {"row": row}} for row in (*rows, (cell for cell in ()))]
    *answers, unusable = pivot.certify_batch(Shifted, episodes, **QUICK)
    assert [each.certificate.before for each in answers if isinstance(each, Verdict)] == [4, 2]
    assert isinstance(unusable, Unsolved)


def test_an_illegal_action_costs_a_turn() -> None:
    env = Certified(Masked(), horizon=5, illegal="invalid", **QUICK)
    env.reset(seed=0)
    said = [env.step(Line.LEFT)[-1] for _ in range(2)]
    assert [(each["need"], each["slack"], each["is_pivot"]) for each in said] == [(4, 0, False), (4, -1, True)]


class Hashed(Line):
    """A game in which the hash of a text chooses the opening action, so that it differs between processes."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        opens = hash("door") % 3
        return (4, 1.0, True, False, {}) if self.cell == 3 and action == opens else super().step(action % 2)

    def reward(self) -> float:
        return 0.0


class Placed(Hashed):
    """A game in which the place of a class in memory chooses the opening action."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        opens = id(Line) // 64 % 3
        return (4, 1.0, True, False, {}) if self.cell == 3 and action == opens else Line.step(self, action % 2)


class Named(Line):
    """A game in which the hash of a text has no effect."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return super().step(action + 0 * hash("door"))


class Held(Named):
    """A game that cannot be sent to another process."""

    def __reduce__(self) -> Any:
        raise TypeError("a window cannot be sent")


def in_main(kind: type[Line]) -> type[Line]:
    """Return a class that no other process can import, as one in a notebook."""
    return type(kind.__name__, (kind,), {"__module__": "__main__"})


@pytest.mark.parametrize("env", [in_main(Hashed), Hashed(), Placed()], ids=["notebook", "object", "address"])
def test_a_rule_that_depends_on_the_hash_of_a_text_or_an_address_is_refused(env: Any) -> None:
    with pytest.raises(CertifyError, match=r"in this process, .* in a new one.*hash\(\) and sets of texts, or id\(\)"):
        pivot.certify(env, actions=[1, 0], horizon=5, seed=0, checks=8)


@pytest.mark.parametrize("env", [in_main(Named), lambda: gymnasium.Wrapper(Copied())], ids=["notebook", "wrapped"])
def test_a_normal_game_is_replayed_in_a_new_process(env: Any) -> None:
    assert pivot.certify(env, actions=[1, 2], horizon=9, seed=0, checks=8).pivot_step == 1


def test_what_cannot_be_sent_is_refused_only_where_it_asks_for_hashes() -> None:
    with pytest.raises(
        CertifyError, match=r"cannot be sent to another process, and whose code calls hash\(\) or id\(\)"
    ):
        pivot.certify(Held(), actions=[1, 2], horizon=9, seed=0, checks=8)
    assert pivot.certify(Held(), actions=[1, 2], horizon=9, seed=0, **QUICK).pivot_step == 1


class Unset(Line):
    """A game that cannot draw before reset."""

    def render(self) -> Any:
        return self.np_random.picture  # pyright: ignore[reportAttributeAccessIssue]


def test_an_error_of_the_code_that_makes_an_environment_names_the_method() -> None:
    with pytest.raises(CertifyError, match=r"Unset.render \(.*, line \d+\) raised AttributeError.*first reset"):
        pivot.certify(lambda: gymnasium.wrappers.AddRenderObservation(Unset()), actions=[1], horizon=9, seed=0)


def test_a_function_that_makes_no_environment_is_named() -> None:
    made: Any = lambda: 3  # noqa: E731 - what a user would write
    for call in (partial(pivot.explore, made), partial(pivot.certify, made, actions=[0], horizon=1)):
        with pytest.raises(CertifyError, match="env: the function returned 3, expected a gymnasium environment"):
            call()
