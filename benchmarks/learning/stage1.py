"""Does the Analyzer learn from pixels? A small Qwen2.5-VL from scratch, on a CPU, in front of full-length failures.

``python -m pivot.benchmarks.learning.stage1 --setting A --seed 0 --out runs/learning/A0`` builds the store, makes a
model of a million weights, trains it with the product's own trainer and measures it on held-out levels, with the
collages as they are, blanked, and exchanged between records, beside what the log alone gives away of the same records.
A warm-up stands in for pretraining: records that ask for the player's and the box's cell of every tile, made from the
same store's training side; they stay among the records afterwards. With ``--blank`` the same model is trained on blank
collages.

The tokenizer is trained on the training side's texts without splitting at spaces, so that fixed wording becomes few
tokens; digits stay apart. Every matrix is drawn with a deviation of 0.08, because the library's 0.02 starves the
pictures.
"""

import argparse
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pivot
from PIL import Image
from pivot.core.errors import TrainingError
from pivot.core.storage import open_storage
from pivot.labeling.target import BadTargetError, parse_target
from pivot.models.extras import need
from pivot.tests.models.from_scratch import DEVIATION, bpe_tokenizer, make_vlm
from pivot.training.analyzer_sft.config import make_sft_config
from pivot.training.analyzer_sft.samples import Sample, read_dataset
from pivot.training.analyzer_sft.trainer import IDS, AnalyzerTrainer, Plan, arguments
from pivot.training.checkpoint import save_final
from pivot.training.encode import Batch, Encoder, Reply
from pivot.training.evaluation.baselines import fit_baselines
from pivot.training.evaluation.config import RecordChoice
from pivot.training.evaluation.dataset import chosen_rows, fitting_of
from pivot.training.evaluation.items import canonical_level
from pivot.training.loading import load_weights
from pivot.training.records import open_records

from datasets import Dataset

torch: Any = need("torch", "train")
transformers: Any = need("transformers", "train")
tokenizers: Any = need("tokenizers", "train")

SETTINGS: dict[str, dict[str, Any]] = {
    "A": {"horizon": 4, "max_solution": 3, "cell": 16},
    "B": {"horizon": 9, "max_solution": 5, "cell": 16},
}
TASKS = 6000
READ = "Read the cells of the target, then of the player and of the box, tile by tile."
PATCH = 14
"""Patch size with which one image token covers 28 x 28 pixels, nearly two cells by two; finer tokens take twice the
time."""
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
EVERY, WATCHED, MEASURED = 2500, 320, 1500
"""Records between two points of the curve, held-out records in each, and in the measurement at the end."""
PREFIX = '{"pivot_step": '

Picture = Callable[[int], Image.Image]


def text_of(sample: Sample) -> str:
    """Return the text part of a prompt."""
    return "".join(part["text"] or "" for message in sample.prompt for part in message["content"])


def cells(sample: Sample) -> str:
    """Return the answer of a reading record: cells of the target, and of player and box before every action."""
    rows = sample.initial_state.splitlines()
    at = {(r, c): mark for r, row in enumerate(rows) for c, mark in enumerate(row)}
    player = next(cell for cell, mark in at.items() if mark in "@+")
    box = next(cell for cell, mark in at.items() if mark in "$*")
    target = next(cell for cell, mark in at.items() if mark in ".*+")
    answer = [f"{target[0]}{target[1]}"]
    for action in sample.actions:
        answer.append(f"{player[0]}{player[1]}{box[0]}{box[1]}")
        if action not in MOVES:
            continue
        ahead, beyond = ((player[0] + k * MOVES[action][0], player[1] + k * MOVES[action][1]) for k in (1, 2))
        if ahead == box and at.get(beyond, "#") != "#":
            player, box = ahead, beyond
        elif ahead != box and at.get(ahead, "#") != "#":
            player = ahead
    return " ".join(answer)


def make_tokenizer(samples: Sequence[Sample]) -> Any:
    """Train a byte-level BPE that may join words but no digits, with Qwen's special tokens."""
    levels = tokenizers.pre_tokenizers
    split = levels.Sequence(
        [levels.Digits(individual_digits=True), levels.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    logs = ["\n".join(text_of(sample).splitlines()[-sample.num_steps :]) for sample in samples]
    targets = [sample.target for sample in samples]
    return bpe_tokenizer([*targets, *logs], 1400, (*shared_texts(samples), READ), split)


def shared_texts(samples: Sequence[Sample]) -> list[str]:
    """Return the texts that all prompts share before the log: each of them becomes one token."""
    return sorted({text_of(sample).rpartition("- Compact action log:\n")[0] for sample in samples})[:4]


def make_model(samples: Sequence[Sample], seed: int) -> tuple[Any, Encoder]:
    """Return a model of a million random weights, and its encoder."""
    text = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    vision = {"hidden_size": 64, "intermediate_size": 128, "window_size": 8 * PATCH, "fullatt_block_indexes": []}
    model, processor = make_vlm(
        make_tokenizer(samples),
        patch=PATCH,
        most_image_tokens=2000,
        text=text,
        vision=vision,
        deviation=DEVIATION,
        seed=seed,
    )
    return model, Encoder(processor)


def load_start(folder: Path, samples: Sequence[Sample]) -> tuple[Any, Encoder]:
    """Return the model of an easier setting, with tokens for the shared texts of this setting's prompts."""
    model, processor = load_weights(str(folder), None, torch.float32)
    old = len(processor.tokenizer)
    new = processor.tokenizer.add_tokens(
        [tokenizers.AddedToken(text, normalized=False) for text in shared_texts(samples)]
    )
    model.resize_token_embeddings(old + new, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[old:].normal_(std=DEVIATION)
    return model, Encoder(processor)


def blank(picture: Image.Image) -> Image.Image:
    """Return a grey picture of the same size."""
    return Image.new("RGB", picture.size, (128, 128, 128))


def reading(encoder: Encoder, sample: Sample, picture: Image.Image) -> Reply:
    """Return the record that asks for the cells of all objects."""
    content = [{"type": "image", "text": None}, {"type": "text", "text": READ}]
    return Reply([{"role": "user", "content": content}], [picture], encoder.reply_tokens(cells(sample)))


class Mixture:
    """Collates reading records and failures; a row names a sample, and whether it is a reading record."""

    def __init__(self, encoder: Encoder, samples: Sequence[Sample], *, blanked: bool) -> None:
        self._encoder, self._samples, self._blanked = encoder, samples, blanked

    def __call__(self, rows: Sequence[dict[str, Any]]) -> Batch:
        """Return the batch of some rows."""
        samples = [self._samples[row["place"]] for row in rows]
        replies = [self._reply(sample, row["read"]) for sample, row in zip(samples, rows, strict=True)]
        return self._encoder.batch(replies) | {IDS: [sample.episode_id for sample in samples]}

    def _reply(self, sample: Sample, read: bool) -> Reply:
        picture = blank(sample.picture) if self._blanked else sample.picture
        if not read:
            return Reply(sample.prompt, [picture], self._encoder.reply_tokens(sample.target))
        return reading(self._encoder, sample, picture)


def order(count: int, records: int, warm_up: int, share: float, seed: int) -> Dataset:
    """Return the order of training samples: ``warm_up`` reading records, then a mixture of both kinds."""
    rng = random.Random(seed)
    places: list[int] = []
    while len(places) < records:
        places += rng.sample(range(count), count)
    read = [place < warm_up or rng.random() < share for place in range(records)]
    return Dataset.from_dict({"place": places[:records], "read": read})


class Curve(transformers.TrainerCallback):
    """Measures accuracy on some held-out records now and then."""

    def __init__(self, watch: Callable[[], dict[str, float]], batch: int, path: Path) -> None:
        self._watch, self._batch, self._path = watch, batch, path
        self._wall, self._processor = perf_counter(), process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add a point."""
        records = state.global_step * self._batch
        if records % EVERY < self._batch or state.global_step == state.max_steps:
            losses = [entry["loss"] for entry in state.log_history[-100:] if "loss" in entry]
            spent = {"seconds": perf_counter() - self._wall, "processor_seconds": process_time() - self._processor}
            point = {"records": records, "loss": float(np.mean(losses or [np.nan]))} | self._watch() | spent
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({name: round(value, 4) for name, value in point.items()}) + "\n")


def digits_read(model: Any, encoder: Encoder, samples: Sequence[Sample], batch: int = 16) -> float:
    """Return the share of the digits of reading records that the model gives, each after the right ones before it."""
    digits = [encoder.tokenizer(str(digit), add_special_tokens=False)["input_ids"][0] for digit in range(10)]
    hits: list[Any] = []
    model.eval()
    with torch.no_grad():
        for start in range(0, len(samples), batch):
            tensors = encoder.batch(
                [reading(encoder, sample, sample.picture) for sample in samples[start : start + batch]]
            )
            labels = tensors.pop("labels")[:, 1:]
            named = model(**tensors).logits[:, :-1].argmax(dim=-1)
            is_digit = torch.isin(labels, torch.tensor(digits))
            hits.append((named == labels)[is_digit])
    model.train()
    return float(torch.cat(hits).float().mean())


def steps_named(
    model: Any, encoder: Encoder, samples: Sequence[Sample], picture_of: Callable[[int], Image.Image], batch: int = 16
) -> list[int | None]:
    """Return the pivot step that the model names for each sample, greedily; None for no step.

    The opening of the answer is given, because every target has it.
    """
    opening = encoder.tokenizer(PREFIX, add_special_tokens=False)["input_ids"]
    digits = {encoder.tokenizer(str(step), add_special_tokens=False)["input_ids"][0]: step for step in range(10)}
    named: list[int | None] = []
    model.eval()
    with torch.no_grad():
        for start in range(0, len(samples), batch):
            chunk = range(start, min(start + batch, len(samples)))
            tensors = encoder.batch([Reply(samples[each].prompt, [picture_of(each)], opening) for each in chunk])
            del tensors["labels"]
            last = tensors["attention_mask"].sum(dim=1) - 1
            scores = model(**tensors).logits
            named += [digits.get(int(scores[row, place].argmax())) for row, place in enumerate(last)]
    model.train()
    return named


def answers(model: Any, encoder: Encoder, samples: Sequence[Sample], picture_of: Callable[[int], Image.Image]) -> Any:
    """Return the model's greedy answers: pivot step and mode, or None for an unreadable answer."""
    read: list[tuple[int, str] | None] = []
    model.eval()
    with torch.no_grad():
        for each, sample in enumerate(samples):
            tensors = encoder.batch([Reply(sample.prompt, [picture_of(each)], [])])
            del tensors["labels"]
            width = tensors["input_ids"].shape[1]
            made = model.generate(**tensors, max_new_tokens=128, do_sample=False, eos_token_id=encoder.end)
            text = encoder.tokenizer.decode(made[0, width:], skip_special_tokens=True)
            try:
                target = parse_target(text)
            except BadTargetError:
                read.append(None)
            else:
                read.append((target.pivot_step, target.failure_mode))
    model.train()
    return read


def interval(right: Sequence[bool], levels: Sequence[str], draws: int = 2000) -> tuple[float, float, float]:
    """Return a share with its 95 % interval, by bootstrap over levels."""
    names, place = np.unique(np.asarray(levels), return_inverse=True)
    hits = np.bincount(place, weights=np.asarray(right, float), minlength=len(names))
    counts = np.bincount(place, minlength=len(names))
    drawn = np.random.default_rng(0).integers(0, len(names), (draws, len(names)))
    shares = hits[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(shares, [2.5, 97.5])
    return float(hits.sum() / counts.sum()), float(low), float(high)


def from_the_log(store: Path, samples: Sequence[Sample]) -> dict[str, tuple[float, float, float]]:
    """Return how often predictors without pictures name the pivot step of the same records."""
    rows, others = chosen_rows(open_records(str(store), "sokoban"), RecordChoice(full_length=True))
    labelled = {row["episode_id"]: row for row in rows}
    tests = [labelled[sample.episode_id] for sample in samples]
    levels = [canonical_level(row) for row in tests]
    judges, _ = fit_baselines([fitting_of(row) for row in others])
    return {
        name: interval([int(judge(fitting_of(row).log).pivot.argmax()) == row["pivot_step"] for row in tests], levels)
        for name, judge in judges.items()
    }


def build_store(setting: str, root: Path) -> Path:
    """Build the store of a setting, or use an existing one."""
    runs = {"sokoban": {"tasks": TASKS, "settings": SETTINGS[setting]}}
    pivot.build({"environments": runs}, root)
    return root


def main() -> None:
    """Train and measure one seed."""
    parser = argparse.ArgumentParser(prog="python -m pivot.benchmarks.learning.stage1", description=__doc__)
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="A")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=int, default=40_000, help="training records in all, reading included")
    parser.add_argument("--warm-up", type=int, default=3_000, help="of them, at the start, reading alone")
    parser.add_argument("--share", type=float, default=0.25, help="of reading among the others")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blank", action="store_true", help="train and measure with blank collages")
    parser.add_argument("--start", type=Path, help="the final folder of an easier setting's run, to go on from")
    parser.add_argument("--store", type=Path, help="a store of the setting (default: built beside --out)")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    store = chosen.store or build_store(chosen.setting, chosen.out.parent / f"store-{chosen.setting}")
    data = read_dataset(str(store), ["sokoban"])
    horizon = SETTINGS[chosen.setting]["horizon"]
    train, held_out = (
        [sample for sample in side if sample.num_steps == horizon] for side in (data.train, data.validation)
    )
    held_out = held_out[:MEASURED]
    if not held_out:
        raise TrainingError(f"{store} holds no failure of {horizon} turns on its validation side; build more levels")
    model, encoder = load_start(chosen.start, train) if chosen.start else make_model(train, chosen.seed)
    chosen.out.mkdir(parents=True, exist_ok=True)
    curve = chosen.out / "curve.jsonl"
    curve.unlink(missing_ok=True)

    def seen(each: int) -> Image.Image:
        return blank(held_out[each].picture) if chosen.blank else held_out[each].picture

    def watch() -> dict[str, float]:
        some = held_out[:WATCHED]
        named = steps_named(model, encoder, some, seen)
        right = [step == sample.pivot_step for step, sample in zip(named, some, strict=True)]
        dead = [hit for hit, sample in zip(right, some, strict=True) if sample.failure_mode == "deadlock"]
        read = {} if chosen.blank else {"digits": digits_read(model, encoder, some)}
        return read | {"pivot": float(np.mean(right)), **({"deadlock": float(np.mean(dead))} if dead else {})}

    config = make_sft_config(
        {
            "dataset": str(store),
            "model": "scratch",
            "configs": ["sokoban"],
            "lr": chosen.lr,
            "batch": 8,
            "micro_batch": 8,
            "precision": "fp32",
            "gradient_checkpointing": False,
            "evaluate": False,
            "seed": chosen.seed,
            "save_every": 10**9,
        }
    )
    steps = chosen.records // config.batch
    trainer = AnalyzerTrainer(
        model=model,
        args=arguments(config, Plan(chosen.records, 1, steps, 1, 0), chosen.out),
        train_dataset=order(len(train), steps * config.batch, chosen.warm_up, chosen.share, chosen.seed),
        data_collator=Mixture(encoder, train, blanked=chosen.blank),
        processing_class=encoder.processor,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.add_callback(Curve(watch, config.batch, curve))
    began, worked = perf_counter(), process_time()
    trainer.train()
    results: dict[str, Any] = {
        "setting": chosen.setting,
        "seed": chosen.seed,
        "blank": chosen.blank,
        "start": str(chosen.start) if chosen.start else None,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "train_records": len(train),
        "minutes": (perf_counter() - began) / 60,
        "processor_minutes": (process_time() - worked) / 60,
    }
    save_final(open_storage(chosen.out), model, encoder.processor, "# A small Analyzer from scratch\n", {})
    results |= measure(model, encoder, held_out, seen, blanked=chosen.blank)
    results["pivot_from_the_log"] = from_the_log(store, held_out)
    (chosen.out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))  # noqa: T201 - what the command is for


def measure(
    model: Any, encoder: Encoder, samples: Sequence[Sample], seen: Callable[[int], Image.Image], *, blanked: bool
) -> dict[str, Any]:
    """Return the accuracies on held-out levels, with intervals; the free answers first, then with wrong collages."""
    levels = [sample.initial_state for sample in samples]
    replies = answers(model, encoder, samples, seen)
    right = [reply is not None and reply[0] == s.pivot_step for reply, s in zip(replies, samples, strict=True)]
    joint = [reply == (s.pivot_step, s.failure_mode) for reply, s in zip(replies, samples, strict=True)]
    accuracies: dict[str, Any] = {
        "held_out_records": len(samples),
        "held_out_levels": len(set(levels)),
        "parsed": float(np.mean([reply is not None for reply in replies])),
        "pivot": interval(right, levels),
        "joint": interval(joint, levels),
    }
    for mode in ("deadlock", "timeout"):
        chosen = [place for place, sample in enumerate(samples) if sample.failure_mode == mode]
        if chosen:
            accuracies[f"pivot_{mode}"] = interval([right[each] for each in chosen], [levels[each] for each in chosen])
    if not blanked:
        other = random.Random(0).sample(range(len(samples)), len(samples))
        pictures: dict[str, Callable[[int], Image.Image]] = {
            "pivot_with_blank_collages": lambda each: blank(samples[each].picture),
            "pivot_with_exchanged_collages": lambda each: samples[other[each]].picture,
        }
        for name, picture_of in pictures.items():
            named = steps_named(model, encoder, samples, picture_of)
            accuracies[name] = interval([step == s.pivot_step for step, s in zip(named, samples, strict=True)], levels)
    return accuracies


if __name__ == "__main__":
    main()
