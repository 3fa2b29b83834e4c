"""``pivot.certify``: types, limits; many episodes of an environment of one's own, checked by a search in the test."""

import base64
import pickle
import random
import time
from contextlib import suppress
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pivot
import pytest
from pivot import Unsolved, Verdict
from pivot.collage import collage
from pivot.core.errors import CertifyError
from pivot.core.images import decode
from pivot.labeling.target import parse_target
from pivot.solvers import api
from pivot.solvers.closure import batch

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
BY_NAME: Any = {"actions_by_name": {name: index for index, name in enumerate(MOVES)}}
NAMED: Any = {**BY_NAME, "checks": 16, "fresh": False}
HORIZON, SIZE = 12, 5


class Cave(gymnasium.Env[Any, Any]):
    """A grid with traps; the agent sees the cells around it, and the seed or ``traps`` is the level."""

    action_space = gymnasium.spaces.Discrete(4)
    observation_space = gymnasium.spaces.Box(0, 3, (3, 3), np.int8)

    def __init__(self, traps: Any = None) -> None:
        self.fixed = traps

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.traps, self.at = traps_of(seed) if self.fixed is None else frozenset(self.fixed), (0, 0)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.at = after(self.at, [*MOVES][int(action)])
        won = self.at == (SIZE - 1, SIZE - 1)
        return self._seen(), float(won), won or self.at in self.traps, False, {}

    def _seen(self) -> Any:
        around = [(self.at[0] + r, self.at[1] + c) for r in (-1, 0, 1) for c in (-1, 0, 1)]
        return np.array([cell in self.traps for cell in around], np.int8).reshape(3, 3)


def traps_of(seed: int | None) -> frozenset[tuple[int, int]]:
    cells = [(r, c) for r in range(SIZE) for c in range(SIZE) if 1 < r + c < 2 * SIZE - 3]
    return frozenset(random.Random(seed).sample(cells, 4))


def after(at: tuple[int, int], move: str) -> tuple[int, int]:
    r, c = at[0] + MOVES[move][0], at[1] + MOVES[move][1]
    return min(SIZE - 1, max(0, r)), min(SIZE - 1, max(0, c))


@cache
def within(traps: frozenset[tuple[int, int]], at: tuple[int, int], turns: int) -> bool:
    if at == (SIZE - 1, SIZE - 1):
        return True
    return at not in traps and turns > 0 and any(within(traps, after(at, move), turns - 1) for move in MOVES)


def failures(count: int, levels: int) -> list[dict[str, Any]]:
    rng, failed = random.Random(3), list[dict[str, Any]]()
    while len(failed) < count:
        seed, env, over = len(failed) % levels, Cave(), False
        actions, seen, won = list[str](), [env.reset(seed=seed)[0].tolist()], 0.0
        while not over and len(actions) < HORIZON:
            actions.append(rng.choice([*MOVES]))
            observation, won, over, *_ = env.step([*MOVES].index(actions[-1]))
            seen.append(observation.tolist())
        if not won:
            failed.append({"seed": seed, "horizon": HORIZON, "actions": actions, "observations": seen})
    return failed


@pytest.fixture(scope="module")
def played() -> list[dict[str, Any]]:
    return failures(60, 3)


@pytest.fixture(scope="module")
def verdicts(played: list[dict[str, Any]]) -> list[Any]:
    return pivot.certify_batch(Cave, played, **NAMED)


def _states(trajectory: dict[str, Any]) -> list[tuple[int, int]]:
    states = [(0, 0)]
    for action in trajectory["actions"]:
        states.append(after(states[-1], action))
    return states


def test_a_level_is_searched_once_and_labels_are_those_of_single_calls(
    played: list[dict[str, Any]], verdicts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a level that is searched again for each episode, or a label of another level."""
    searched, explore = list[Any](), batch.explore
    monkeypatch.setattr(batch, "explore", lambda env, **more: searched.append(more["seed"]) or explore(env, **more))
    assert pivot.certify_batch(Cave, played, **NAMED) == verdicts
    assert searched == [0, 1, 2]
    one = played[4]
    assert verdicts[4] == pivot.certify(Cave, actions=one["actions"], horizon=HORIZON, seed=one["seed"], **NAMED)
    levels = [{**each, "level": [*traps_of(each["seed"])], "seed": None} for each in played]
    assert pivot.certify_batch(Cave, levels, **NAMED) == verdicts


def test_pivots_pairs_and_corrections_are_true(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    def prompt(observation: Any, history: Any) -> str:
        return f"{np.asarray(observation).tolist()} after {[action for _, action in history]}"

    for trajectory, verdict in zip(played, verdicts, strict=True):
        traps, states = traps_of(trajectory["seed"]), _states(trajectory)
        lost = [not within(traps, state, HORIZON - t - 1) for t, state in enumerate(states[1:])]
        assert verdict.pivot_step == lost.index(True)
    pairs = pivot.pairs(verdicts, played, prompt)
    replayed = pivot.pairs(verdicts, [_bare(each) for each in played], prompt, make_env=Cave, **BY_NAME)
    assert len(pairs) > 40 and pairs == replayed
    for row in pairs:
        trajectory, t = played[row["index"]], row["t"]
        traps, state = traps_of(trajectory["seed"]), _states(trajectory)[t]
        chosen, rejected = row["chosen"][0]["content"], row["rejected"][0]["content"]
        assert within(traps, after(state, chosen), HORIZON - t - 1)
        assert rejected == trajectory["actions"][t] and not within(traps, after(state, rejected), HORIZON - t - 1)
        question = f"{trajectory['observations'][t]} after {trajectory['actions'][:t]}"
        assert row["prompt"] == [{"role": "user", "content": question}]
    rows = pivot.corrections(verdicts, played, prompt, make_env=Cave, **BY_NAME)
    assert len(rows) == sum(len(verdict.witness or ()) for verdict in verdicts)
    for row in rows:
        trajectory, first = played[row["index"]], verdicts[row["index"]]
        taken = [*trajectory["actions"][: first.pivot_step], *first.witness][: row["t"]]
        state = _states({"actions": taken})[-1]
        move = row["completion"][0]["content"]
        assert within(traps_of(trajectory["seed"]), after(state, move), HORIZON - row["t"] - 1)
        assert row["prompt"][0]["content"].endswith(f"after {taken}")
    assert len(pivot.corrections(verdicts, played, prompt)) == len([each for each in verdicts if each.witness])


def _bare(trajectory: dict[str, Any]) -> dict[str, Any]:
    return {**trajectory, **dict.fromkeys(("observations", "replies", "rewards", "frames"))}


def test_replies_and_pictures_are_kept(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    said = [{**each, "replies": [f"<think>hm</think><move>{a}</move>" for a in each["actions"]]} for each in played]

    def prompt(observation: Any, history: Any) -> Any:
        parts = [{"type": "image", "image": np.array(observation)}, {"type": "text", "text": "Where?"}]
        return [{"role": "user", "content": parts}]

    row = pivot.pairs(verdicts, said, prompt)[0]
    assert row["rejected"][0]["content"] == f"<think>hm</think><move>{row['rejected_action']}</move>"
    chosen, end = row["chosen"][0]["content"], f"</think><move>{row['chosen_action']}</move>"
    assert chosen.startswith("<think>The goal takes") and chosen.endswith(end)
    assert row["prompt"][0]["content"] == [{"type": "image"}, {"type": "text", "text": "Where?"}]
    assert row["images"][0].tolist() == played[row["index"]]["observations"][row["t"]]
    framed = [{"role": "user", "content": [{"type": "image", "image": np.full((2, 3, 3), 7, np.uint8)}]}]
    assert pivot.pairs(verdicts, played, lambda *_: framed)[0]["images"][0].size == (3, 2)


def test_credit_is_that_of_the_labels(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    for turns, verdict in zip(pivot.credit(Cave, played, **NAMED), verdicts, strict=True):
        assert not isinstance(turns, pivot.Unsolved)
        assert [turn.is_pivot for turn in turns].index(True) == verdict.pivot_step
        assert turns[verdict.pivot_step].safe_actions == verdict.feasible_actions


def test_bad_episodes_have_a_reason_and_stop_nothing(played: list[dict[str, Any]]) -> None:
    good = played[0]
    won = {**good, "actions": ["down"] * 4 + ["right"] * 4, "level": ()}
    episodes = [
        {**good, "rewards": [1.0] * len(good["actions"])},
        {**good, "actions": ["jump"]},
        won,
        {**good, "level": tuple((r, 2) for r in range(SIZE))},
        {**good, "rewards": [0.0] * len(good["actions"])},
    ]
    answers = pivot.certify_batch(Cave, episodes, **NAMED)
    reasons = [getattr(each, "reason", None) for each in answers]
    assert reasons == ["bad_episode", "bad_episode", "not_a_failure", "solver_limit", None]

    class Unseeded(Cave):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=int(self.np_random.integers(99)) if seed is None else seed)

    (answer,) = pivot.certify_batch(Unseeded, [{"actions": ["up"], "horizon": 1}], **NAMED)
    assert isinstance(answer, pivot.Unsolved) and "the trajectory has no seed" in answer.detail
    with pytest.raises(CertifyError, match=r"episodes\[0\]: found .*, expected a mapping with actions and horizon"):
        pivot.certify_batch(Cave, [{"actions": []}])
    with pytest.raises(CertifyError, match="found 5 for 1 trajectories"):
        pivot.pairs(answers, [good], lambda *_: "")
    with pytest.raises(CertifyError, match="record them, or pass make_env"):
        pivot.pairs(answers[-1:], [_bare(good)], lambda *_: "")


class DrawnCave(Cave):
    """Draws its agent as a white pixel."""

    def render(self) -> Any:
        picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        picture[self.at] = 255
        return picture


def test_rows_for_an_analyzer_show_the_played_episode_and_its_label(
    played: list[dict[str, Any]], verdicts: list[Any]
) -> None:
    rows = pivot.analyzer_rows(verdicts, played, "Cross the cave.", make_env=DrawnCave, **BY_NAME)
    assert len(rows) == sum(not verdict.fallback for verdict in verdicts) > 40
    recorded = []
    for row in rows:
        trajectory, verdict = played[row["index"]], verdicts[row["index"]]
        target = parse_target(row["completion"][0]["content"])
        assert (target.pivot_step, target.failure_mode) == (verdict.pivot_step, verdict.failure_mode)
        assert verdict.witness[0] in target.failure_reason
        image, text = row["prompt"][0]["content"]
        assert image == {"type": "image"} and "Cross the cave." in text["text"]
        log = [line for line in text["text"].splitlines() if line.startswith("step ")]
        assert [line.split()[-1] for line in log] == [f"action={each}" for each in trajectory["actions"]], log
        frames = []
        for r, c in _states(trajectory)[:-1]:
            frames.append(np.zeros((SIZE, SIZE, 3), np.uint8))
            frames[-1][r, c] = 255
        assert (np.asarray(row["images"][0]) == collage(frames)).all()
        recorded.append({**trajectory, "frames": frames})
    bare = [verdicts[row["index"]] for row in rows]
    again = pivot.analyzer_rows(bare, recorded, "Cross the cave.", actions_by_name=BY_NAME["actions_by_name"])
    assert [each["images"] for each in again] == [each["images"] for each in rows]
    with pytest.raises(CertifyError, match=r"trajectories\[0\]: found 0 frames .*render_mode"):
        pivot.analyzer_rows(verdicts, played, "Cross the cave.", make_env=Cave, **BY_NAME)


def test_a_notebook_shows_the_pictures_around_the_pivot(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    class Rendered(DrawnCave):
        render_mode = "rgb_array"

    (answer,) = pivot.certify_batch(Rendered, played[:1], **NAMED)
    assert isinstance(answer, Verdict) and answer == verdicts[0] == pickle.loads(pickle.dumps(answer))
    picture = decode(base64.b64decode(answer._repr_html_().partition("base64,")[2].partition('"')[0]))
    before, after_it = _states(played[0])[answer.pivot_step : answer.pivot_step + 2]
    for place, (r, c) in ((picture[:, :SIZE], before), (picture[:, -SIZE:], after_it)):
        assert place[r, c].tolist() == [255] * 3 and place.sum() == 255 * 3
    assert "base64" not in verdicts[0]._repr_html_()


class MaskedCave(DrawnCave):
    """Forbids to leave the grid at its start, and raises if that is tried."""

    render_mode, mask = "rgb_array", "action_mask"

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], {self.mask: np.array([0, 1, 0, 1], np.int8)}

    def step(self, action: Any) -> Any:
        assert self.at != (0, 0) or int(action) in (1, 3), "an illegal action was played"
        seen, *facts, _ = super().step(action)
        legal = [0, 1, 0, 1] if self.at == (0, 0) else [1] * 4
        return seen, *facts, {self.mask: np.array(legal, np.int8)}


@pytest.mark.parametrize("mask", ["action_mask", "no mask"])
def test_an_illegal_turn_is_not_played_again(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaskedCave, "mask", mask)
    wasted = {"seed": 0, "horizon": 8, "actions": ["up", "down", "down"]}
    with pytest.warns(UserWarning, match="stop before their horizon"):
        (answer,) = pivot.certify_batch(MaskedCave, [wasted], illegal="invalid", **NAMED)
    assert isinstance(answer, Verdict), answer
    assert answer.pivot_step == 0 and "base64" in answer._repr_html_()
    (row,) = pivot.analyzer_rows([answer], [wasted], "Cross.", make_env=MaskedCave, **BY_NAME)
    assert row["pivot_step"] == 0


class OneBuffer(Cave):
    """Fills one array in place, as fast environments do."""

    def _seen(self) -> Any:
        self.buffer = getattr(self, "buffer", np.zeros((3, 3), np.int8))
        self.buffer[:] = super()._seen()
        return self.buffer


def _question(observation: Any, history: Any) -> str:
    return f"{np.asarray(observation).tolist()} after {[np.asarray(seen).tolist() for seen, _ in history]}"


def test_rows_do_not_show_a_later_observation(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    bare = [_bare(each) for each in played]
    for rows_of in (pivot.pairs, pivot.corrections):
        kept, refilled = (rows_of(verdicts, bare, _question, make_env=make, **BY_NAME) for make in (Cave, OneBuffer))
        assert kept == refilled


def test_observations_are_compared_with_a_replay_where_they_are_of_its_kind(
    played: list[dict[str, Any]], verdicts: list[Any]
) -> None:
    index, other = next((n, {**each, "seed": each["seed"] + 7}) for n, each in enumerate(played) if "seed" in each)
    (answer,) = pivot.certify_batch(Cave, [other], **NAMED)
    assert isinstance(answer, pivot.Unsolved) and "observations[" in answer.detail, "another level was not noticed"
    with pytest.raises(CertifyError, match=r"trajectories\[0\]: observations\[\d+\]: found another one than that of a"):
        pivot.pairs(verdicts[index : index + 1], [other], _question, make_env=Cave, **BY_NAME)
    pictures = [{**each, "observations": [f"picture {n}" for n in range(13)]} for each in played]
    rows = pivot.pairs(verdicts, pictures, lambda seen, _: seen, make_env=Cave, **BY_NAME)
    assert [row["prompt"][0]["content"] for row in rows] == [f"picture {row['t']}" for row in rows] and len(rows) > 40


def test_labels_and_trajectories_that_do_not_belong_together_are_refused(
    played: list[dict[str, Any]], verdicts: list[Any]
) -> None:
    numbered = [{**_bare(each), "actions": [[*MOVES].index(a) for a in each["actions"]]} for each in played]
    assert pivot.pairs(verdicts, numbered, _question, make_env=Cave, **BY_NAME)
    for trajectories, named in ((numbered[::-1], BY_NAME), (numbered, {})):
        with pytest.raises(CertifyError, match=r"verdicts\[0\]: found the label of the actions .*same actions_by_name"):
            pivot.pairs(verdicts, trajectories, _question, make_env=Cave, **named)
    with pytest.raises(CertifyError, match="found numbers without names"):
        pivot.pairs(verdicts, [{**each, "observations": [0] * 13} for each in numbered], _question)
    with pytest.raises(CertifyError, match="prompt: found 3, expected a text or a list of chat messages"):
        pivot.pairs(verdicts, played, lambda *_: 3)


def test_what_gives_no_row_or_may_be_cut_is_said(played: list[dict[str, Any]], verdicts: list[Any]) -> None:
    prose = [{**each, "replies": ["I go there."] * len(each["actions"])} for each in played]
    with pytest.warns(UserWarning, match=r"pairs are left out.*'I go there.'"):
        assert pivot.pairs(verdicts, prose, _question) == []
    with pytest.warns(UserWarning, match="no episode has a label"):
        assert pivot.pairs([pivot.Unsolved("bad_episode", "it is odd")], played[:1], _question) == []
    with pytest.raises(CertifyError, match=r"trajectories\[0\]: replies: found 0, expected \d+, one per turn"):
        pivot.pairs(verdicts, [{**each, "replies": []} for each in played], _question)
    cut = {"seed": 0, "horizon": HORIZON, "actions": ["down"]}
    with pytest.warns(UserWarning, match=r"1 of 1 episodes, first episodes\[0\], stop before their horizon"):
        (answer,) = pivot.certify_batch(Cave, [cut], **NAMED)
    assert isinstance(answer, pivot.Verdict) and answer.fallback
    html = answer._repr_html_()
    assert "<th>action at the pivot</th><td>down</td>" in html and "(no action was fatal)" in html
    with pytest.raises(CertifyError, match=r"sucess: found a setting .*did you mean 'success'"):
        pivot.certify_batch(Cave, [cut], sucess="terminated")


class PayingTraps(Cave):
    """A game whose ends all pay 1; the cells around the agent show which end it was."""

    codes = (1, 2)

    def step(self, action: Any) -> Any:
        seen, _, over, *_ = super().step(action)
        return seen, float(over), over, False, {}

    def _seen(self) -> Any:
        goal = np.array([(self.at[0] + r, self.at[1] + c) == (4, 4) for r in (-1, 0, 1) for c in (-1, 0, 1)])
        return np.where(goal.reshape(3, 3), self.codes[1], super()._seen() * self.codes[0])


class EqualEnds(PayingTraps):
    codes = (1, 1)


def test_ends_that_pay_the_same_under_other_codes_are_not_both_success(played: list[dict[str, Any]]) -> None:
    episodes = [{**_bare(each), "actions": ["up"] * HORIZON} for each in played[:2]]
    for answer in pivot.certify_batch(PayingTraps, episodes, **NAMED):
        assert isinstance(answer, pivot.Unsolved) and "observation[1][1]" in answer.detail, answer
    assert all(isinstance(answer, pivot.Verdict) for answer in pivot.certify_batch(EqualEnds, episodes, **NAMED))


ROOM = "######\n#@$ .#\n######"
LAKE = "SFF\nFHF\nFFG"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": 3}, "env: found 3, expected the name of an environment"),
        ({"initial_state": None}, "initial_state: found None, expected a level as text"),
        ({"initial_state": ""}, "initial_state: found an empty text"),
        ({"actions": "up"}, "actions: found 'up', expected a list of action names, such as"),
        ({"actions": None}, "actions: found None, expected a list"),
        ({"actions": ["up", 3]}, r"actions\[1\]: found 3, expected a text"),
        ({"actions": ["up|left"]}, "found 2 actions in the turn 'up|left', expected one"),
        ({"horizon": True}, "horizon: found True, expected a whole number"),
        ({"horizon": 0}, "horizon: found 0, expected a whole number of turns, 1 or more"),
        ({"horizon": 10**30}, "at most 1000000 is supported"),
        ({"steps": 3}, "steps: found 3, expected a list of mappings"),
        ({"steps": [3]}, r"steps\[0\]: found 3, expected a mapping"),
        ({"observations": "seen"}, "observations: found 'seen', expected a list of texts"),
        ({"time_limit": -1}, "time_limit: found -1, expected seconds"),
        ({"max_states": "lots"}, "solver sokoban: max_states: found 'lots', expected a whole number"),
        ({"initial_state": "", "distances": [2.0, 1.0]}, "distances: the solver of sokoban needs the level"),
        ({"env": "navigation", "distances": [2.0, 1.9]}, "distances: found together with initial_state or steps"),
        (
            {"env": "navigation", "initial_state": "", "distances": [2.0]},
            "distances: found 1 for 1 actions, expected 2",
        ),
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
    games = {"navigation": "moveahead", "primitiveskill": "pick(1,2,3)", "svg": "svg", "sokoban": "up"}
    for env, action in games.items():
        for _ in range(50):
            steps = [{key: draw.choice(values) for key in keys if draw.random() < 0.6} for _ in range(2)]
            try:
                pivot.certify(env, draw.choice(("{}", "null", ROOM, "<svg/>")), [action] * 2, 5, steps=steps)
            except CertifyError as error:
                assert "\n" not in str(error)


def test_actions_in_any_case_and_levels_in_vagens_symbols() -> None:
    ours = pivot.certify("sokoban", ROOM, ["right", "left"], 2)
    assert pivot.certify("sokoban", ROOM, [" Right", "LEFT"], 2) == ours
    spaced = "\n".join("".join(f" {cell} \t" for cell in row) for row in ("######", "#PX_O#", "######"))
    for level in ("######\n#PX_O#\n######", spaced):
        assert pivot.certify("sokoban", level, ["Right", "Left"], 2) == ours
    fall = pivot.certify("frozenlake", LAKE, ["right", "down"], 9)
    spaced = " P \t _ \t _ \t\n _ \t O \t _ \t\n _ \t _ \t G \t"
    assert pivot.certify("frozenlake", spaced, ["Right", "Down"], 9) == fall
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
        pivot.certify("sokoban", room, ["up"] * 5, 9, time_limit=0.1)  # already compiled
    began = time.process_time()
    with pytest.raises(CertifyError, match=r"solver_limit: no answer after \d+ states and 0.1 s; raise time_limit"):
        pivot.certify("sokoban", room, ["up"] * 5, 9, time_limit=0.1)
    assert time.process_time() - began < 5


def test_a_time_limit_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "FIRST_CAP", 2)
    for limit in (None, 60.0):
        assert pivot.certify("sokoban", _open_room(9, 1), ["invalid"] * 3, 40, time_limit=limit).fallback
    with pytest.raises(CertifyError, match="more than max_states = 5 states"):
        pivot.certify("sokoban", _open_room(9, 1), ["invalid"] * 3, 40, max_states=5)


def test_a_batch_answers_in_order_and_takes_rows_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"initial_state": ROOM, "horizon": 2, "episode_id": "e", "rewards": [0.0]}
    episodes = [row | {"actions": actions} for actions in (["right", "left"], ["right", "right"], ["jump"])]
    lost, won, bad = pivot.certify_batch("sokoban", episodes)
    assert lost == pivot.certify("sokoban", ROOM, ["right", "left"], 2) and isinstance(lost, Verdict)
    assert isinstance(won, Unsolved) and won.reason == "not_a_failure"
    assert isinstance(bad, Unsolved) and "unknown action 'jump'" in bad.detail
    assert pivot.certify_batch("sokoban", []) == []
    monkeypatch.setattr(api, "FIRST_CAP", 20)  # enough for the first level alone
    large = {"initial_state": _open_room(9, 1), "actions": ["invalid"] * 9, "horizon": 9}
    assert pivot.certify_batch("sokoban", [*episodes, large])[0] == lost


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
