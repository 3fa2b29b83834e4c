"""From 500 failed trajectories of a gridworld of your own to a preference dataset that trains, on a CPU.

Run it with: python examples/own_gridworld.py
It needs the package with its training extra (TRL and PyTorch), downloads nothing, and takes about a minute.
"""
# pyright: reportMissingImports=false

import random
from collections import Counter
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import pivot
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

import datasets

# 1. The environment: nine by nine cells with traps, of which the agent sees three by three. The seed is the level.

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
HORIZON = 24


class Cave(gymnasium.Env[Any, Any]):
    """A cave: reach the other corner without stepping into a trap."""

    action_space = gymnasium.spaces.Discrete(4)
    observation_space = gymnasium.spaces.Box(0, 3, (3, 3), np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw the traps of a level."""
        super().reset(seed=seed, options=options)
        cells = random.Random(seed).sample([(r, c) for r in range(9) for c in range(9)], 12)
        self.traps, self.at = {cell for cell in cells if 1 < sum(cell) < 15}, (0, 0)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move; walls stop the agent, a trap ends the episode."""
        to = [place + move for place, move in zip(self.at, [*MOVES.values()][int(action)], strict=True)]
        self.at = (min(8, max(0, to[0])), min(8, max(0, to[1])))
        won = self.at == (8, 8)
        return self._seen(), float(won), won or self.at in self.traps, False, {}

    def _seen(self) -> Any:
        """Return the cells around the agent: 0 free, 1 trap, 2 goal, 3 wall."""
        rows = [[(self.at[0] + r, self.at[1] + c) for c in (-1, 0, 1)] for r in (-1, 0, 1)]
        return np.array([[self._kind(cell) for cell in row] for row in rows], np.int8)

    def _kind(self, cell: tuple[int, int]) -> int:
        return 3 if not (min(cell) >= 0 and max(cell) <= 8) else 2 if cell == (8, 8) else int(cell in self.traps)


# 2. The failures: in your case they are there already. A trajectory is a dict with plain lists.


def failures(count: int) -> list[dict[str, Any]]:
    """Play at random until so many episodes have failed."""
    rng, env, failed = random.Random(0), Cave(), list[dict[str, Any]]()
    while len(failed) < count:
        seed, over = len(failed) % 4, False
        actions: list[str] = []
        observations, won = [env.reset(seed=seed)[0].tolist()], 0.0
        while not over and len(actions) < HORIZON:
            actions.append(rng.choice(["up", "down", "down", "left", "right", "right"]))
            seen, won, over, _, _ = env.step([*MOVES].index(actions[-1]))
            observations.append(seen.tolist())
        if not won:
            failed.append({"seed": seed, "horizon": HORIZON, "actions": actions, "observations": observations})
    return failed


# 3. What the agent was asked, as a function of what it saw and did.


def prompt(observation: Any, history: Any) -> str:
    """Return the question of one turn."""
    rows = " / ".join(" ".join([".", "trap", "goal", "wall"][cell] for cell in row) for row in observation)
    return f"you see {rows} after {len(history)} moves . where do you go ?"


# 4. Where was each failure lost, and what would still have worked there? Then two steps of DPO.


def main() -> None:
    """Label the failures and train on the pairs."""
    trajectories = failures(500)
    names = {name: index for index, name in enumerate(MOVES)}
    verdicts = pivot.certify_batch(Cave, trajectories, actions_by_name=names)
    lost = Counter(verdict.failure_mode for verdict in verdicts if isinstance(verdict, pivot.Verdict))
    print("lost by", dict(lost))
    first = verdicts[0]
    assert isinstance(first, pivot.Verdict)
    print(f"the first at step {first.pivot_step}, where this still worked: {' '.join(first.witness or ())}")
    rows = datasets.Dataset.from_list(pivot.pairs(verdicts, trajectories, prompt))
    print(
        len(rows),
        "pairs, such as",
        rows[0]["prompt"][0]["content"],
        rows[0]["chosen_action"],
        rows[0]["rejected_action"],
    )

    tokenizer = tiny_tokenizer([prompt(each["observations"][0], ()) for each in trajectories] + [*MOVES])
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    config = GPT2Config(vocab_size=len(tokenizer), **shape)
    run = {"max_steps": 2, "logging_steps": 1, "save_strategy": "no", "report_to": "none", "use_cpu": True}
    settings = DPOConfig("runs/own-gridworld", per_device_train_batch_size=8, **run)
    columns = rows.select_columns(["prompt", "chosen", "rejected"])
    model = GPT2LMHeadModel(config)
    trainer = DPOTrainer(model, deepcopy(model), settings, train_dataset=columns, processing_class=tokenizer)
    trainer.train()
    print("losses", [each["loss"] for each in trainer.state.log_history if "loss" in each])


def tiny_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words with a chat template; in your case that of your model."""
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["<pad>", "<end>", "<unk>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")
    tokenizer.chat_template = "{% for each in messages %}{{ each.content }} <end> {% endfor %}"
    return tokenizer


if __name__ == "__main__":
    main()
