"""Table of bounds by resampling against exact certificates: the one of docs/reference/evidence.md.

``python -m pivot.benchmarks.bound_table [FAILURES]``: failures of Sokoban and FrozenLake by the embedded policy, each
resampled by four policies from every step (uniform sampling) and by bisection. Prints Markdown.
"""

import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import pivot
from pivot.core import plugins
from pivot.environments.base import PivotEnv
from pivot.insight.probe.bounds import Bisection, reached_step
from rich.console import Console

UNIFORM = 32
"""Retries per step of uniform sampling."""
SHARE = 1 / 3
"""Largest share of the retries of uniform sampling that the bisection takes, over all failures."""
MOST_SHARE = 1 / 2
"""Largest share, for one failure, of the retries that other failures did not use."""
RESAMPLERS: dict[str, float] = {"always best": 1.0, "best in 9 of 10": 0.9, "best in 1 of 2": 0.5, "random": 0.0}
"""Share of best moves of each resampler; the others are uniform."""


@dataclass
class Play:
    """Retries of one failure by one resampler."""

    env: PivotEnv
    states: list[bytes]
    """Snapshots before each step."""
    texts: list[str]
    """State texts before each step."""
    options: Callable[[str], tuple[int | None, ...]]
    share: float
    rng: random.Random
    cache: dict[str, list[int]] = field(default_factory=dict)

    def retry(self, step: int) -> int | None:
        """Play on from a step; return the latest step that a success proves, None for a failure."""
        env, texts = self.env, self.texts[:step]
        env.restore(self.states[step])
        while True:
            texts.append(env.state_text())
            _, _, terminated, truncated, info = env.step(self.move(texts[-1]))
            if terminated or truncated:
                return reached_step(self.texts, texts, step) if info["success"] else None

    def move(self, text: str) -> int:
        if self.rng.random() >= self.share:
            return self.rng.randrange(4)
        best = self.cache.get(text)
        if best is None:
            after = self.options(text)
            reachable = [depth for depth in after if depth is not None]
            least = min(reachable, default=0)
            best = self.cache[text] = [index for index, depth in enumerate(after) if depth == least] or [0, 1, 2, 3]
        return self.rng.choice(best)


@dataclass
class Count:
    """Sums over the failures of one row."""

    failures: int = 0
    exact: list[int] = field(default_factory=lambda: [0, 0, 0])
    above: int = 0
    spare: float = 0.0
    """Retries that the bisection of earlier failures left over."""
    retries: list[int] = field(default_factory=lambda: [0, 0, 0])


def failures_of(env: str, count: int, root: Path) -> list[dict[str, Any]]:
    """Return failures with their certificates, from as many levels as needed."""
    pivot.build({"environments": {env: {"tasks": max(20, count // 4), "settings": {}}}, "seed": 47}, root)
    frames = pivot.load_store(root)
    rows = frames.episodes.join(frames.labels, on="episode_id").collect().to_dicts()
    usable = [row for row in rows if row["pivot_step"] is not None and row["num_steps"] > 1]
    assert len(usable) >= count, f"{len(usable)} failures of {env}, expected {count}"
    return usable[:count]


def measure(row: dict[str, Any], share: float, seed: int, count: Count) -> None:
    """Resample one failure in both ways."""
    env: PivotEnv = plugins.load("environments", row["env"])()
    env.draw_frames = False
    env.reset(options={"state": row["initial_state"]})
    states: list[bytes] = []
    texts: list[str] = []
    for action in row["actions"]:
        states.append(env.snapshot())
        texts.append(env.state_text())
        env.step(env.encode_action(action))
    options = plugins.load("solvers", row["env"])().distance_map(row["initial_state"]).after_each_action
    play = Play(env, states, texts, options, share, random.Random(seed))
    last, truth = len(states) - 1, row["pivot_step"]
    uniform, through, stopped = 0, 0, 0
    for step in range(1, last + 1):
        won = [play.retry(step) for _ in range(UNIFORM)]
        proved = [each for each in won if each is not None]
        uniform = step if proved else uniform
        through = max([through, *proved])
        stopped += next((index for index, each in enumerate(won, 1) if each is not None), UNIFORM)
    total = UNIFORM * last
    play.rng = random.Random(seed + 1)
    allowed = total * SHARE + count.spare
    search = Bisection(last, UNIFORM, int(min(allowed, MOST_SHARE * total)))
    while (step := search.next_step()) is not None:
        search.add(step, play.retry(step))
    count.spare = allowed - search.played
    count.failures += 1
    count.above += sum(each > truth for each in (uniform, through, search.proven))
    for index, proven in enumerate((uniform, through, search.proven)):
        count.exact[index] += proven == truth
    for index, retries in enumerate((total, stopped, search.played)):
        count.retries[index] += retries


def main() -> None:
    out = Console()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    heads = (
        "environment",
        "resampler",
        "failures",
        "bounds above t\\*",
        "t\\* reached: uniform",
        "with states on the way",
    )
    more = ("bisection", "retries: uniform", "stopping at a success", "bisection", "its share")
    out.print(f"| {' | '.join((*heads, *more))} |\n{'|---' * len((*heads, *more))}|", soft_wrap=True, markup=False)
    with tempfile.TemporaryDirectory() as folder:
        for env in ("sokoban", "frozenlake"):
            rows = failures_of(env, count, Path(folder) / env)
            for name, share in RESAMPLERS.items():
                began, total = process_time(), Count()
                for number, row in enumerate(rows):
                    measure(row, share, 2 * number, total)
                exact = [f"{100 * each / total.failures:.1f} %" for each in total.exact]
                cells = [env, name, total.failures, total.above, *exact, *total.retries]
                share_of_uniform = total.retries[2] / total.retries[0]
                out.print(f"| {' | '.join(map(str, cells))} | {share_of_uniform:.3f} |", soft_wrap=True, markup=False)
                Console(stderr=True).print(f"{process_time() - began:.0f} s")


if __name__ == "__main__":
    main()
