"""GRPO on MiniGrid with certified credit for each turn beside plain GRPO, on a CPU.

Run it with: python examples/minigrid_credit.py
It needs the package with its training extra (PyTorch) and MiniGrid, downloads nothing, and takes about a minute.
The agent has to walk around lava. A return says that an episode failed; the credit says at which turn.
"""
# pyright: reportMissingImports=false

from itertools import pairwise
from typing import Any

import gymnasium
import minigrid  # noqa: F401 - registers the environments
import numpy as np
import pivot
import torch
from torch import nn

ENV, SEEDS, HORIZON = "MiniGrid-LavaGapS5-v0", (0, 1, 2, 3), 12
ACTIONS = {"left": 0, "right": 1, "forward": 2}
GROUP, UPDATES = 8, 40


def turn_scores(needs: list[float]) -> list[float]:
    """Return the progress of each turn: needed turns before it minus after it, and -1 where success gets impossible.

    This is the rule ``progress`` of ``pivot.credit``, written out: another rule is another line here.
    """
    return [
        before - after if np.isfinite([before, after]).all() else float(np.isfinite(after)) - float(np.isfinite(before))
        for before, after in pairwise(needs)
    ]


class Agent(nn.Module):
    """A network of two layers that sees what MiniGrid shows: 7x7 cells with object, colour and state."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7 * 7 * 3 + 4, 64), nn.Tanh(), nn.Linear(64, len(ACTIONS)))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of the actions, of shape (turns, actions)."""
        return self.layers(seen).log_softmax(-1)


def encoded(observation: Any) -> torch.Tensor:
    """Return the observation as one vector."""
    view = torch.tensor(observation["image"], dtype=torch.float32).flatten() / 10
    return torch.cat([view, nn.functional.one_hot(torch.tensor(int(observation["direction"])), 4).float()])


def play(env: pivot.Certified, agent: Agent, seed: int) -> dict[str, Any]:
    """Play one episode; `info` says after every turn how many turns success still takes."""
    observation, info = env.reset(seed=seed)
    episode: dict[str, Any] = {"seen": [], "actions": [], "needs": [info["need"]], "return": 0.0, "pivot": None}
    for turn in range(HORIZON):
        episode["seen"].append(encoded(observation))
        with torch.no_grad():
            action = int(torch.distributions.Categorical(logits=agent(episode["seen"][-1])).sample())
        observation, reward, terminated, _, info = env.step(action)
        episode["actions"].append(action)
        episode["needs"].append(info["need"])
        episode["return"] = float(reward > 0)
        if info["is_pivot"]:
            episode["pivot"] = turn
        if terminated:
            break
    return episode


def update(agent: Agent, optimizer: torch.optim.Optimizer, groups: list[list[dict[str, Any]]], credit: float) -> float:
    """Take one step of GRPO; each turn has the advantage of its episode plus `credit` times its own."""
    losses = []
    for group in groups:
        returns = torch.tensor([episode["return"] for episode in group])
        outcome = (returns - returns.mean()) / (returns.std(correction=0) + 1e-6)
        scores = [torch.tensor(turn_scores(episode["needs"])) for episode in group]
        every = torch.cat(scores)
        for episode, advantage, score in zip(group, outcome, scores, strict=True):
            own = (score - every.mean()) / (every.std(correction=0) + 1e-6)
            logprobs = agent(torch.stack(episode["seen"]))
            taken = logprobs.gather(1, torch.tensor(episode["actions"])[:, None])[:, 0]
            losses.append(-(taken * (advantage + credit * own)).mean())
    loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(credit: float) -> None:
    """Train an agent from scratch and print where its failures were lost."""
    torch.manual_seed(0)
    env = pivot.Certified(gymnasium.make(ENV), HORIZON, actions=ACTIONS)  # every level is searched once
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=0.003)
    won, lost, losses = [], [], list[float]()
    for _ in range(UPDATES):
        groups = [[play(env, agent, seed) for _ in range(GROUP)] for seed in SEEDS]
        losses.append(round(update(agent, optimizer, groups, credit), 3))
        episodes = [episode for group in groups for episode in group]
        won.append(sum(episode["return"] for episode in episodes) / len(episodes))
        lost.append(np.mean([episode["pivot"] for episode in episodes if episode["pivot"] is not None]))
    name = "plain GRPO" if not credit else "GRPO with credit"
    print(f"{name}: success {100 * np.mean(won[:5]):.0f} % in the first five updates,", end=" ")
    print(f"{100 * np.mean(won[-5:]):.0f} % in the last five")
    print(f"  mean pivot turn {np.mean(lost[:5]):.1f} in the first five; losses {losses[-2:]}")


if __name__ == "__main__":
    for weight in (0.0, 1.0):
        train(weight)
