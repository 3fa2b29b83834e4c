"""Additional time of an update of Stage II with hindsight, and memory of its pictures.

Time: arm ``mp`` against ``vanilla_grpo`` on the same rollouts, full-length Sokoban, by phases on one core. Memory:
scoring and training on 1,152 turns against one turn for each of their distinct pictures, each in a separate process.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

from pivot.benchmarks.harness import Row, output_of

ROUNDS = 4
MOST_TIME, MOST_MEMORY = 1.35, 1.2
TURNS, PICTURES = 1152, 288
REPLY_TOKENS, ANALYZER_TOKENS = 64, 96
"""Tokens of a turn, and of the Analyzer's text about a failure: one and a half replies."""
LANGUAGE = {"hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 8, "num_key_value_heads": 2}
VISION = {"hidden_size": 64, "intermediate_size": 176}
"""In a narrower model attention over the prompt would take most of the time, unlike in real models."""


def rows() -> Iterator[Row]:
    """Return the measured ratios."""
    yield _cost()
    yield _memory()


def _cost() -> Row:
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        _save_player(start)
        seconds = {arm: _phases(arm, start, Path(folder)) for arm in ("vanilla_grpo", "mp")}
    ours, baseline = (sum(seconds[arm].values()) for arm in ("mp", "vanilla_grpo"))
    listed = ", ".join(
        f"{name} {seconds['vanilla_grpo'][name]:.2f} -> {value:.2f}" for name, value in seconds["mp"].items()
    )
    return _row("an update with arm mp, against vanilla_grpo on the same rollouts", ours, baseline, MOST_TIME, listed)


def _config(start: Path, **fields: Any) -> Any:
    """Return the settings of an update of eight episodes of Sokoban, at full length."""
    from pivot.training.policy_rl.config import make_rl_config  # noqa: PLC0415

    few = {"levels": 12, "prompts": 4, "rollouts": 2, "generate": 16, "updates": ROUNDS, "validation_episodes": 0}
    long = {"max_tokens": REPLY_TOKENS, "analyzer_tokens": ANALYZER_TOKENS}
    # No weight moves, so that both arms play the same episodes.
    still = {"lr": 1e-12, "keep_rollouts": 0, "validate_every": 0, "save_every": 1000}
    return make_rl_config({"env": "sokoban", "model": str(start), **few, **long, **still, **fields})


def _save_player(folder: Path) -> None:
    """Save a player with random weights. It loses every episode, so all turns are distilled: the maximum cost.

    Its tokenizer is trained on the prompts, so that texts, pictures and replies have realistic shares of the tokens.
    """
    from pivot.labeling.analyzer import analyzer_text  # noqa: PLC0415
    from pivot.labeling.hindsight import Hindsight, hindsight_text  # noqa: PLC0415
    from pivot.tests.labeling.episodes import random_failures  # noqa: PLC0415
    from pivot.tests.models.from_scratch import DEVIATION, bpe_tokenizer, make_vlm  # noqa: PLC0415
    from pivot.training.policy_rl.hindsight.contexts import ARMS  # noqa: PLC0415
    from pivot.training.policy_rl.levels import first_turns, plan_levels  # noqa: PLC0415

    levels = plan_levels(_config(folder))
    messages = [message for turn in first_turns(levels, 1) for message in turn.prompt.messages]
    texts = [part["text"] for message in messages for part in message["content"] if part["type"] == "text"]
    texts += [analyzer_text(levels.env.profile, failure) for failure in random_failures("sokoban", 8)]
    shown = ARMS["mp"].shows
    texts += [
        hindsight_text("sokoban", Hindsight(shown, 3, mode, "", None)) for mode in levels.env.profile.failure_modes
    ]
    model, processor = make_vlm(
        bpe_tokenizer(texts, 4000),
        most_image_tokens=400,
        text={"head_dim": 32, **LANGUAGE},
        vision=VISION,
        deviation=DEVIATION,
    )
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def _phases(arm: str, start: Path, folder: Path) -> dict[str, float]:
    """Return the least processor seconds of each phase over some updates."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    from pivot.training.policy_rl import figures, loop  # noqa: PLC0415

    clock = figures.perf_counter
    figures.perf_counter = process_time  # pyright: ignore[reportPrivateImportUsage]
    try:
        loop.train(loop.prepare(_config(start, arm=arm)), folder / arm)
    finally:
        figures.perf_counter = clock  # pyright: ignore[reportPrivateImportUsage]
    text = (folder / arm / "metrics.jsonl").read_text(encoding="utf-8")
    phases = [json.loads(line)["seconds"] for line in text.splitlines()]
    return {name: min(each[name] for each in phases) for name in phases[0]}


def _memory() -> Row:
    ours, baseline = (_grown(count) for count in (TURNS, PICTURES))
    note = f"MB above model and libraries; {PICTURES} distinct pictures"
    return _row(f"{TURNS} turns with pictures, against one for each picture", ours, baseline, MOST_MEMORY, note)


def _grown(turns: int) -> float:
    return float(output_of([sys.executable, "-P", "-m", "pivot.benchmarks.bench_stage2", str(turns)]).split()[-1])


def _row(name: str, ours: float, baseline: float, most: float, note: str) -> Row:
    ratio = ours / baseline
    return Row(
        name=name,
        ours=ours,
        baseline=baseline,
        ratio=ratio,
        required=most,
        passed=ratio <= most,
        note=f"{note}; the ratio may be at most what is required",
    )


def _peak() -> float:
    """Return the peak memory of this program, MB; ``getrusage`` would include the parent process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main(turns: int) -> None:
    """Score ``turns`` turns and train on the first 64; print the growth of the process in MB."""
    torch, np = import_module("torch"), import_module("numpy")
    torch.set_num_threads(1)
    from pivot.benchmarks.learning.player import make_player  # noqa: PLC0415
    from pivot.core.messages import EncodedFrame, PromptMessages  # noqa: PLC0415
    from pivot.training.encode import Encoder  # noqa: PLC0415
    from pivot.training.policy_rl.config import make_rl_config  # noqa: PLC0415
    from pivot.training.policy_rl.learner import Learner, score_turns  # noqa: PLC0415
    from pivot.training.policy_rl.scoring import Row, Scorer, TurnSample  # noqa: PLC0415
    from pivot.training.policy_rl.weights import ModelWeights  # noqa: PLC0415

    model, processor = make_player([])
    encoder = Encoder(processor)
    scorer = Scorer(encoder)
    draw = np.random.default_rng(0)

    def samples(count: int, pictures: int) -> Sequence[Any]:
        prompts = []
        for number in range(pictures):
            pixels = draw.integers(0, 255, (128, 128, 3), np.uint8)
            frame = EncodedFrame.encode(pixels)
            scorer.pictures[frame.frame_id] = frame
            parts = [{"type": "image", "frame_id": frame.frame_id}, {"type": "text", "text": "Go."}]
            prompts.append(PromptMessages(f"{number}", "bench", "1", ({"role": "user", "content": parts},)))
        tokens = tuple(encoder.reply_tokens("<think></think><action>up</action>"))
        rows = [Row(prompts[number % pictures], tokens) for number in range(count)]
        return [TurnSample(str(number), 0, row, row, 1.0, 2) for number, row in enumerate(rows)]

    config = make_rl_config({"env": "frozenlake", "model": "none", "kl": 0.0, "micro_batch_tokens": 4096})
    weights = ModelWeights(model)
    learner = Learner(model, scorer, config)
    warm = samples(64, 1)
    learner.update(score_turns(warm, scorer, weights, None, config)[:64], 1)
    before = _peak()
    scored = score_turns(samples(turns, PICTURES), scorer, weights, None, config)
    learner.update(scored[:64], 1)
    sys.stdout.write(f"{_peak() - before:.1f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
