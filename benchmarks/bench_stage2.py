"""What hindsight costs an update of Stage II, and what its pictures cost of memory.

The cost: arm ``mp`` against ``vanilla_grpo`` on the same rollouts, by phases of one core; the Analyzer writes as many
tokens about a failure as the player does in a turn and a half. The memory: scoring and stepping through 1,152 turns
against one turn for each of their distinct pictures, each in a process of its own that says how large it became.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

ROUNDS = 4
MOST_TIME, MOST_MEMORY = 1.35, 1.2
TURNS, PICTURES = 1152, 288
ANALYZER_TOKENS = 12
"""One and a half replies of the player; at the paper's sizes, 60 to 512 of a turn."""


def rows() -> list[dict[str, Any]]:
    """Return the measured ratios."""
    return [_cost(), _memory()]


def _cost() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        seconds = {arm: _phases(arm, Path(folder)) for arm in ("vanilla_grpo", "mp")}
    ours, baseline = (sum(seconds[arm].values()) for arm in ("mp", "vanilla_grpo"))
    listed = ", ".join(
        f"{name} {seconds['vanilla_grpo'][name]:.2f} -> {value:.2f}" for name, value in seconds["mp"].items()
    )
    return _row("an update with arm mp, against vanilla_grpo on the same rollouts", ours, baseline, MOST_TIME, listed)


def _phases(arm: str, folder: Path) -> dict[str, float]:
    """Return the least processor seconds of each phase over some updates."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    from pivot.tests.training.lake import save_grammatical, short  # noqa: PLC0415
    from pivot.training import loop  # noqa: PLC0415

    clock, start = loop.perf_counter, folder / "start"
    loop.perf_counter = process_time  # pyright: ignore[reportPrivateImportUsage]
    try:
        if not start.exists():
            save_grammatical(start)
        # No weight moves, so that both arms play the same episodes.
        settings = {
            "lr": 1e-12,
            "updates": ROUNDS,
            "prompts": 8,
            "analyzer_tokens": ANALYZER_TOKENS,
            "keep_rollouts": 0,
        }
        loop.train(loop.prepare(short(start, arm=arm, **settings)), folder / arm)
    finally:
        loop.perf_counter = clock  # pyright: ignore[reportPrivateImportUsage]
    text = (folder / arm / "metrics.jsonl").read_text(encoding="utf-8")
    told = [json.loads(line)["seconds"] for line in text.splitlines()]
    return {name: min(each[name] for each in told) for name in told[0]}


def _memory() -> dict[str, Any]:
    ours, baseline = (_grown(count) for count in (TURNS, PICTURES))
    note = f"MB beside model and libraries; {PICTURES} distinct pictures"
    return _row(f"{TURNS} turns with pictures, against one for each picture", ours, baseline, MOST_MEMORY, note)


def _grown(turns: int) -> float:
    words = [sys.executable, "-P", "-m", "pivot.benchmarks.bench_stage2", str(turns)]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1])


def _row(name: str, ours: float, baseline: float, most: float, note: str) -> dict[str, Any]:
    ratio = ours / baseline
    return {
        "name": name,
        "ours": ours,
        "baseline": baseline,
        "ratio": ratio,
        "required": most,
        "passed": ratio <= most,
        "note": f"{note}; the ratio may be at most what is required",
    }


def _peak() -> float:
    """Return how large this program has become, MB; ``getrusage`` counts the process that started it, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main(turns: int) -> None:
    """Score so many turns and step through the first of them; print by how many MB the process grew."""
    torch, np = import_module("torch"), import_module("numpy")
    torch.set_num_threads(1)
    from pivot.benchmarks.learning.player import make_player  # noqa: PLC0415
    from pivot.images import encode_png, frame_id  # noqa: PLC0415
    from pivot.messages import EncodedFrame, PromptMessages  # noqa: PLC0415
    from pivot.training.config import make_rl_config  # noqa: PLC0415
    from pivot.training.encode import Encoder  # noqa: PLC0415
    from pivot.training.ranks import ALONE  # noqa: PLC0415
    from pivot.training.scoring import Row, Scorer  # noqa: PLC0415
    from pivot.training.turns import TurnSample  # noqa: PLC0415
    from pivot.training.update import Learner, score_turns  # noqa: PLC0415

    model, processor = make_player([])
    encoder = Encoder(processor)
    scorer = Scorer(encoder)
    draw = np.random.default_rng(0)

    def samples(count: int, pictures: int) -> Sequence[Any]:
        prompts = []
        for number in range(pictures):
            pixels = draw.integers(0, 255, (128, 128, 3), np.uint8)
            frame = EncodedFrame(frame_id(pixels), 128, 128, "png", encode_png(pixels))
            scorer.pictures[frame.frame_id] = frame
            parts = [{"type": "image", "frame_id": frame.frame_id}, {"type": "text", "text": "Go."}]
            prompts.append(PromptMessages(f"{number}", "bench", "1", ({"role": "user", "content": parts},)))
        tokens = tuple(encoder.reply_tokens("<think></think><action>up</action>"))
        rows = [Row(prompts[number % pictures], tokens) for number in range(count)]
        return [TurnSample(str(number), 0, row, row, 1.0, 2) for number, row in enumerate(rows)]

    config = make_rl_config({"env": "frozenlake", "model": "none", "kl": 0.0, "micro_batch_tokens": 4096})
    learner = Learner(model, scorer, config, ALONE)
    warm = samples(64, 1)
    learner.update(score_turns(warm, scorer, model, None, config, ALONE)[:64], 1)
    before = _peak()
    scored = score_turns(samples(turns, PICTURES), scorer, model, None, config, ALONE)
    learner.update(scored[:64], 1)
    sys.stdout.write(f"{_peak() - before:.1f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
