"""Small lakes for tests of Stage II: a player that only knows the reply format, and short runs."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
pytest.importorskip("transformers")
safetensors: Any = pytest.importorskip("safetensors.torch")

from pivot.benchmarks.learning.player import FAMILIES, make_player  # noqa: E402
from pivot.benchmarks.learning.stage2 import MOVES, SETTINGS, lessons, settings_of, texts_of  # noqa: E402
from pivot.labeling.analyzer import analyzer_text  # noqa: E402
from pivot.tests.labeling.episodes import random_failures  # noqa: E402
from pivot.training.encode import Encoder  # noqa: E402
from pivot.training.policy_rl import loop  # noqa: E402
from pivot.training.policy_rl.config import RlConfig  # noqa: E402
from pivot.training.policy_rl.levels import plan_levels  # noqa: E402
from pivot.training.policy_rl.scoring import Row, Scorer  # noqa: E402

torch.set_num_threads(1)
MAY_DIFFER = ("calls/", ".receipts/", "manifest.json", "pivot.duckdb")
"""Fields of tables that depend on time, and tables of files that contain them."""
Line = dict[str, Any]


def short(model: Path | str, **fields: Any) -> RlConfig:
    """Settings of a run of seconds: four levels with four episodes each."""
    small = {"prompts": 4, "rollouts": 4, "updates": 2, "minibatch": 16, "levels": 12, "generate": 16}
    few = {"validation_episodes": 0, "analyzer_tokens": 4, "max_tokens": 8, "lr": 1e-3}
    return settings_of(str(model), **(small | few | fields))


def run(out: Path, player: Path, *, resume: bool = False, report: Any = lambda _: None, **fields: Any) -> list[Line]:
    """Make a short run; return its metrics. The draws depend on the model's name, so that is without the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(player.parent)
        loop.train(loop.prepare(short(player.name, **fields)), out, resume=resume, report=report)
    return lines_of(out)


@cache
def _grammatical(family: str) -> tuple[Any, Any]:
    """Return model and processor that always reply with some action."""
    levels = plan_levels(short("none"))
    failures = random_failures("frozenlake", 8, **SETTINGS)
    lines = [line for each in failures for line in analyzer_text(levels.env.profile, each).splitlines()]
    whole = [*texts_of(levels), *(line for line in lines if len(line) > 12 and not line.startswith("step "))]
    model, processor = make_player(whole, family=family)
    encoder = Encoder(processor)
    scorer = Scorer(encoder)
    prompts = [prompt for prompt, _ in lessons(levels, scorer)]
    replies = [tuple(encoder.reply_tokens(f"<think></think><action>{move}</action>")) for move in MOVES]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    draw = random.Random(0)
    for _ in range(40):
        rows = [Row(draw.choice(prompts), draw.choice(replies)) for _ in range(16)]
        optimizer.zero_grad()
        (-scorer(model, rows).mean()).backward()
        optimizer.step()
    return model, processor


def save_grammatical(folder: Path, family: str = FAMILIES[0]) -> Path:
    """Save a player that answers with any action."""
    for part in _grammatical(family):
        part.save_pretrained(folder)
    return folder


def lines_of(folder: Path) -> list[Line]:
    """Return the metrics of a run, without seconds and what depends on the machine."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        for name in ("seconds", "tokens_per_second", "peak_memory"):
            line.pop(name, None)
        line.get("validation", {}).pop("seconds", None)
    return lines


def weights_in(folder: Path) -> dict[str, Any]:
    """The weights of a checkpoint by name."""
    return safetensors.load_file(folder / "model.safetensors")


def bytes_of(run: Path) -> dict[str, bytes]:
    """Return the content of the files of a run by name; files with times are left out."""
    kept = [path for path in sorted(run.rglob("*")) if path.is_file() and not path.name.startswith(".lock")]
    named = {path.relative_to(run).as_posix(): path for path in kept}
    return {
        name: path.read_bytes()
        for name, path in named.items()
        if name != "metrics.jsonl" and not name.removeprefix("rollouts/").startswith(MAY_DIFFER)
    }
