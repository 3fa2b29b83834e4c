"""SVG reconstruction: the contract, and the rules of submissions by hand."""

import json
from typing import Any, ClassVar

import numpy as np
import pytest
from pivot.core.errors import ConfigError, LevelError
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.svg.sandbox.pool import rasterise
from pivot.environments.svg.sandbox.raster import SIDE
from pivot.testing import EnvironmentContract

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10">'
RED = f'{HEAD}<rect x="1" y="1" width="6" height="6" fill="red"/></svg>'
RED_AGAIN = f'{HEAD}<rect x="1" y="1" width="6" height="6" fill="#f00"/></svg>'
BLUE = f'{HEAD}<rect x="2" y="2" width="6" height="6" fill="blue"/></svg>'
CIRCLE = f'{HEAD}<circle cx="5" cy="5" r="3" fill="teal"/></svg>'
NEAR = f'{HEAD}<rect x="1" y="1" width="6" height="5.5" fill="#e11"/></svg>'
NEARER = f'{HEAD}<rect x="1" y="1" width="6" height="5.9" fill="#f11"/></svg>'
BROKEN = f'{HEAD}<rect x="1"'
LEVEL = json.dumps({"target": RED})


def payload(document: str) -> tuple[str, str]:
    return "svg", json.dumps(document)


class TestSvgContract(EnvironmentContract):
    env_type = SvgEnv
    settings = ({}, {"horizon": 4, "success_return": 0.9})
    actions = tuple(payload(document) for document in (RED, BLUE, CIRCLE, BROKEN))
    answers: ClassVar = {
        RED: payload(RED),
        f"```svg\n{BLUE}\n```": payload(BLUE),
        f" \n{CIRCLE} ": payload(CIRCLE),
        BROKEN: payload(BROKEN),
    }
    garbage = ("", "a red square", "svg", f"Here it is: {RED}", "<html></html>", "```svg\n```", f"{HEAD}{'x' * 2**19}")
    bad_states: ClassVar = {
        "": "not JSON",
        "[" * 100_000: "not JSON",
        "{}": "target",
        '{"target": 3}': "a text",
        '{"target": ""}': "empty",
        json.dumps({"target": RED, "goal": 1}): "goal",
        json.dumps({"target": RED + "\0"}): "not_text",
        json.dumps({"target": RED, "canvas": [1]}): "canvas",
        json.dumps({"target": RED, "canvas": BLUE, "scores": 0.5}): "scores",
        json.dumps({"target": RED, "canvas": BLUE, "scores": {"average": 2, "parts": {}}}): "scores",
        json.dumps({"target": RED, "canvas": BLUE, "scores": {"average": 0.5, "parts": {"x": None}}}): "scores",
        '{"target": "\\ud800<svg/>"}': "not_text",
    }
    both: ClassVar = {"canvas": BLUE, "target": RED}
    scored = json.dumps(both | {"scores": {"average": 0.5, "parts": {"x": 0.5}}})
    equal_states = ((LEVEL, json.dumps({"target": RED}, indent=2)), (json.dumps({"target": RED} | both), scored))
    bad_settings = (
        ({"horizon": 0}, "horizon"),
        ({"success_return": 1.5}, "success_return"),
        ({"scorer": "clip"}, "'clip'"),
        ({"scorer_version": "0"}, "not comparable"),
        ({"targets": "/no/such/folder"}, "/no/such/folder"),
        ({"targets": "hf:/no/such/folder:Svg"}, "/no/such/folder"),
        ({"targets": "hf:name"}, "hf:DATASET:COLUMN"),
    )
    info_keys = frozenset({"valid_svg", "average_score", "remaining_turns", "submission_outcome", "score_parts"})
    reward_range = (0.0, 1.0)
    seeds = tuple(range(6))
    gym_id = "pivot/Svg-v0"

    def test_unusable_action_costs_a_turn_and_changes_nothing(self) -> None:
        """The canvas stays blank before the first drawing, and the last turn is rewarded for it."""
        for env, level, rng in self.episodes():
            env.reset(options={"state": level})
            blank, reward, _, _, info = env.step("")
            assert (blank == 255).all()
            assert (reward, info["valid_svg"], info["average_score"]) == (0, False, 0)
            assert info["remaining_turns"] == env.config.horizon - 1
            env.reset(options={"state": level})
            frame, *_ = env.step(rng.choice([RED, BLUE, CIRCLE]))
            text, key, score = env.state_text(), env.frame_key(), json.loads(env.state_text())["scores"]["average"]
            while True:
                after, reward, terminated, truncated, info = env.step(rng.choice(["", BROKEN]))
                assert np.array_equal(frame, after)
                assert (env.state_text(), env.frame_key()) == (text, key)
                assert (info["average_score"], terminated) == (0, False)
                assert reward == (score if truncated else 0)
                if truncated:
                    break


def play(env: SvgEnv, *documents: str) -> list[tuple[float, bool, bool, dict[str, Any]]]:
    env.reset(options={"state": LEVEL})
    return [env.step(document)[1:] for document in documents]


def test_the_same_picture_ends_the_episode_with_score_one() -> None:
    ((*ends, info),) = play(SvgEnv(), RED_AGAIN)
    assert ends == [1.0, True, False]
    drawn = {"valid_svg": True, "average_score": 1.0, "remaining_turns": 1, "submission_outcome": "ok"}
    assert info == drawn | {"score_parts": '{"colour":1.0,"edges":1.0,"structure":1.0}'}


def test_only_the_last_turn_is_paid() -> None:
    first, second = play(SvgEnv(), NEAR, NEARER)
    assert first[0] == 0
    assert 0 < first[3]["average_score"] < second[3]["average_score"] < 1
    assert second[0] == second[3]["average_score"]
    assert second[1:3] == (False, True)


@pytest.mark.parametrize("bad", ["", "   ", BROKEN, "<html/>", "\ud800"])
def test_a_bad_last_submission_scores_zero_and_the_earlier_canvas_is_paid(bad: str) -> None:
    first, second = play(SvgEnv(), NEAR, bad)
    assert second[3]["average_score"] == 0
    assert second[3]["valid_svg"] is False
    assert second[0] == first[3]["average_score"] > 0


def test_nothing_drawn_at_all_is_paid_nothing() -> None:
    steps = play(SvgEnv(), "", BROKEN)
    assert [step[0] for step in steps] == [0, 0]
    assert [step[3]["submission_outcome"] for step in steps] == ["empty", "not_svg"]


def test_success_is_a_setting() -> None:
    env = SvgEnv(SvgConfig(success_return=0.1))
    assert env.success_return == 0.1
    (step,) = play(env, NEAR)
    assert step[1]
    assert step[0] == step[3]["average_score"] >= 0.1


def test_observations_are_the_target_then_the_canvas() -> None:
    env = SvgEnv(SvgConfig(horizon=4))
    frames = [env.reset(options={"state": LEVEL})[0]]
    frames += [env.step(document)[0] for document in ("", BLUE, BROKEN)]
    blank = np.full((SIDE, SIDE, 3), 255, np.uint8)
    for frame, document in zip(frames, (RED, None, BLUE, BLUE), strict=True):
        expected = blank if document is None else rasterise(document).pixels
        assert expected is not None
        assert np.array_equal(frame, expected)


def test_a_later_state_is_a_level_too() -> None:
    env, other = SvgEnv(SvgConfig(horizon=3)), SvgEnv(SvgConfig(horizon=3))
    env.reset(options={"state": LEVEL})
    frame, *_ = env.step(BLUE)
    for text in (env.state_text(), SvgEnv.canonical_state(env.state_text())):
        shown, _ = other.reset(options={"state": text})
        assert np.array_equal(shown, frame)
        assert other.state_text() == env.state_text()


def test_a_target_that_cannot_be_drawn_is_no_level() -> None:
    env = SvgEnv()
    env.reset(options={"state": LEVEL})
    before = env.snapshot()
    with pytest.raises(LevelError, match=r"target.*not_svg"):
        env.reset(options={"state": json.dumps({"target": BROKEN})})
    with pytest.raises(LevelError, match=r"canvas.*not_svg"):
        env.reset(options={"state": json.dumps({"target": RED, "canvas": BROKEN})})
    assert env.snapshot() == before


def test_snapshots_of_something_else_are_refused() -> None:
    env = SvgEnv()
    good = json.dumps({"turn": 0, "state": {"target": RED}}).encode()
    env.restore(good)
    turns = [good.replace(b": 0", turn) for turn in (b": 3", b": true")]
    for bad in (b"", b"{}", b"\xff", b"[]", b'{"turn":0}', *turns):
        with pytest.raises(LevelError):
            env.restore(bad)


def test_misuse_is_refused() -> None:
    env = SvgEnv()
    with pytest.raises(ConfigError, match="stat"):
        env.reset(options={"stat": LEVEL})
    env.reset(seed=0, options={"instruction": "Draw."})
    assert env.task_instruction == "Draw."
    with pytest.raises(ValueError, match="int"):
        env.step(5)  # pyright: ignore[reportArgumentType]
    for name, text in (("svg", None), ("empty", '"x"'), ("svg", "[1]"), ("svg", "<svg/>")):
        with pytest.raises(ValueError, match="payload"):
            env.encode_action(name, text)


def test_documents_keep_case_and_any_character() -> None:
    text = f'{HEAD}<!-- Größe 人 😀 --><linearGradient id="A"/></svg>'
    parsed = SvgEnv().parse_action(text)
    assert parsed is not None
    assert SvgEnv().encode_action(parsed.name, parsed.payload) == text
