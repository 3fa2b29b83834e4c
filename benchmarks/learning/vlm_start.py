"""The start of the study with pictures: a small model that plays carelessly, reads hindsight, and analyzes failures.

All three are taught at once, in front of failures of a player that moves at random on the training levels: with the
Student's prompt an almost careless expert; with the Teacher's, whose hint names the solver's pivot in half of the
records and a uniformly random step in the others, to avoid what was done at the named step, so that nothing but the
hint decides; with the Analyzer's the solver's label, without guidance.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pivot.benchmarks.learning.vlm import (
    ExactReader,
    Played,
    gate,
    make_start_model,
    play_failures,
    samples_with,
    settings_of,
)
from pivot.benchmarks.learning.worlds import FAR, World, explore
from pivot.identity import derive_seed
from pivot.labeling.target import build_target
from pivot.messages import PromptMessages
from pivot.models.extras import need
from pivot.rollouts.base import TaskRollouts
from pivot.solvers.rows import ACTIONS
from pivot.training.analyzer import case_of_episode
from pivot.training.encode import Encoder
from pivot.training.policy_rl.hindsight.analysis import UpdateSamples
from pivot.training.policy_rl.levels import Levels, plan_levels
from pivot.training.policy_rl.scoring import Row, Scorer

torch: Any = need("torch", "train")

LOW, HIGH = 0.18, 0.25
"""Success of the start on training levels."""
EXPERT = 0.02
"""Share of its moves that the careless expert chooses; all others are uniformly random, which alone wins a fifth."""
AVOIDED = 0.02
"""Factor of the probability of the action that a hint names, in what the Teacher is taught."""
REPLIES = {"student": 6, "hinted": 10, "other": 6, "analyzer": 2}
"""Records of each kind per lesson: Student, Teacher at the step that the hint names, Teacher at other steps, Analyzer.
The hinted step is one of nine; by its share alone it would hardly be learned."""
LESSONS, CHECK_EVERY, RENEW_EVERY = 6000, 300, 600
"""Most lessons, lessons between two looks at success and gate, and between two sets of failures."""
LR, WARM_UP = 1e-3, 100


@dataclass(frozen=True)
class Lesson:
    """A record of Student or Teacher: the row, and the probability of each action that is taught."""

    row: Row
    target: NDArray[np.float64]
    hinted: bool = False
    """Whether the hint names the step of this record."""


def careless(world: World) -> NDArray[np.float64]:
    """Return the careless expert's probability of each action in each state; shape (states, 4)."""
    best = (world.after == world.after.min(axis=1, keepdims=True)) & (world.after < FAR)
    share = np.where(best.any(axis=1, keepdims=True), best / np.maximum(1, best.sum(axis=1, keepdims=True)), 0.25)
    return (1 - EXPERT) * 0.25 + EXPERT * share


def lessons_of(
    samples: UpdateSamples, rollouts: Sequence[TaskRollouts], world: World
) -> tuple[list[Lesson], list[Lesson]]:
    """Return the records of the Student and of the Teacher; the latter avoids the action at the hinted step."""
    index, taught = {state: place for place, state in enumerate(world.states)}, careless(world)
    steps = {(step.episode_id, step.t): step for task in rollouts for each in task.episodes for step in each.steps}
    student: list[Lesson] = []
    teacher: list[Lesson] = []
    for turn in samples.turns:
        step = steps[turn.episode_id, turn.t]
        target = taught[index[str(step.state)]]
        student.append(Lesson(turn.student, target))
        if turn.teacher is None:
            continue
        hinted = samples.hindsight[turn.episode_id].step == turn.t
        if hinted:
            target = target * np.where(np.array(ACTIONS) == step.action, AVOIDED, 1.0)
            target = target / target.sum()
        teacher.append(Lesson(turn.teacher, target, hinted))
    return student, teacher


def analyzer_rows(played: Played, levels: Levels, encoder: Encoder, scorer: Scorer) -> list[Row]:
    """Return the Analyzer's records: collage and log of every failure, and its label without guidance."""

    rollouts, failures, _ = played
    images = {key: frame.image for task in rollouts for key, frame in task.frames.items()}
    rows = []
    for episode in failures.episodes:
        case, reading = case_of_episode(levels.env.profile, episode, images), failures.readings[episode.episode_id]
        named = [{**message, "content": [dict(part) for part in message["content"]]} for message in case.messages]
        for part, picture in zip(
            (p for m in named for p in m["content"] if p["type"] == "image"), case.images, strict=True
        ):
            part["frame_id"] = picture.frame_id
            scorer.pictures[picture.frame_id] = picture
        prompt = PromptMessages(f"analyzer-{episode.episode_id}", "analyzer", "1", tuple(named))
        target = build_target(reading.pivot_step, reading.failure_mode)
        rows.append(Row(prompt, tuple(encoder.reply_tokens(target))))
    return rows


@dataclass
class Pool:
    """Records of one set of failures."""

    student: list[Lesson]
    hinted: list[Lesson]
    other: list[Lesson]
    analyzer: list[Row]
    scorer: Scorer


def make_pool(levels: Levels, world: World, encoder: Encoder, seed: int, tasks: int = 60, each: int = 3) -> Pool:
    """Play some training levels at random and make the records of all three roles."""
    rng, scorer = random.Random(derive_seed("pool", seed)), Scorer(encoder)
    chosen = rng.sample(levels.train, min(tasks, len(levels.train)))
    played = play_failures(levels, chosen, encoder, each)
    student: list[Lesson] = []
    teacher: list[Lesson] = []
    for kind in ("true", "uniform"):
        samples = samples_with(kind, levels, encoder, played)
        scorer.pictures |= dict(samples.pictures)
        student, further = lessons_of(samples, played[0], world)
        teacher += further
    hinted, other = ([each for each in teacher if each.hinted is which] for which in (True, False))
    return Pool(student, hinted, other, analyzer_rows(played, levels, encoder, scorer), scorer)


def lesson_loss(model: Any, pool: Pool, encoder: Encoder, rng: random.Random) -> Any:
    """Return the loss of a lesson: of actions the cross entropy with what is taught, of all else that of the tokens."""
    lessons = [
        lesson
        for kind, records in (("student", pool.student), ("hinted", pool.hinted), ("other", pool.other))
        for lesson in rng.choices(records, k=REPLIES[kind])
    ]
    actions = torch.tensor([encoder.tokenizer.convert_tokens_to_ids(action) for action in ACTIONS])
    rows = [lesson.row for lesson in lessons]
    count = sum(len(row.tokens) for row in rows)
    values = pool.scorer(model, rows, candidates=actions.expand(count, len(actions)))
    tokens = torch.tensor([token for row in rows for token in row.tokens])
    is_action = torch.isin(tokens, actions)
    taught = torch.tensor(np.stack([lesson.target for lesson in lessons]), dtype=torch.float32)
    loss = -(taught * values[is_action, 1:]).sum(-1).mean() - values[~is_action, 0].mean()
    if pool.analyzer and REPLIES["analyzer"]:
        loss = loss - pool.scorer(model, rng.choices(pool.analyzer, k=REPLIES["analyzer"])).mean()
    return loss


def teach(
    game: str, folder: Path, seed: int = 0, lessons: int = LESSONS, report: Callable[[str], None] = print
) -> dict[str, Any]:
    """Teach a new model until it is in the band of success and passes the gate; save it and its figures.

    Returns:
        The figures, also in ``start.json``: ``gate`` with ``passed``, ``success`` on training levels, exact, and the
        cost. A model that ran out of lessons is saved, too, and has not passed.
    """
    began = process_time()
    levels = plan_levels(settings_of(game, "none", seed))
    model, encoder = make_start_model(game, levels, seed)
    world = explore(levels.env, levels.config, levels.train)
    read = ExactReader(levels, explore(levels.env, levels.config, levels.train[:40]), encoder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    rng, pool, history = random.Random(seed), None, list[dict[str, Any]]()
    figures: dict[str, Any] = {}
    for number in range(lessons):
        if pool is None or number % RENEW_EVERY == 0:
            pool = make_pool(levels, world, encoder, number + seed)
        for part in optimizer.param_groups:
            part["lr"] = LR * min(1.0, (number + 1) / WARM_UP)
        model.train()
        optimizer.zero_grad()
        loss = lesson_loss(model, pool, encoder, rng)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (number + 1) % CHECK_EVERY and number + 1 < lessons:
            continue
        figures = {"lessons": number + 1, "loss": round(loss.item(), 3), **read(model)}
        figures |= {"gate": gate(model, encoder, levels), "cpu_seconds": round(process_time() - began)}
        report(json.dumps(figures))
        history.append(figures)
        if LOW <= figures["success"] <= HIGH and figures["gate"]["passed"]:
            break
    weights = sum(each.numel() for each in model.parameters())
    figures = figures | {"game": game, "seed": seed, "weights": weights, "history": history}
    model.save_pretrained(folder)
    encoder.processor.save_pretrained(folder)
    (folder / "start.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures
