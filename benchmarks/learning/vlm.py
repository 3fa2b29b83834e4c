"""The model of the study with pictures, its exact success, and the literacy gate of its Teacher.

Prompts depend on the picture alone, so success is computed, not sampled: every state that an episode can reach is
rendered, the probability of each action is read, and dynamic programming does the rest (``worlds.py``). The gate plays
held-out levels at random and measures, with the figures that ``pivot train rl`` prints, whether the Teacher follows
hints that are true, false, and planted on a step that is not the pivot.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pivot.benchmarks.learning.worlds import World, exact_success
from pivot.core.identity import below, derive_seed
from pivot.core.images import frame_id
from pivot.core.messages import EncodedFrame
from pivot.core.plugins import Settings
from pivot.environments.base import Task
from pivot.environments.turns import Reply, Turn
from pivot.labeling.analyzer import analyzer_text
from pivot.labeling.hindsight import Hindsight, hindsight_text
from pivot.labeling.target import build_target
from pivot.models.extras import need
from pivot.rollouts.base import Policy, TaskRollouts, render_student
from pivot.solvers.puzzles import ACTIONS
from pivot.tests.labeling.episodes import random_failures
from pivot.tests.models.from_scratch import DEVIATION, bpe_tokenizer, make_vlm
from pivot.training.encode import Encoder
from pivot.training.policy_rl.advantages import group
from pivot.training.policy_rl.config import RlConfig, make_rl_config
from pivot.training.policy_rl.hindsight.analysis import Failures, UpdateSamples, analyze, make_samples
from pivot.training.policy_rl.hindsight.contexts import random_other_step
from pivot.training.policy_rl.learner import ScoredTurn, hindsight_figures, score_turns
from pivot.training.policy_rl.levels import Levels, roll_out
from pivot.training.policy_rl.scoring import SAMPLED, Row, Scorer, measure_pairs, micro_batches, nothing_more
from pivot.training.policy_rl.weights import ModelWeights, VisionCache
from pivot.training.ranks import ALONE

torch: Any = need("torch", "train")

GAMES: dict[str, dict[str, Any]] = {
    "frozenlake": {"size": 4, "horizon": 9, "cell": 16},
    "sokoban": {"horizon": 4, "max_solution": 3, "cell": 16},
    "sokoban_habit": {"horizon": 9, "max_solution": 3, "cell": 16, "step_reward": 0.0},
}
"""Settings of each game; the start of a game that ends in ``_habit`` is confident and wrong (``small_start.py``)."""
LEVELS, HELD_OUT = 400, 0.25
PATCH, IMAGE_TOKENS = 8, 128
"""Pixels of a patch, two by two of which are an image token: a cell. Most image tokens of a picture."""
TRUE_AT_LEAST, FALSE_BETWEEN = 0.8, (0.45, 0.55)
"""The gate: ``gap_detects_pivot`` on held-out levels with true and with false hints."""
GRAMMAR = ("<think>", "</think>", "<action>", "</action>", *ACTIONS, "invalid", "yes", "no")
READINGS = {
    "cells": "Read the cells, row by row.",
    "panel": "Read the cell of the player in each of the three pictures.",
    "moved": "Which action was taken at the moment in the middle?",
    "match": "Is the first picture the moment in the middle of the second?",
}
"""Questions of the warm-up about the pictures alone: they teach to see the objects that the Teacher compares."""
LOG_MOVED = (" moved=true remaining_turns=", " moved=false remaining_turns=")


def env_of(game: str) -> str:
    """Return the environment of a game."""
    return game.removesuffix("_habit")


def settings_of(game: str, model: str, seed: int = 0, **fields: Any) -> RlConfig:
    """Return the settings of a run: adapters on a small model, the paper's episodes of an update, and float32.

    A run on a GPU would otherwise compute in bfloat16, and be paired with runs on a CPU that do not.
    """
    size = {"env": env_of(game), "settings": GAMES[game], "levels": LEVELS, "held_out": HELD_OUT}
    steady = {"lora": True, "lora_rank": 32, "lora_alpha": 64, "lr": 1e-3, "warmup": 8, "minibatch": 256}
    quiet = {"validation_episodes": 0, "keep_rollouts": 0, "save_every": 10_000, "precision": "fp32"}
    short = {"max_tokens": 8, "analyzer_tokens": 16, "generate": 128, "micro_batch_tokens": 8192}
    return make_rl_config(size | steady | quiet | short | {"model": model, "seed": seed} | fields)


def whole_texts(game: str, levels: Levels) -> list[str]:
    """Return the texts that become one token each: the fixed parts of all prompts, and those of targets."""
    profile, horizon = levels.env.profile, levels.config.horizon
    student = render_student(levels.prompt, profile, levels.train[0], t=0, frame_id="")
    whole = dict.fromkeys(part["text"] for part in student.messages[-1]["content"] if part["type"] == "text")
    whole |= dict.fromkeys(READINGS.values())
    for mode in profile.failure_modes:
        for step in range(horizon):
            text = hindsight_text(env_of(game), Hindsight(("panel", "mode", "pivot"), step, mode, "", None))
            whole |= dict.fromkeys(text.splitlines())
            whole |= dict.fromkeys(part for part in build_target(step, mode).split(str(step)) if len(part) > 1)
    for failure in random_failures(env_of(game), 400, **GAMES[game]):
        lines = analyzer_text(profile, failure).splitlines()
        whole |= dict.fromkeys(line for line in lines if len(line) > 12 and not line.startswith("step "))
    whole |= dict.fromkeys(f"step {step}: action=" for step in range(horizon))
    whole |= dict.fromkeys(f"{moved}{left}" for moved in LOG_MOVED for left in range(horizon))
    return list(whole)


def make_start_model(game: str, levels: Levels, seed: int) -> tuple[Any, Encoder]:
    """Return a model of random weights, fewer than 1.5 million, and its encoder."""
    text = {"head_dim": 32, "hidden_size": 96, "intermediate_size": 192, "num_attention_heads": 3}
    vision = {"fullatt_block_indexes": [0, 1], "window_size": 8 * PATCH}
    model, processor = make_vlm(
        bpe_tokenizer([], 264, dict.fromkeys((*GRAMMAR, *whole_texts(game, levels)))),
        patch=PATCH,
        most_image_tokens=IMAGE_TOKENS,
        text=text,
        vision=vision,
        deviation=DEVIATION,
        seed=seed,
    )
    return model, Encoder(processor)


# Exact success


def reply_text(action: str) -> str:
    """Return the reply that the start gives: no thoughts, and an action."""
    return f"<think></think><action>{action}</action>"


class ExactReader:
    """Reads the exact success of models on the levels of a world; prompts and pictures are made once."""

    def __init__(self, levels: Levels, world: World, encoder: Encoder) -> None:
        """Render every state of ``world`` and put it into the Student's prompt, once with the reply of each action.

        Replies are read up to their closing tag: what a model writes after it does not change the action.
        """
        self._world, self._scorer = world, Scorer(encoder, capacity=1 << 30)
        env, rows = levels.env(levels.config), list[Row]()
        replies = [tuple(encoder.reply_tokens(reply_text(action))[:-1]) for action in ACTIONS]
        for state in world.states:
            frame, _ = env.reset(options={"state": state})
            kind, encoded = env.encode_frame(frame)
            name = frame_id(frame)
            self._scorer.pictures[name] = EncodedFrame(name, frame.shape[1], frame.shape[0], kind, encoded)
            prompt = render_student(levels.prompt, env.profile, levels.train[0], t=0, frame_id=name)
            rows += [Row(prompt, reply) for reply in replies]
        self._pairs = list(zip(rows[::2], rows[1::2], strict=True))  # two replies share what is computed for the prompt
        self._batches = micro_batches([self._scorer.length(row) for row in rows[::2]], 16_384)

    def policy(self, model: Any) -> NDArray[np.float64]:
        """Return the probability of each action's usual reply in each state; shape (states, 4).

        What is missing from 1 counts as unusable: thoughts, and other wordings of the same action. A reply that opens
        thoughts again after its action counts here, and not in an episode.
        """
        model.eval()
        measures = nothing_more, nothing_more
        columns = measure_pairs(self._scorer, VisionCache(model), self._pairs, self._batches, measures)
        scores = [each[index][SAMPLED] for index in range(len(self._pairs)) for each in columns]
        return np.array([each.double().sum().exp().item() for each in scores]).reshape(-1, 4)

    def __call__(self, model: Any) -> dict[str, float]:
        """Return the exact success over all levels, and the mean probability outside the usual replies."""
        policy = self.policy(model)
        return {
            "success": float(exact_success(self._world, policy).mean()),
            "unusual": float(1 - policy.sum(axis=1).mean()),
        }


# Failures with hints, true and false


class UniformPlayer(Policy):
    """A player that moves at random, as a function of episode and turn."""

    name = "uniform"
    config_type = Settings
    config: ClassVar[dict[str, Any]] = {}  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(self, encoder: Encoder, number: int = 0) -> None:
        """Reply with the tokens of ``encoder``; players of different ``number`` move differently."""
        super().__init__()
        self._number = number
        self._replies = {text: tuple(encoder.reply_tokens(text)) for text in map(reply_text, ACTIONS)}

    async def reply(self, turn: Turn) -> Reply:
        """Return the reply of a turn."""
        rng = random.Random(derive_seed(turn.episode_id, "uniform", turn.t, self._number))
        text = reply_text(ACTIONS[below(rng, len(ACTIONS))])
        return Reply(text, token_ids=self._replies[text])


Played = tuple[Sequence[TaskRollouts], Failures, RlConfig]
"""Episodes of a random player, its failures with the solver's readings, and the settings of the arm ``oracle``."""


def play_failures(levels: Levels, tasks: Sequence[Task], encoder: Encoder, each: int, number: int = 0) -> Played:
    """Return episodes of a random player, their failures with the solver's readings, and the settings of the oracle.

    Args:
        levels: the environment.
        tasks: levels to play.
        encoder: encoder of the replies.
        each: episodes of each level.
        number: number of the player; each moves differently.
    """
    config = settings_of(levels.env.profile.name, "none", arm="oracle")
    rollouts = roll_out(levels, tasks, UniformPlayer(encoder, number), each)
    unused: Any = None
    return rollouts, analyze(rollouts, levels, config, unused, ALONE), config


def with_hints(failures: Failures, kind: str) -> Failures:
    """Return the failures with hints of a kind: ``true``, ``uniform`` (any step) or ``other`` (never the pivot)."""
    if kind == "true":
        return failures
    steps = {each.episode_id: each.num_steps for each in failures.episodes}

    def step_of(name: str, pivot: int) -> int:
        if kind == "other":
            return random_other_step(name, pivot, steps[name])
        return below(random.Random(derive_seed(name, "uniform hint")), steps[name])

    readings = {
        name: replace(each, pivot_step=step_of(name, each.pivot_step)) for name, each in failures.readings.items()
    }
    return replace(failures, readings=readings)


def samples_with(kind: str, levels: Levels, encoder: Encoder, played: Played) -> UpdateSamples:
    """Return the samples of all turns, with Teacher's prompts under hints of a kind."""
    rollouts, failures, config = played
    hinted = with_hints(failures, kind)
    return make_samples(rollouts, group(rollouts, config), hinted, levels, config, encoder.tokenizer.decode)


def gate(model: Any, encoder: Encoder, levels: Levels, each: int = 2, tasks: int = 40) -> dict[str, Any]:
    """Measure on held-out levels whether the Teacher follows hints.

    Returns:
        ``gap_detects_pivot`` with hints that are ``true``, as ``pivot train rl`` prints it; with hints that are
        ``uniform`` (false: they say nothing about the pivot) and ``other`` (never the pivot: a planted mistake, which
        has to fall below one half), among failures of one length, because a uniform hint names any step of a short
        failure more often, which has the larger share of pivots; ``informed`` in nats, and whether the gate is passed.
    """
    played = play_failures(levels, levels.validation[:tasks], encoder, each)
    lengths = {failure.episode_id: failure.num_steps for failure in played[1].episodes}
    figures: dict[str, Any] = {}
    model.eval()
    for kind in ("true", "uniform", "other"):
        samples = samples_with(kind, levels, encoder, played)
        scorer = Scorer(encoder)
        scorer.pictures = dict(samples.pictures)
        turns = [turn for turn in samples.turns if turn.teacher is not None]
        with torch.no_grad():
            scored = score_turns(turns, scorer, ModelWeights(model), None, played[2])
        if kind == "true":
            measured = hindsight_figures(scored, played[2].beta)
            figures |= {kind: measured["gap_detects_pivot"] or 0.0, "informed": measured["teacher_informed"] or 0.0}
        else:
            figures[kind] = _detects_by_length(scored, lengths, played[2].beta)
    low, high = FALSE_BETWEEN
    figures = {name: round(value, 3) for name, value in figures.items()}
    return figures | {"passed": figures["true"] >= TRUE_AT_LEAST and low <= figures["uniform"] <= high}


def _detects_by_length(scored: Sequence[ScoredTurn], lengths: Mapping[str, int], beta: float) -> float:
    """Return ``gap_detects_pivot`` among failures of one length, averaged over failures."""
    by_length: dict[int, list[ScoredTurn]] = {}
    for each in scored:
        by_length.setdefault(lengths[each.turn.episode_id], []).append(each)
    areas = [
        (area, len(turns) / length)
        for length, turns in by_length.items()
        if (area := hindsight_figures(turns, beta)["gap_detects_pivot"]) is not None
    ]
    return sum(area * count for area, count in areas) / max(1.0, sum(count for _, count in areas))
