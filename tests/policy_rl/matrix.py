"""Fixtures of updates of every arm on every environment: levels, one model per family, and rollouts, each made once."""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
pytest.importorskip("transformers")

from pivot.benchmarks.learning.player import FAMILIES, REPLY  # noqa: E402
from pivot.datasets.store.schema import EPISODES, STEPS  # noqa: E402
from pivot.datasets.store.tables import failed_episodes, rollout_tables  # noqa: E402
from pivot.labeling.analyzer import analyzer_text  # noqa: E402
from pivot.labeling.hindsight import Hindsight, hindsight_text  # noqa: E402
from pivot.rollouts.base import Policy, TaskRollouts  # noqa: E402
from pivot.rollouts.policies.scripted import ScriptedPolicy  # noqa: E402
from pivot.tests.models.from_scratch import DEVIATION, bpe_tokenizer, make_vlm  # noqa: E402
from pivot.training.encode import Encoder  # noqa: E402
from pivot.training.policy_rl import loop  # noqa: E402
from pivot.training.policy_rl.config import RlConfig, make_rl_config  # noqa: E402
from pivot.training.policy_rl.levels import Levels, plan_levels, roll_out  # noqa: E402

SETTINGS: dict[str, dict[str, Any]] = {
    "sokoban": {"horizon": 3},
    "frozenlake": {"size": 3, "horizon": 3},
    "navigation": {"horizon": 6},
    "primitiveskill": {"horizon": 3},
    "svg": {"horizon": 2},
}
SEARCHED = 24
"""Levels to search for one on which the stand-in's results differ."""
OWN, SCRIPTED = 1, 2
"""Episodes of the model itself, and of the stand-in, in the rollouts of an update."""


def config_of(env: str, arm: str, model: str) -> RlConfig:
    """Settings of a run of one small update."""
    few = {"prompts": 2, "rollouts": SCRIPTED, "levels": SEARCHED, "held_out": 0.1, "minibatch": 32, "updates": 1}
    short = {"max_tokens": 6, "analyzer_tokens": 4, "validation_episodes": 0, "lr": 1e-3}
    # An untrained Analyzer writes no valid guidance.
    larger = {"guidance": "prose"} | ({"teacher_model": model} if arm == "sdar" else {})
    return make_rl_config({"env": env, "settings": SETTINGS[env], "arm": arm, "model": model} | few | short | larger)


@cache
def levels_of(env: str) -> Levels:
    """The levels of an environment."""
    return plan_levels(config_of(env, "mp", "none"))


@cache
def _scripted_rollouts(env: str) -> list[TaskRollouts]:
    levels = levels_of(env)
    return roll_out(levels, levels.train, ScriptedPolicy(), SCRIPTED)


def contested(env: str) -> TaskRollouts:
    """The stand-in's episodes of a level of which it fails some; where it fails all, their returns differ."""
    for record in sorted(_scripted_rollouts(env), key=lambda each: all(episode.failed for episode in each.episodes)):
        returns = {round(episode.episode_return, 6) for episode in record.episodes}
        if len(returns) > 1 and any(episode.failed for episode in record.episodes):
            return record
    raise AssertionError(f"{env}: the stand-in plays all episodes of every level alike")


@cache
def _lines(env: str) -> tuple[str, ...]:
    """Return the texts in prompts of Student, Analyzer and Teacher."""
    levels = levels_of(env)
    rollouts, profile = roll_out(levels, levels.train[:2], ScriptedPolicy(), SCRIPTED), levels.env.profile
    tables = rollout_tables(rollouts)
    texts = [analyzer_text(profile, each) for each in failed_episodes(tables[EPISODES], tables[STEPS])]
    for record in rollouts:
        for prompt in record.prompts.values():
            texts += [part["text"] for part in prompt.messages[-1]["content"] if part["type"] == "text"]
    for mode in profile.failure_modes:
        texts.append(hindsight_text(env, Hindsight(("panel", "mode", "pivot"), 0, mode, "", None)))
    lines = (line for text in texts for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if len(line) > 12 and not line.startswith("step ")))


@cache
def player(family: str) -> tuple[Any, Any]:
    """Model and processor that read the prompts of every environment in few tokens."""
    whole = dict.fromkeys((*REPLY, *(line for env in SETTINGS for line in _lines(env))))
    return make_vlm(
        bpe_tokenizer([], 264, whole),
        family=family,
        patch=8,
        most_image_tokens=16,
        text={"head_dim": 32},
        vision={"window_size": 64} if family == FAMILIES[0] else {},
        deviation=DEVIATION,
    )


def saved(family: str, folder: Path) -> Path:
    """Save a player."""
    for part in player(family):
        part.save_pretrained(folder)
    return folder


def share(patch: pytest.MonkeyPatch, env: str, family: str) -> None:
    """Let runs use the levels and the model of all tests, which are then made once."""
    patch.setattr(loop, "load_weights", lambda *_: deepcopy(player(family)))
    patch.setattr(loop, "plan_levels", lambda _: levels_of(env))


def tokenized(env: str, family: str) -> TaskRollouts:
    """The stand-in's episodes of a contested level, in the tokens of a player."""
    scripted = deepcopy(contested(env))
    encoder = Encoder(player(family)[1])
    for episode in scripted.episodes:
        for step in episode.steps:
            step.response_token_ids = tuple(encoder.reply_tokens(step.response))
    return scripted


def rollouts_of(env: str, family: str, policy: Policy) -> list[TaskRollouts]:
    """Rollouts of an update: one level played by the model itself, one by the stand-in."""
    levels, scripted = levels_of(env), tokenized(env, family)
    other = next(task for task in levels.train if task != scripted.task)
    return [*roll_out(levels, [other], policy, OWN), scripted]


def turns(rollouts: Sequence[TaskRollouts]) -> int:
    """Return the number of turns of rollouts."""
    return sum(episode.num_steps for record in rollouts for episode in record.episodes)
