"""A rehearsal of both stages on this machine with random weights, before hours of a GPU are spent: ``pivot rehearse``.

Every part is what the product runs: the trainer of Stage I, and updates of Stage II with its engine, scorer and
learner, on FrozenLake. Random weights reply with noise up to the token limit, so every episode fails and has a Teacher.
Utilisation counts the operations of the model alone: 2 per weight and token forward, 4 backward, 2 where the weights
are frozen.
"""

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from ..core.errors import PivotError, TrainingError
from ..core.storage import open_storage
from ..datasets.store.config import solver_type
from ..labeling.target import build_target
from ..models.extras import installed, need
from ..models.transformers.from_scratch import bpe_tokenizer, make_vlm
from ..models.weights import is_local
from ..rollouts.base import Status
from ..rollouts.policies.scripted import ScriptedPolicy
from ..solvers.base import Verdict
from .analyzer import case_of_episode
from .analyzer_sft.config import make_sft_config
from .analyzer_sft.data_check import check_data
from .analyzer_sft.samples import Sample, TrainingData
from .analyzer_sft.trainer import load_model, make_plan, make_trainer
from .checkpoint import CHECKPOINTS, FINAL, read_metrics, training_versions
from .config import EXTRA, Shape, recipe_fields, recipes
from .encode import Encoder
from .memory import estimate, estimate_rl
from .policy_rl import loop
from .policy_rl.config import make_rl_config
from .policy_rl.generation import TrainedEngine
from .policy_rl.hindsight.analysis import failed_episode
from .policy_rl.levels import plan_levels, roll_out

torch: Any = need("torch", EXTRA)

TINY = "tiny"
UPDATES = 5
"""Updates of Stage I."""
SPEEDS = {"B200": 2250e12, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12}
"""Operations per second in bfloat16 of GPUs, without sparsity, by a part of their name."""
SLOW = 3
"""Phases that are named as slow."""

Row = dict[str, Any]
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a rehearsal."""

    batch: int
    """Records per update of Stage I."""
    tokens: int
    """Tokens of a reply."""
    horizon: int
    rollouts: int
    replies: tuple[int, int]
    """Numbers of replies that are generated together, and of episodes per update."""
    rank: int
    """Rank of the adapters."""
    cell: int
    """Pixels of a tile of the lake."""


FULL = Sizes(batch=8, tokens=128, horizon=3, rollouts=8, replies=(32, 128), rank=64, cell=64)
SMALL = Sizes(batch=2, tokens=6, horizon=2, rollouts=2, replies=(4, 8), rank=4, cell=16)


def default_model() -> str:
    """Return the model that is rehearsed if none is named: a tiny one without a GPU."""
    return "qwen2.5-vl-3b" if torch.cuda.is_available() else TINY


def names() -> tuple[str, ...]:
    """Return the models that can be made here: those whose recipe has a shape, and a tiny one."""
    return (TINY, *(name for name in recipes() if "shape" in recipe_fields(name)))


def rehearse(model: str, minutes: float, report: Report = lambda _: None) -> dict[str, Any]:
    """Run every part for which time is left; return device, versions and a row per part.

    Args:
        model: one of :func:`names`, or a ``save_pretrained`` folder.
        minutes: time after which no further part begins.
        report: receives a line per part.

    Raises:
        TrainingError: the model is unknown.
    """
    if model not in names() and not is_local(model):
        raise TrainingError(f"found model {model!r}, expected a folder, or one of: {', '.join(names())}")
    sizes, started = SMALL if model == TINY else FULL, perf_counter()
    with tempfile.TemporaryDirectory() as work:
        samples = _samples(sizes)
        folder = model if is_local(model) else _make(model, Path(work) / "model", samples)
        report(f"the model is there after {perf_counter() - started:.0f} s")
        parts: dict[str, Callable[[], Row]] = {
            "I: adapters": partial(_stage_one, folder, samples, sizes, Path(work), lora=True),
            "I: all weights": partial(_stage_one, folder, samples, sizes, Path(work), lora=False),
            **{f"II: {count} at a time": partial(_stage_two, folder, sizes, count) for count in sizes.replies},
            "II: recomputed": partial(_stage_two, folder, sizes, sizes.replies[0], gradient_checkpointing=True),
            "II: flash_attn": partial(_stage_two, folder, sizes, sizes.replies[0], varlen=True),
            "II: arm empty": partial(_stage_two, folder, sizes, sizes.replies[0], arm="empty"),
            "kill, resume": partial(_killed, folder, sizes, Path(work) / "killed"),
        }
        rows = []
        for name, part in parts.items():
            began = perf_counter()
            try:
                row = part() if began < started + 60 * minutes else {"skipped": f"{minutes:g} minutes are over"}
            except (PivotError, RuntimeError, ValueError, OSError) as error:  # the other parts still tell something
                row = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
            rows.append({"part": name, **row, "wall": round(perf_counter() - began, 1)})
            report(json.dumps(rows[-1]))
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    return {"model": model, "device": _device(), "versions": training_versions(), "rows": rows, "slow": slow(rows)}


def slow(rows: Sequence[Row]) -> list[str]:
    """Return the phases that take the largest share of an update, in words, each where its share is largest."""
    shares: dict[str, tuple[float, str]] = {}
    for row in rows:
        if "gap" in row:  # of arm `empty`, which has little to do
            continue
        for phase, seconds in row.get("phases", {}).items():
            share = seconds / sum(row["phases"].values())
            words = f"{phase}, {row['part']}: {seconds:.1f} s, {share:.0%} of the update"
            shares[phase] = max(shares.get(phase, (0.0, "")), (share, words))
    return [words for _, words in sorted(shares.values(), reverse=True)[:SLOW]]


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


# Model and data


def _samples(sizes: Sizes) -> list[Sample]:
    """Return records of failures of the scripted policy: those of the updates, and one of another level."""
    count = UPDATES * sizes.batch + 1
    config = make_rl_config({"env": "frozenlake", "model": "none", "levels": 4 * count, "prompts": 1})
    levels = plan_levels(config)
    samples: list[Sample] = []
    for record in roll_out(levels, levels.train, ScriptedPolicy(), 1):
        failed = [each for each in record.episodes if each.status is Status.COMPLETE and each.failed]
        for episode in map(failed_episode, failed):
            (verdict,) = solver_type(config.env)().certify([episode.case()])
            case = case_of_episode(
                levels.env.profile, episode, {name: frame.image for name, frame in record.frames.items()}
            )
            if not isinstance(verdict, Verdict):
                continue
            mode, reason = verdict.failure_mode, "A rehearsal has no guidance. " * 4
            target = build_target(verdict.pivot_step, mode, reason)
            where = f"record {len(samples)}"
            facts = (verdict.pivot_step, mode, reason, tuple(episode.actions), episode.initial_state, case.num_steps)
            messages, picture = tuple(map(dict, case.messages)), case.images[0].image
            samples.append(Sample(where, episode.episode_id, episode.env, messages, picture, target, *facts))
        if len(samples) >= count:
            return samples[:count]
    raise TrainingError(f"found {len(samples)} failures of the scripted policy, expected {count}")


def _make(name: str, folder: Path, samples: Sequence[Sample]) -> str:
    """Make a model of random weights at full size, or a tiny one, with a tokenizer that has read the records."""
    texts = [
        part["text"] for each in samples for message in each.prompt for part in message["content"] if "text" in part
    ]
    texts += [each.target for each in samples]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if name == TINY:
        lines = sorted({line for text in texts for line in text.splitlines() if len(line) > 12})
        model, processor = make_vlm(bpe_tokenizer(texts, 400, lines))
    else:
        shape = Shape.model_validate(recipe_fields(name)["shape"])
        sizes = {"text": shape.text, "vision": shape.vision, "patch": shape.vision["patch_size"]}
        with torch.device(device):
            model, processor = make_vlm(
                bpe_tokenizer(texts, 2000), family=shape.model_type, most_image_tokens=1280, **sizes
            )
        model.to(torch.bfloat16)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


# Measures


@contextmanager
def _timed(owner: Any, name: str) -> Iterator[list[float]]:
    """Collect the seconds of each call of a method within a block."""
    method, seconds = getattr(owner, name), list[float]()

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        result = method(*args, **kwargs)
        seconds.append(perf_counter() - began)
        return result

    setattr(owner, name, timed)
    try:
        yield seconds
    finally:
        setattr(owner, name, method)


def _peak() -> float | None:
    """Return the peak of the GPU's memory since the last call, in GiB; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return round(peak, 2)


def _utilisation(model: Any, tokens: int, seconds: float) -> float | None:
    """Return the share of the GPU's speed that forward and backward passes over ``tokens`` used; None if unknown."""
    speed = next((value for name, value in SPEEDS.items() if name in _device()), None)
    count = dict.fromkeys((True, False), 0)
    for each in model.parameters():
        count[each.requires_grad] += each.numel()
    return None if speed is None else round((6 * count[True] + 4 * count[False]) * tokens / seconds / speed, 4)


def _check_fits(estimated: float) -> None:
    if torch.cuda.is_available() and estimated > torch.cuda.get_device_properties(0).total_memory / 2**30:
        raise TrainingError(f"the estimate of {estimated:.1f} GiB exceeds the memory of the GPU")


# Parts


def _stage_one(folder: str, samples: Sequence[Sample], sizes: Sizes, work: Path, *, lora: bool) -> Row:
    fields = {"dataset": "rehearsal", "model": folder, "lora": lora, "lora_rank": sizes.rank}
    config = make_sft_config({**fields, "batch": sizes.batch, "epochs": 1, "evaluate": False})
    estimated = estimate(config).total / 2**30
    _check_fits(estimated)
    _peak()
    data = TrainingData("rehearsal", "", samples[:-1], samples[-1:])
    model, processor = load_model(config)
    encoder = Encoder(processor)
    records = check_data(data, encoder, config.max_length).train.records
    trainer = make_trainer(config, make_plan(config, records, 1), data, model, encoder, work)
    trainer.args.save_strategy = "no"
    began = perf_counter()
    trainer.train()
    seconds, (_, tokens) = perf_counter() - began, trainer.take_counts()
    return {
        "updates": trainer.state.global_step,
        "seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / seconds, 1),
        "peak_gib": _peak(),
        "estimate_gib": round(estimated, 2),
        "utilisation": _utilisation(model, tokens, seconds),
    }


def _rl_fields(folder: str, sizes: Sizes, together: int) -> dict[str, Any]:
    few = {
        "settings": {"horizon": sizes.horizon, "cell": sizes.cell},
        "validation_episodes": 0,
        "keep_rollouts": 0,
        "minibatch": 10**6,
    }
    played = {"rollouts": sizes.rollouts, "prompts": together // sizes.rollouts, "levels": 2 * together}
    replies = {"generate": together, "max_tokens": sizes.tokens, "analyzer_tokens": sizes.tokens}
    trained = {"lora": True, "lora_rank": sizes.rank, "model": folder, "env": "frozenlake"}
    return few | played | replies | trained


def _stage_two(folder: str, sizes: Sizes, together: int, *, varlen: bool = False, **fields: Any) -> Row:
    """Make two updates, the first of which warms up, and return the figures of the second."""
    if varlen and not (torch.cuda.is_available() and installed("flash_attn")):
        return {"skipped": "needs a GPU and the package flash_attn"}
    config = make_rl_config(_rl_fields(folder, sizes, together) | fields)
    estimated = estimate_rl(config).total / 2**30
    _check_fits(estimated)
    prepared = loop.prepare(config)
    if varlen:
        prepared.model.set_attn_implementation("flash_attention_2")
    with tempfile.TemporaryDirectory() as work:
        run = loop.Run(prepared, open_storage(Path(work)), None, lambda _: None)
        for number in (1, 2):
            _peak()
            with _timed(TrainedEngine, "_sample") as sampled, _timed(Encoder, "prompt") as encoded:
                line = run.update(number)
    phases = line["seconds"]
    replies = config.prompts * config.rollouts * sizes.horizon * sizes.tokens
    row: Row = {
        "seconds": round(sum(phases.values()), 2),
        "phases": phases,
        "tokens_per_second": round(replies / phases["rollout"], 1),
        "idle": round(1 - sum(sampled) / (phases["rollout"] + phases["analyze"]), 3),
        "encode": round(sum(encoded), 2),
        "peak_gib": _peak(),
        "estimate_gib": round(estimated, 2),
        "utilisation": _utilisation(prepared.model, line["sequence_tokens"], phases["update"]),
        "turns": line["steps"],
    }
    if config.arm == "empty":
        row |= {"gap": line["opd_gap"], "ratio_min": line["ratio_min"], "ratio_max": line["ratio_max"]}
    return row


def _killed(folder: str, sizes: Sizes, out: Path) -> Row:
    """Kill a run of three updates after its first checkpoint, and resume it."""
    fields = _rl_fields(folder, sizes, sizes.replies[0]) | {"updates": 3, "save_every": 1}
    config = open_storage(out.parent)
    config.write_json("killed.json", fields)
    command = [sys.executable, "-m", "pivot", "train", "rl", "--config", config.local_path("killed.json"), "--out", out]
    began = perf_counter()
    storage = open_storage(out)
    with tempfile.TemporaryFile() as log:
        first = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
        while first.poll() is None and storage.stat(f"{CHECKPOINTS}/1.json") is None:
            sleep(0.05)
        first.kill()
        first.wait()
    again = subprocess.run([*map(str, command), "--resume"], capture_output=True, text=True, check=False)
    if again.returncode:
        raise TrainingError(f"the resumed run ended with status {again.returncode}: {again.stderr[-300:]}")
    steps = [line["step"] for line in read_metrics(storage)]
    whole = storage.stat(f"{FINAL}/config.json") is not None
    return {"updates": steps, "complete": whole, "seconds": round(perf_counter() - began, 1)}
