"""The start of the study with pictures: a small model that plays carelessly, reads hindsight, and analyzes failures.

It is taught to see first, then to play and to read hints (``lessons.py``), on a GPU if there is one (``tensors.py``),
and at the end to analyze failures, with some of the other lessons among them so that they are kept.
"""

import json
import os
import random
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pivot.benchmarks.learning.lessons import analyzer_rows, careless, played_lessons, reading_lessons
from pivot.benchmarks.learning.small_start import cloned, one_hot, policy_of
from pivot.benchmarks.learning.tensors import Shard, Tutor, join, pack
from pivot.benchmarks.learning.vlm import ExactReader, gate, make_start_model, play_failures, samples_with, settings_of
from pivot.benchmarks.learning.worlds import World, explore
from pivot.core.identity import derive_seed
from pivot.models.extras import need
from pivot.models.transformers.model import Engine
from pivot.training.encode import Encoder
from pivot.training.policy_rl.engines.base import GenerationOptions
from pivot.training.policy_rl.engines.in_process import InProcessBackend
from pivot.training.policy_rl.hindsight.analysis import analyze
from pivot.training.policy_rl.levels import Levels, plan_levels
from pivot.training.policy_rl.scoring import Scorer
from pivot.training.ranks import ALONE

torch: Any = need("torch", "train")
transformers: Any = need("transformers", "train")

LOW, HIGH = 0.18, 0.25
"""Success of the start on training levels."""
SEEING = {"cells": 3, "panel": 6, "moved": 4, "same": 2, "different": 2, "student": 3, "hinted": 3, "other": 1}
READING = {"cells": 1, "panel": 2, "moved": 2, "same": 1, "different": 1, "student": 3, "hinted": 9, "other": 5}
"""Shares of the kinds of records, at the beginning and later. The hinted step is one of nine, so it has a larger
share."""
LESSONS, RECORDS, CHECK_EVERY = 5500, 384, 500
"""Most lessons, records in each, and lessons between two looks at the gate."""
HABIT = {"cells": 2, "panel": 2, "moved": 2, "same": 1, "different": 1, "student": 9, "hinted": 9, "other": 6}
"""Shares of the lessons of a habit, which begin with a start that sees and reads."""
BORROWED = {"sokoban_habit": "sokoban"}
"""Start of which the lessons of a game begin; others begin with random weights."""
DIGITS = re.compile(r"\d+")
STARTS = Path(__file__).parent / "starts"
"""The start of each game for the committed results: runs on all machines use the same weights."""
SEE, FALL = 0.3, 0.25
"""Shares of the lessons that teach to see, and of the last lessons, in which the rate falls to zero."""
LR, WARM_UP = 2e-3, 100
ENOUGH = 0.9
"""``gap_detects_pivot`` with true hints at which the rate begins to fall."""
SHARDS, EACH = 14, 3
"""Sets of failures, and random episodes of each training level in a set."""
UNFINISHED = "unfinished.pt"
"""File in the folder of a start whose lessons are not over."""
ANALYSES, ANALYSIS_LR, KEPT = 600, 3e-4, 48
"""Lessons of the Analyzer (eight records each), their learning rate, and records of other lessons per lesson."""


@dataclass
class Course:
    """Progress of the lessons, and what is needed to resume them."""

    settings: Mapping[str, Any]
    last: int
    """Index of the last lesson."""
    falls_at: int
    """Number of lessons from which the rate falls."""
    number: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Figures of every check of the gate."""

    def keep(self, path: Path, model: Any, optimizer: Any, tutor: Tutor) -> None:
        """Write everything to a file, whole or not at all."""
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": tutor.random.get_state()}
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        torch.save(asdict(self) | state, fresh)
        fresh.replace(path)

    def resume(self, path: Path, model: Any, optimizer: Any, tutor: Tutor) -> None:
        """Resume from a file, if it is there.

        Raises:
            ValueError: its lessons have other settings.
        """
        if not path.exists():
            return
        kept = torch.load(path, map_location="cpu", weights_only=True)
        earlier = kept["settings"]
        if earlier != self.settings:
            raise ValueError(f"{path}: found lessons with {earlier}, expected {self.settings}; remove the file")
        model.load_state_dict(kept.pop("model"))
        optimizer.load_state_dict(kept.pop("optimizer"))
        tutor.random.set_state(kept.pop("random"))
        for name, value in kept.items():
            setattr(self, name, value)


def play_of(game: str, world: World, seed: int) -> NDArray[np.float64]:
    """Return the play that the Student is taught: an almost careless expert, or a confident wrong habit.

    Returns:
        probability of each action in each state, shape (states, 4).
    """
    if not game.endswith("_habit"):
        return careless(world)
    inputs = one_hot(world)
    return policy_of(cloned(world, inputs, seed, habit=True), inputs)


def borrow(model: Any, encoder: Encoder, source: Path) -> None:
    """Take over the weights of an earlier start; a text that it lacks gets those of a text with other numbers."""
    state = transformers.AutoModelForImageTextToText.from_pretrained(source).state_dict()
    vocabulary = transformers.AutoTokenizer.from_pretrained(source).get_vocab()
    theirs = {DIGITS.sub("#", text): place for text, place in sorted(vocabulary.items())} | vocabulary
    pairs = [
        (place, theirs.get(text, theirs.get(DIGITS.sub("#", text))))
        for text, place in encoder.tokenizer.get_vocab().items()
    ]
    rows = [(place, old) for place, old in pairs if old is not None]
    for name, weights in model.state_dict().items():
        if "embed_tokens" in name or "lm_head" in name:
            weights[[place for place, _ in rows]] = state[name][[old for _, old in rows]]
        else:
            weights.copy_(state[name])


def make_shard(game: str, seed: int, number: int, each: int) -> Shard:
    """Play every training level at random and return the lessons, with true and with uniformly random hints.

    Most pairs do not match; a quarter of them is kept.
    """
    torch.set_num_threads(1)
    levels = plan_levels(settings_of(game, "none", seed))
    _, encoder = make_start_model(game, levels, seed)
    world = explore(levels.env, levels.config, levels.train)
    taught = play_of(game, world, seed)
    played = play_failures(levels, levels.train, encoder, each, number)
    lessons = []
    pictures: dict[str, Any] = {}
    for kind in ("true", "uniform"):
        samples = samples_with(kind, levels, encoder, played)
        pictures |= dict(samples.pictures)
        for place, lesson in enumerate(
            [*played_lessons(samples, played[0], world, taught), *reading_lessons(samples, played[0], encoder)]
        ):
            is_twice = kind == "uniform" and lesson.kind in ("student", "cells")
            if not is_twice and (lesson.kind != "different" or place % 4 == 0):
                lessons.append(lesson)
    return pack(lessons, pictures, encoder)


def make_shards(game: str, seed: int, shards: int) -> list[Shard]:
    """Return several shards, made in parallel, one process per core."""
    if shards == 1:
        return [make_shard(game, seed, 0, EACH)]
    with ProcessPoolExecutor(min(shards, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        return list(pool.map(make_shard, [game] * shards, [seed] * shards, range(shards), [EACH] * shards))


def per_lesson(shares: Mapping[str, int], records: int) -> dict[str, int]:
    """Return the number of records of each kind."""
    return {kind: max(1, share * records // sum(shares.values())) for kind, share in shares.items()}


def teach(
    game: str,
    folder: Path,
    seed: int = 0,
    lessons: int = LESSONS,
    report: Callable[[str], None] = print,
    *,
    records: int = RECORDS,
    shards: int = SHARDS,
    analyses: int = ANALYSES,
) -> dict[str, Any]:
    """Teach a new model until it uses hints and analyzes failures; save it with its figures.

    The gate looks at held-out levels of ``seed``. A model that ran out of lessons is saved, too, and has not passed.
    Lessons that were interrupted go on from the last look at the gate.

    Raises:
        ValueError: the folder holds unfinished lessons with other settings.

    Returns:
        The figures, also in ``start.json``: ``gate`` with ``passed``, ``success`` on training levels, exact, and
        whether it is ``in_band``, the Analyzer's accuracy on held-out failures, and the cost.
    """
    began, device = perf_counter(), "cuda" if torch.cuda.is_available() else "cpu"
    levels = plan_levels(settings_of(game, "none", seed))
    model, encoder = make_start_model(game, levels, seed)
    borrowed = BORROWED.get(game)
    if borrowed is not None:
        borrow(model, encoder, STARTS / borrowed)
    made = make_shards(game, seed, shards)
    model.to(device)
    tutor = Tutor(model, encoder, join(made, encoder.pad), device, seed)
    read = ExactReader(levels, explore(levels.env, levels.config, levels.train[:40]), encoder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    settings = {"game": game, "seed": seed, "lessons": lessons, "records": records, "shards": shards}
    course, unfinished = Course(settings, lessons, int(lessons * (1 - FALL))), folder / UNFINISHED
    course.resume(unfinished, model, optimizer, tutor)
    began -= course.seconds
    while course.number < course.last:
        fall = (course.last - course.number) / max(1, course.last - course.falls_at)
        for part in optimizer.param_groups:
            part["lr"] = LR * min(1.0, (course.number + 1) / WARM_UP, fall)
        reading = READING if borrowed is None else HABIT
        sees = borrowed is None and course.number < SEE * lessons
        counts = per_lesson(SEEING if sees else reading, records)
        loss = step(model, optimizer, lambda counts=counts: tutor.loss(counts))
        course.number += 1
        if course.number % CHECK_EVERY == 0 or course.number == course.last:
            figures = {"lessons": course.number, "loss": round(loss, 3), **gate(model, encoder, levels), **read(model)}
            course.history.append(figures)
            if figures["true"] >= ENOUGH and course.number < course.falls_at:
                course.falls_at, course.last = course.number, course.number + int(lessons * FALL)
            course.seconds = perf_counter() - began
            course.keep(unfinished, model, optimizer, tutor)
            report(json.dumps(figures | {"seconds": round(course.seconds)}))
    model.to("cpu")  # the Analyzer's collages have many sizes, and are few
    accuracy: dict[str, float] = {}
    if analyses:
        kept = Tutor(model, encoder, made[0], "cpu", seed)
        teach_analyzer(model, levels, encoder, analyses, lambda: kept.loss(per_lesson(READING, KEPT)), report)
        accuracy = analyzer_accuracy(model, levels, encoder)
    success = read(model)
    figures = {
        "game": game,
        "seed": seed,
        "weights": sum(each.numel() for each in model.parameters()),
        "gate": gate(model, encoder, levels),
        **success,
        "in_band": LOW <= success["success"] <= HIGH,
        "analyzer": accuracy,
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "seconds": round(perf_counter() - began),
        "history": course.history,
    }
    report(json.dumps({name: value for name, value in figures.items() if name != "history"}))
    model.save_pretrained(folder)
    encoder.processor.save_pretrained(folder)
    (folder / "start.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    unfinished.unlink(missing_ok=True)
    return figures


def step(model: Any, optimizer: Any, loss_of: Callable[[], Any]) -> float:
    """Make an optimizer step; return the loss."""
    model.train()
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def teach_analyzer(
    model: Any, levels: Levels, encoder: Encoder, analyses: int, other: Callable[[], Any], report: Callable[[str], None]
) -> None:
    """Teach the Analyzer, with ``other`` lessons in every step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=ANALYSIS_LR, weight_decay=0.0)
    rng, scorer = random.Random(derive_seed("analyses")), Scorer(encoder, capacity=1 << 30)
    rows, scorer.pictures = analyzer_rows(play_failures(levels, levels.train, encoder, EACH), levels, encoder)
    for number in range(analyses):
        chosen = rng.choices(rows, k=8)
        for part in optimizer.param_groups:
            part["lr"] = ANALYSIS_LR * min(1.0, (number + 1) / WARM_UP, 2 * (analyses - number) / analyses)
        loss = step(model, optimizer, lambda chosen=chosen: other() - scorer(model, chosen).mean())
        if (number + 1) % (CHECK_EVERY // 2) == 0:
            report(json.dumps({"analyses": number + 1, "loss": round(loss, 3)}))


def analyzer_accuracy(model: Any, levels: Levels, encoder: Encoder, each: int = 2) -> dict[str, float]:
    """Return how often the Analyzer names the solver's step and mode in failures of held-out levels."""
    config = settings_of(levels.env.profile.name, "none", arm="mp")
    rollouts = play_failures(levels, levels.validation, encoder, each)[0]
    engine = Engine(model, encoder.processor, encoder.placeholders)
    options = GenerationOptions(model="start", run="analyzer", max_tokens=config.analyzer_tokens, temperature=0.0)
    backend = InProcessBackend(options, engine, batch=config.generate)
    figures = analyze(rollouts, levels, config, backend, ALONE).figures()
    model.generation_config = engine.own_defaults
    names = ("analyzer_step_accuracy", "analyzer_mode_accuracy", "analyzer_unreadable")
    return {name: round(figures[name] or 0.0, 3) for name in names}
