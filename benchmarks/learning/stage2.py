"""Check that Stage II learns: FrozenLake of 2 x 2 cells and two turns, a model of 0.15 million weights, one CPU core.

``python -m pivot.benchmarks.learning.stage2 --arm vanilla_grpo --seed 0 --out runs/learning/lake0`` teaches a new model
by an expert until it succeeds in 50 to 65 % of its episodes, saves it, and trains it with the product's own ``train``.
``--negated`` plants a defect: advantages of the wrong sign. The last line shows the success over time and the cost.
"""

import argparse
import json
import random
from collections import deque
from collections.abc import Iterator
from math import log
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from pivot.benchmarks.learning.player import make_player
from pivot.core.errors import LevelError
from pivot.core.images import frame_id
from pivot.core.messages import EncodedFrame
from pivot.environments.base import Task
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.labeling.domains import domain_of
from pivot.labeling.hindsight import Hindsight, hindsight_text
from pivot.models.extras import need
from pivot.models.transformers.model import Engine
from pivot.rollouts.base import render_student
from pivot.rollouts.policies import ModelPolicy
from pivot.training.encode import Encoder
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.config import RlConfig, make_rl_config
from pivot.training.policy_rl.engines.base import GenerationOptions
from pivot.training.policy_rl.engines.in_process import InProcessBackend
from pivot.training.policy_rl.levels import Levels, plan_levels, roll_out
from pivot.training.policy_rl.scoring import Row, Scorer

torch: Any = need("torch", "train")
transformers: Any = need("transformers", "train")

SETTINGS = {"size": 2, "horizon": 2, "cell": 16}
LEVELS = 40
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
LOW, HIGH = 0.50, 0.65
"""Success at which teaching stops."""
CARELESS = 0.5
"""Share of random moves of the expert, once the player can read the pictures."""
LESSONS, REPLIES = 2400, 32
"""Most lessons, and replies in each."""
READS = 0.35 * log(4) / 6
"""Nats a token at which the player reads the pictures; guessing which of four moves follows costs log 4 of six."""
_RIGHT, _WRONG = 1 - CARELESS * 3 / 4, CARELESS / 4
KNOWS = 1.04 * -(_RIGHT * log(_RIGHT) + 3 * _WRONG * log(_WRONG)) / 6
"""Loss in nats per token slightly above the minimum: that of a player who knows the careless expert's move frequencies
in every picture."""
LOOKED_BACK = 30
"""Lessons over which loss and success are averaged."""
GOAL, WITHIN = 0.85, 60
SMOOTHED = 3
"""Updates over which success is averaged."""


def settings_of(model: str, **fields: Any) -> RlConfig:
    """Return the settings of a run on small lakes; rates are those of a small model, the rest is the paper's."""
    small = {"env": "frozenlake", "settings": SETTINGS, "levels": LEVELS, "lr": 1e-3, "max_tokens": 12, "generate": 128}
    often = {"validate_every": 0, "save_every": 1000, "validation_episodes": 128}
    return make_rl_config(small | often | {"model": model} | fields)


def texts_of(levels: Levels) -> list[str]:
    """Return the texts that become one token each: the parts of the Student's prompt and the Teacher's lines."""
    env = FrozenLakeEnv(levels.config)
    env.reset(options={"state": levels.train[0].initial_state})
    student = render_student(levels.prompt, env.profile, levels.train[0], t=0, frame_id="")
    parts = [part["text"] for part in student.messages[-1]["content"] if part["type"] == "text"]
    lines: dict[str, None] = {}
    for mode in env.profile.failure_modes:
        for step in range(SETTINGS["horizon"]):
            lines |= dict.fromkeys(
                hindsight_text("frozenlake", Hindsight(("panel", "mode", "pivot"), step, mode, "", None)).splitlines()
            )
    assert domain_of("frozenlake").meaning("timeout") in "".join(lines)
    return [*parts, *lines]


def expert(state: str) -> str | None:
    """Return the first action of a shortest way to the goal; None where there is none."""
    *rows, last = state.splitlines()
    at = tuple(map(int, last.split()[1:]))
    edge, seen = [(at, "")], {at}
    while edge:
        (cell, first), *edge = edge
        for action, (down, right) in MOVES.items():
            there = (cell[0] + down, cell[1] + right)
            if there in seen or not (0 <= there[0] < len(rows) and 0 <= there[1] < len(rows[0])):
                continue
            mark = rows[there[0]][there[1]]
            if mark == "G":
                return first or action
            if mark != "H":
                seen.add(there)
                edge.append((there, first or action))
    return None


def lessons(levels: Levels, scorer: Scorer) -> Iterator[tuple[Any, str]]:
    """Yield the prompt of every state of the training levels, with what the expert does there."""
    env = FrozenLakeEnv(levels.config)
    for task in levels.train:
        rows = task.initial_state.splitlines()[: SETTINGS["size"]]
        for row in range(SETTINGS["size"]):
            for column in range(SETTINGS["size"]):
                if rows[row][column] in "HG":
                    continue
                state = "\n".join([*rows, f"@ {row} {column}"])
                action = expert(state)
                if action is None:
                    continue
                try:
                    frame, _ = env.reset(options={"state": state})
                except LevelError:
                    continue
                kind, encoded = env.encode_frame(frame)
                name = frame_id(frame)
                scorer.pictures[name] = EncodedFrame(name, frame.shape[1], frame.shape[0], kind, encoded)
                yield render_student(levels.prompt, env.profile, task, t=0, frame_id=name), action


def success_of(levels: Levels, model: Any, encoder: Encoder, seed: int, tasks: tuple[Task, ...], each: int) -> float:
    """Return the share of successes at temperature 1, over ``episodes`` episodes per level."""
    engine = Engine(model, encoder.processor, encoder.placeholders)
    options = GenerationOptions(model="taught", run=str(seed), max_tokens=12)
    played = roll_out(levels, tasks, ModelPolicy(InProcessBackend(options, engine, batch=256)), each)
    model.generation_config = engine.own_defaults
    episodes = [episode for task in played for episode in task.episodes]
    return sum(bool(episode.success) for episode in episodes) / len(episodes)


def taught_player(folder: Path, seed: int) -> float:
    """Save a player that succeeds in ``LOW`` to ``HIGH`` of its episodes; return its share of successes.

    A careful expert teaches it to read the pictures, a careless one to err in all of them. One that was taught by the
    careful expert alone, and not to the end, would reach the same success by telling some pictures apart and others
    not at all, and whether it learns those later is a matter of its first weights.
    """
    levels = plan_levels(settings_of("none", seed=seed))
    model, processor = make_player(texts_of(levels), seed)
    encoder = Encoder(processor)
    scorer = Scorer(encoder)
    taught = list(lessons(levels, scorer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    draw, losses, seen = random.Random(seed), deque[float](maxlen=LOOKED_BACK), list[float]()
    careless = False
    for _ in range(LESSONS):
        rows = []
        for prompt, best in draw.choices(taught, k=REPLIES):
            action = draw.choice(list(MOVES)) if careless and draw.random() < CARELESS else best
            rows.append(Row(prompt, tuple(encoder.reply_tokens(f"<think></think><action>{action}</action>"))))
        optimizer.zero_grad()
        loss = -scorer(model, rows).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) < LOOKED_BACK or sum(losses) / LOOKED_BACK > (KNOWS if careless else READS):
            continue
        losses.clear()
        if not careless:
            careless = True
            continue
        success = success_of(levels, model.eval(), encoder, seed, levels.train, 3)
        seen.append(round(success, 2))
        if LOW <= success <= HIGH:
            model.save_pretrained(folder)
            processor.save_pretrained(folder)
            return success
    raise RuntimeError(f"success never came to {LOW} to {HIGH} within {LESSONS} lessons, but was {seen}")


def learn(
    out: Path, seed: int, arm: str, updates: int = WITHIN, *, lie: bool = False, like: Path | None = None, **fields: Any
) -> dict[str, Any]:
    """Teach a player, or reuse that of another run, train it, and return its success over the updates."""
    started = process_time()
    if like is None:
        start = taught_player(out / "start", seed)
    else:
        start = json.loads((like / "result.json").read_text(encoding="utf-8"))["start"]
    taught_in = out if like is None else like
    taught, wall = process_time() - started, perf_counter()
    fields |= {"advantages": "negated"} if lie else {}
    config = settings_of(str(taught_in / "start"), seed=seed, arm=arm, updates=updates, **fields)
    loop.train(loop.prepare(config), out / "run")
    lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    success = [line["success"] for line in lines if "success" in line]
    means = [sum(success[: end + 1][-SMOOTHED:]) / len(success[: end + 1][-SMOOTHED:]) for end in range(len(success))]
    held_out = [line["validation"]["success"]["value"] for line in lines if "validation" in line]
    return {
        "arm": arm,
        "seed": seed,
        "negated": lie,
        "start": round(start, 3),
        "last": round(means[-1], 3),
        "best": round(max(means), 3),
        "reached": next((number for number, mean in enumerate(means, 1) if mean >= GOAL), None),
        "held_out": [round(held_out[0], 3), round(held_out[-1], 3)],
        "seconds": {
            "teaching": round(taught, 1),
            "training": round(process_time() - started - taught, 1),
            "wall": round(perf_counter() - wall, 1),
        },
    }


def main() -> None:
    """Run one setting and write its figures beside the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", default="vanilla_grpo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=WITHIN)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--like", type=Path, help="folder of another run of this seed, whose player is taken")
    parser.add_argument("--negated", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    result = learn(args.out, args.seed, args.arm, args.updates, lie=args.negated, like=args.like, lr=args.lr)
    text = json.dumps(result)
    (args.out / "result.json").write_text(text + "\n", encoding="utf-8")
    print(text)  # noqa: T201 - a script's answer


if __name__ == "__main__":
    main()
