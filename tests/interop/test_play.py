"""Check episodes for loops of other trainers against PIVOT's own rollouts, with replies good and bad."""

import json
import random
from typing import Any

import pytest
from pivot.core.errors import ConfigError
from pivot.interop.trainers import verl
from pivot.interop.trainers.play import Game
from pivot.tests.interop.reference import facts, own_rollout, scores_of, shown_frames

MOVES = ("up", "down", "left", "right")


def some_reply(rng: random.Random, most: int = 1) -> str:
    """A reply of any quality."""
    moves = ", ".join(rng.choices(MOVES, k=rng.randint(1, most)))
    good = f"<think>x</think><action>{moves}</action>"
    return rng.choice([good] * 6 + [f"<action>{moves}</action>", "", "left", "<think>"])


def compare(env: str, settings: dict[str, Any], count: int) -> None:
    """Play levels with random replies, and compare records and pictures with PIVOT's rollouts."""
    game = Game(env, "test", settings, None if env == "svg" else "progress")
    rng, most = random.Random(1), settings.get("actions_per_turn", 1)
    for task in game.tasks(count, 0):
        play, replies, shown = game.play(task), [], []
        while not play.is_over:
            shown += [part["frame_id"] for part in play.observe() if part["type"] == "image"]
            replies.append(some_reply(rng, most))
            play.take(replies[-1])
        record = own_rollout(env, task, replies, settings)
        assert facts(play.episode) == facts(record.episodes[0])
        assert shown == shown_frames(record) and len(shown) >= play.episode.num_steps
        play.close()


@pytest.mark.parametrize(
    ("env", "settings", "count"),
    [
        ("sokoban", {}, 4),
        ("sokoban", {"actions_per_turn": 3}, 4),
        ("frozenlake", {}, 4),
        ("navigation", {"horizon": 6}, 1),
        ("svg", {}, 1),
    ],
)
def test_an_episode_equals_the_rollout_of_the_same_replies(env: str, settings: dict[str, Any], count: int) -> None:
    compare(env, settings, count)


def test_turn_rewards_are_the_credit_of_the_whole_episode_at_every_turn() -> None:
    for env, rule in (("sokoban", "progress"), ("frozenlake", "pivot")):
        game = Game(env, "test", rule=rule)
        for task in game.tasks(10, 3):
            play, rng, online = game.play(task), random.Random(task.task_id), []
            while not play.is_over:
                play.take(some_reply(rng))
                rewards = play.turn_rewards
                assert rewards is not None
                online.append(rewards[-1])
            assert online == scores_of(play.episode, rule)


def test_a_model_that_stops_early_pays_for_every_turn_that_is_left() -> None:
    game = Game("sokoban", "test")
    (task,) = game.tasks(1, 0)
    play = game.play(task)
    play.take("")
    assert facts(play.finish()) == facts(own_rollout("sokoban", task, []).episodes[0])
    with pytest.raises(ConfigError, match="after the end of the episode"):
        play.take("")


def test_a_text_is_shown_once_and_a_picture_at_every_turn() -> None:
    game = Game("sokoban", "test")
    (task,) = game.tasks(1, 0)
    play = game.play(task)
    assert [part["type"] for part in play.observe()] == ["text", "image", "text"]
    play.take("")
    assert [part["type"] for part in play.observe()] == ["image"]
    assert play.observe_urls()[0]["image_url"]["url"].startswith("data:image/png;base64,")
    play.finish()
    assert play.observe() == [{"type": "text", "text": "No turns are left."}]


def test_what_cannot_be_used_is_refused_before_the_first_episode() -> None:
    with pytest.raises(ConfigError, match="credit of svg"):
        Game("svg", "test")
    assert Game("svg", "test", rule=None).rule is None
    with pytest.raises(ConfigError, match="expected one of progress"):
        Game("sokoban", "test", rule="best")
    with pytest.raises(ConfigError, match="boxs"):
        Game("sokoban", "test", {"boxs": 2})


def test_credit_of_an_environment_without_rules_is_measured_from_its_states() -> None:
    game = Game("navigation", "test", {"horizon": 6})
    (task,) = game.tasks(1, 0)
    play = game.play(task)
    play.take("<think>x</think><action>moveahead</action>")
    assert play.turn_rewards is not None and len(play.turn_rewards) == 1


def test_the_reward_for_verl_is_that_of_the_replayed_rollout() -> None:
    """It is called as by verl's reward manager: with keywords, some of which it ignores."""
    rng, scores = random.Random(2), set[float]()
    game = Game("frozenlake", "test")
    for row, task in zip(verl.rows("frozenlake", 6, seed=3), game.tasks(6, 3), strict=True):
        first = game.play(task)
        shown = [part for part in first.observe() if part["type"] == "image"]
        assert row["images"] == [{"bytes": first.pictures[part["frame_id"]].image} for part in shown]
        assert row["prompt"][0]["content"].count("<image>") == len(shown) > 0
        replies = [f"<think>x</think><action>{rng.choice(MOVES)}</action>" for _ in range(9)]
        said = {"data_source": row["data_source"], "ground_truth": row["reward_model"]["ground_truth"]}
        whole = verl.compute_score(**said, solution_str="", extra_info={"replies": replies}, reward_router_address=None)
        while not first.is_over:
            first.take(replies[first.episode.num_steps])
        credits_ = scores_of(first.episode, "progress")
        assert whole["score"] == first.episode.episode_return + sum(credits_) and whole["acc"] == first.episode.success
        assert whole["turn_rewards"] == str(credits_)
        plain = verl.compute_score(**said, solution_str="", extra_info={"replies": replies}, rule="none")
        assert (plain["score"], plain["turn_rewards"]) == (first.episode.episode_return, "null")
        tags = [reply.partition("</think>")[2] for reply in replies]
        decoded = verl.compute_score(**said, solution_str="\n\nYou see the lake.\n".join(tags), extra_info={"index": 0})
        assert decoded["credit"] == whole["credit"] and decoded["acc"] == whole["acc"]
        scores.add(whole["score"])
    assert len(scores) > 3


def test_the_response_of_verl_is_read_in_the_tag_of_the_environment_outside_of_thoughts() -> None:
    form = "<think>...</think><answer><svg ...>...</svg></answer>"
    level = verl.rows("svg", 1)[0]["reward_model"]["ground_truth"]
    target = json.loads(json.loads(level)["level"]["initial_state"])["target"]
    replies = [f"<think>or <answer>x</answer></think><answer>{each}</answer>" for each in ("<svg></svg>", target)]
    response = f"\nuser\n{form}\nassistant\n".join(replies).removeprefix("<think>")  # which ended the prompt
    said = {"data_source": "", "ground_truth": level, "rule": "none"}
    whole = verl.compute_score(**said, solution_str="", extra_info={"replies": replies})
    assert verl.compute_score(**said, solution_str=response) == whole and whole["acc"] == 1
