"""Levels and the reward of a rollout for verl, by the file that ``reward.custom_reward_function.path`` names.

Read in verl 0.9.1: ``trainer/ppo/reward.py`` loads the function; ``experimental/reward_loop/reward_manager/naive.py``
calls it with the decoded response of all turns, and takes one number per rollout. ``utils/dataset/rl_dataset.py`` reads
the rows. This file imports nothing of verl.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from ...core.messages import THINK_TAGS, in_think_tags
from ...environments.base import Task
from .play import DEFAULT_RULE, Game

_TAG = rf"(?:{'|'.join(THINK_TAGS)})>"
_THOUGHT = re.compile(rf"(?:\A|<{_TAG})(?:(?!<{_TAG}).)*?</{_TAG}", re.DOTALL)


def rows(env: str, tasks: int = 100, seed: int = 0, settings: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return one row per level for verl's dataset: ``prompt`` and ``images`` of the first turn, and the level.

    Raises:
        ConfigError, PluginError, GenerationError: the environment, a setting or the number of levels cannot be used.
    """
    game, made = Game(env, "verl", settings, None), list[dict[str, Any]]()
    for task in game.tasks(tasks, seed):
        play = game.play(task)
        parts = play.observe()
        text = "\n".join("<image>" if part["type"] == "image" else part["text"] for part in parts)
        pictures = [play.pictures[part["frame_id"]].image for part in parts if part["type"] == "image"]
        play.close()
        level = json.dumps({"env": env, "settings": dict(settings or {}), "level": asdict(task)})
        made.append(
            {
                "data_source": f"pivot/{env}",
                "prompt": [{"role": "user", "content": text}],
                "images": [{"bytes": picture} for picture in pictures],
                "reward_model": {"style": "rule", "ground_truth": level},
                "extra_info": {"index": len(made)},
            }
        )
    return made


def compute_score(
    data_source: str,  # noqa: ARG001 - verl gives it
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    rule: str = DEFAULT_RULE,
    credit_weight: float = 1.0,
    **_: Any,
) -> dict[str, Any]:
    """Play a rollout again and return its reward, ``episode_return`` plus the weighted sum of the credit of its turns.

    Args:
        data_source: name of the data, which is not used.
        solution_str: the response of all turns; its replies are the answer tags outside of closed think blocks.
        ground_truth: the level, from :func:`rows`.
        extra_info: with ``replies``, a list of whole replies, in place of those in ``solution_str``.
        rule: rule of :func:`pivot.credit`; ``none`` for no credit.
        credit_weight: weight of the credit.

    Returns:
        ``score``, ``acc`` (1 for success), ``episode_return``, ``credit``, and ``turn_rewards`` as JSON: the credit of
        every turn, ``null`` without a rule or where the solver gave up; the score is then the return alone. Turns that
        the model left out have an empty reply each.
    """
    source = json.loads(ground_truth)
    game = _game(source["env"], json.dumps(source["settings"], sort_keys=True), rule)
    play = game.play(Task(**source["level"]))
    for reply in (extra_info or {}).get("replies") or _replies(solution_str, game.kind.profile.answer_tag):
        if not play.is_over:
            play.take(reply)
    episode = play.finish()
    turn_rewards = play.turn_rewards
    gained = float(sum(turn_rewards or ()))
    play.close()
    return {
        "score": episode.episode_return + credit_weight * gained,
        "acc": float(episode.success is True),
        "episode_return": episode.episode_return,
        "credit": gained,
        "turn_rewards": json.dumps(turn_rewards),
    }


def _replies(text: str, tag: str) -> list[str]:
    """Return the answers outside of thoughts, without the dots of the form in later prompts."""
    answer = rf"<{tag}>(?!(?:<svg )?\.\.\.).*?</{tag}>"
    return re.findall(answer, _THOUGHT.sub("", in_think_tags(text)), re.DOTALL | re.IGNORECASE)


@lru_cache(maxsize=16)
def _game(env: str, settings: str, rule: str) -> Game:
    return Game(env, "verl", json.loads(settings), None if rule == "none" else rule)
