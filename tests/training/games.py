"""Two small games for tests of runs of several environments: lakes and rooms, and a player that knows the grammar."""

import random
from pathlib import Path
from typing import Any

from pivot.benchmarks.learning.player import make_player
from pivot.benchmarks.learning.stage2 import MOVES
from pivot.benchmarks.learning.stage2 import SETTINGS as LAKE
from pivot.labeling.analyzer import analyzer_text
from pivot.labeling.hindsight import Hindsight, hindsight_text
from pivot.tests.labeling.episodes import random_failures
from pivot.tests.training.lake import torch
from pivot.training.encode import Encoder
from pivot.training.policy_rl.config import RlConfig, make_rl_config
from pivot.training.policy_rl.levels import first_turns, plan_levels
from pivot.training.policy_rl.mixture import member_configs
from pivot.training.policy_rl.scoring import Row, Scorer

ROOM = {"rows": 5, "cols": 5, "min_solution": 1, "max_solution": 2, "horizon": 3, "cell": 16}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "sokoban": {"settings": ROOM, "levels": 20, "weight": 3.0},
    "frozenlake": {"settings": LAKE, "levels": 12},
}
"""Three rooms and one lake in an update of four levels."""


def two(model: Path | str, **fields: Any) -> RlConfig:
    """Settings of a run of seconds on both games."""
    small = {"prompts": 4, "rollouts": 4, "updates": 2, "minibatch": 16, "generate": 16, "held_out": 0.3}
    few = {"validation_episodes": 0, "analyzer_tokens": 4, "max_tokens": 8, "lr": 1e-3, "save_every": 1}
    return make_rl_config({"environments": ENVIRONMENTS, "model": str(model)} | small | few | fields)


def save_player_of_both(folder: Path) -> Path:
    """Save a player that answers with an action in both games, whichever."""
    alone = member_configs(two("none"))
    turns = [turn for each in alone for turn in first_turns(plan_levels(each), 6)]
    lines = [part["text"] for turn in turns for part in turn.prompt.messages[-1]["content"] if part["type"] == "text"]
    for config in alone:
        profile = plan_levels(config).env.profile
        for failure in random_failures(config.env, 8, **config.settings):
            lines += [line for line in analyzer_text(profile, failure).splitlines() if not line.startswith("step ")]
        for mode in profile.failure_modes:
            lines += hindsight_text(config.env, Hindsight(("panel", "mode", "pivot"), 0, mode, "", None)).splitlines()
    model, processor = make_player(dict.fromkeys(line for line in lines if len(line) > 12))
    encoder = Encoder(processor)
    scorer = Scorer(encoder)
    for turn in turns:
        scorer.pictures |= turn.images
    replies = [tuple(encoder.reply_tokens(f"<think></think><action>{move}</action>")) for move in MOVES]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    draw = random.Random(0)
    for _ in range(40):
        rows = [Row(draw.choice(turns).prompt, draw.choice(replies)) for _ in range(16)]
        optimizer.zero_grad()
        (-scorer(model, rows).mean()).backward()
        optimizer.step()
    for part in (model, processor):
        part.save_pretrained(folder)
    return folder
