"""Models for walks on a CPU: ``pivot make-model``.

``smol`` is a pretrained instruct model (:mod:`pivot.models.transformers.smol`). ``tiny`` is a Qwen2.5-VL from scratch.
It has about 0.3 million weights and a byte-level BPE of its own, in which every sentence that the prompts of a store
share is one token. It knows the format of replies from lessons by the scripted policy, and nothing else.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import TrainingError
from ..core.storage import open_storage
from ..datasets.store.splits import SIDES
from ..models.extras import need
from ..models.transformers.from_scratch import DEVIATION, bpe_tokenizer, make_vlm
from ..models.transformers.smol import make_smol_vlm
from ..rollouts.base import Status, Step, TaskRollouts
from ..rollouts.policies.scripted import ScriptedPolicy
from .checkpoint import writing
from .config import EXTRA
from .encode import Encoder
from .policy_rl.config import make_rl_config
from .policy_rl.levels import plan_levels, roll_out
from .policy_rl.scoring import Row, Scorer
from .records import open_records, target_text

torch: Any = need("torch", EXTRA)

REPLY = ("<think>", "</think>", "<action>", "</action>")
"""Marks of a reply, one token each."""
MERGES = 400
"""Entries of the vocabulary beside whole sentences."""
SHORTEST = 12
"""Characters of the shortest sentence that is one token."""
LEVELS, EPISODES = 12, 4
"""Levels, and episodes per level, of the lessons of each environment."""
BATCH, RATE = 16, 3e-3
"""Replies per lesson, and learning rate of AdamW."""
COLUMNS = ("episode_id", "env", "env_config", "prompt", "completion", "failure_mode", "num_steps")


@dataclass(frozen=True, slots=True)
class MadeModel:
    """A model that was made."""

    folder: str
    parameters: int
    vocabulary: int
    loss: float | None
    """Loss of the last lesson, nats per reply token; None without lessons."""


def make_smol_model(out: Path, *, seed: int = 0, report: Callable[[str], None] = lambda _: None) -> MadeModel:
    """Make SmolLM2-135M-Instruct with a vision tower from scratch, and save it.

    Raises:
        TrainingError: the folder is not empty. PluginError: the weights are not installed.
    """
    _check_empty(out)
    report("reading the weights of SmolLM2-135M-Instruct; this takes half a minute of one core …")
    return _saved(out, *make_smol_vlm(seed), None)


def _check_empty(out: Path) -> None:
    if open_storage(out).listing():
        raise TrainingError(f"{out} is not empty, expected a new folder; name another one")


def _saved(out: Path, model: Any, processor: Any, loss: float | None) -> MadeModel:
    need("transformers", EXTRA).utils.logging.disable_progress_bar()
    with writing(out):
        model.save_pretrained(out)
        processor.save_pretrained(out)
    return MadeModel(str(out), sum(each.numel() for each in model.parameters()), len(processor.tokenizer), loss)


def make_tiny_model(
    out: Path, data: str, *, seed: int = 0, lessons: int = 80, report: Callable[[str], None] = lambda _: None
) -> MadeModel:
    """Make a tiny Qwen2.5-VL whose tokenizer fits a store, teach it the format of replies, and save it.

    Args:
        out: folder of the model; empty or missing.
        data: store whose texts it reads in few tokens.
        seed: seed of weights and lessons.
        lessons: optimiser steps that teach the format of replies; 0 leaves the weights random.
        report: receives lines about the progress.

    Raises:
        TrainingError: the folder is not empty, or the store cannot be read.
    """
    _check_empty(out)
    texts, targets, settings = _texts_of(data)
    rollouts = {env: _scripted(env, values, seed) for env, values in settings.items()}
    prompts = [each for records in rollouts.values() for record in records for each in record.prompts.values()]
    parts = [part for prompt in prompts for message in prompt.messages for part in message["content"]]
    acting = [part["text"] for part in parts if part["type"] == "text"]
    replies = [_lesson(step) for records in rollouts.values() for step in _valid_steps(records)]
    whole = _shared([*texts, *acting], targets)
    tokenizer = bpe_tokenizer([*targets, *replies, *texts], MERGES, [*REPLY, *whole])
    model, processor = make_vlm(tokenizer, most_image_tokens=64, deviation=DEVIATION, seed=seed)
    report(f"{len(tokenizer)} tokens, {len(whole)} of them whole sentences; teaching the format of replies …")
    encoder = Encoder(processor)
    loss = _teach(model, Scorer(encoder), list(rollouts.values()), lessons, seed)
    return _saved(out, model, processor, loss)


def _texts_of(data: str) -> tuple[list[str], list[str], dict[str, dict[str, Any]]]:
    """Return texts of Analyzer prompts, targets, and settings of environments by name."""
    records, texts, targets = open_records(data), list[str](), list[str]()
    settings: dict[str, dict[str, Any]] = {}
    for side in SIDES:
        for row in records.rows(side, COLUMNS):
            parts = [part for message in row["prompt"] for part in message["content"]]
            texts += [part["text"] for part in parts if part["type"] == "text"]
            targets.append(target_text(row))
            settings.setdefault(row["env"], json.loads(row["env_config"]))
    if not targets:
        raise TrainingError(f"{data} holds no record, expected some; build more levels (pivot build --tasks)")
    return texts, targets, settings


def _scripted(env: str, settings: dict[str, Any], seed: int) -> list[TaskRollouts]:
    config = {"env": env, "settings": settings, "model": "none", "levels": 2 * LEVELS, "prompts": 1, "seed": seed}
    levels = plan_levels(make_rl_config(config))
    return roll_out(levels, levels.train[:LEVELS], ScriptedPolicy(), EPISODES)


def _valid_steps(records: Sequence[TaskRollouts]) -> list[Step]:
    episodes = (each for record in records for each in record.episodes if each.status is Status.COMPLETE)
    return [step for episode in episodes for step in episode.steps if step.action_valid]


def _lesson(step: Step) -> str:
    """Return the reply of a step with empty thoughts, which a tiny model learns in few lessons."""
    thoughts, end, answer = step.response.partition("</think>")
    return f"<think></think>{answer}" if end else thoughts


def _shared(texts: Iterable[str], targets: Iterable[str]) -> list[str]:
    """Return the texts that occur more than once: lines of prompts but those of logs, and what targets share."""
    lines = (line for text in texts for line in text.splitlines() if not line.startswith("step "))
    wording = (part for target in targets for part in re.split(r"(\d+)", target))
    counts = Counter(text for text in (*lines, *wording) if len(text) > SHORTEST)
    return sorted(text for text, count in counts.items() if count > 1)


def _teach(
    model: Any, scorer: Scorer, environments: Sequence[Sequence[TaskRollouts]], lessons: int, seed: int
) -> float | None:
    """Teach replies of the scripted policy in its own prompts; return the last loss."""
    pairs: list[Row] = []
    for records in environments:
        for record in records:
            scorer.pictures |= record.frames
            for step in _valid_steps([record]):
                tokens = tuple(scorer.encoder.reply_tokens(_lesson(step)))
                pairs.append(Row(record.prompts[step.prompt_hash], tokens))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    chosen, loss = random.Random(seed), None
    for _ in range(lessons):
        optimizer.zero_grad()
        loss = -scorer(model, chosen.sample(pairs, min(BATCH, len(pairs)))).mean()
        loss.backward()
        optimizer.step()
    return None if loss is None else loss.item()
