"""Study of the hindsight that helps a small network: the arms of Stage II without pictures, minutes on one core.

``python -m pivot.benchmarks.learning.small run`` trains a network of two layers on the one-hot state of FrozenLake
(4x4, nine turns) and Sokoban (four turns) with GRPO and one arm each, and resumes where its file of results ends;
``small table`` prints paired differences with 95 % intervals; ``small rates`` looks at weights on three other seeds;
``small silent`` takes the advantages of most groups away and asks whether a Teacher of weight 0.01 then decides.

Success is exact: dynamic programming over all states that an episode can reach. Pivots and corrections are those of the
product's solvers, losses and advantages those of ``training/policy_rl``. All arms of a seed start from one network,
cloned from an expert until it wins 18 to 25 % of the training levels.
"""

import argparse
import copy
import os
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pivot.benchmarks.learning.ledger import Ledger, area, figures_table, key_of
from pivot.benchmarks.learning.small_arms import (
    ANALYZER_ACCURACY,
    ARMS,
    CONTROLS,
    RATE_GAME,
    RATE_WEIGHTS,
    RATED,
    TILT,
    SmallArm,
)
from pivot.benchmarks.learning.worlds import FAR, World, exact_success, explore
from pivot.core.identity import derive_seed
from pivot.datasets.store.config import solver_type
from pivot.models.extras import need
from pivot.solvers.base import Case, Verdict
from pivot.solvers.puzzles import ACTIONS
from pivot.training.policy_rl import losses
from pivot.training.policy_rl.advantages import group_advantages
from pivot.training.policy_rl.config import make_rl_config
from pivot.training.policy_rl.hindsight.contexts import random_other_step
from pivot.training.policy_rl.hindsight.corrections import corrected_step
from pivot.training.policy_rl.learner import roc_area
from pivot.training.policy_rl.levels import plan_levels
from pivot.training.policy_rl.losses import TokenBatch, Weights, preference_loss, stage_two_loss, witness_loss

torch: Any = need("torch", "train")

RESULTS = Path(__file__).parent / "results"
GAMES: dict[str, dict[str, Any]] = {"frozenlake": {}, "sokoban": {"horizon": 4, "max_solution": 3}}
LEVELS, HELD_OUT = 400, 0.25
UPDATES, PROMPTS, ROLLOUTS, MINIBATCH, LR = 80, 16, 8, 64, 1e-3
EVERY = 4
"""Updates between two points of the curve of exact success."""
WIDTH, LOW, HIGH = 128, 0.18, 0.25
CLIP, KL, BETA, DPO_BETA = 0.2, 0.01, 5.0, 0.1
SEEDS, RATE_SEEDS, RATE_UPDATES = tuple(range(10)), (100, 101, 102), 40
SILENT, SILENT_ARMS = 0.9, ("vanilla_grpo", "empty", "oracle")
"""Share of groups whose advantages ``silent`` sets to zero, in addition to groups with equal returns."""
PROTOCOL = 1
"""Raised with every change that moves figures: results of different protocols are never compared."""


@dataclass(frozen=True)
class Setup:
    """Training and held-out levels of a seed, their one-hot states, and the network from which all arms start."""

    train: World
    held_out: World
    inputs: Any
    held_out_inputs: Any
    start: Any


def one_hot(world: World) -> Any:
    """Return the symbols of each state's cells as one-hot rows; float32, shape (states, features).

    On a lake, whose player is not among the cells, a second row of flags per state marks the player's cell.
    """
    flags: list[NDArray[np.float32]] = []
    for state in world.states:
        rows, mark, position = state.partition("\n@ ")
        lines = rows.split("\n")
        cells = "".join(lines)
        symbols = "SFHG" if "S" in cells else "#@+$*. "
        hot = np.array([[cell == symbol for symbol in symbols] for cell in cells], np.float32).ravel()
        if symbols == "SFHG":
            row, column = map(int, position.split()) if mark else divmod(cells.index("S"), len(lines[0]))
            hot = np.concatenate([hot, np.eye(len(cells), dtype=np.float32)[row * len(lines[0]) + column]])
        flags.append(hot)
    return torch.from_numpy(np.stack(flags))


def make_network(features: int, seed: int) -> Any:
    """Return a new network; its output is the logits of the four actions."""
    torch.manual_seed(derive_seed("small network", seed) % 2**31)
    nn = torch.nn
    return nn.Sequential(nn.Linear(features, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))


@torch.no_grad()
def policy_of(network: Any, inputs: Any) -> NDArray[np.float64]:
    """Return the probability of each action in each state; shape (states, 4)."""
    return network(inputs).double().softmax(-1).numpy()


@cache
def setup(game: str, seed: int) -> Setup:
    """Plan the levels of a seed and clone its start.

    Raises:
        RuntimeError: cloning never reached the intended success rate.
    """
    fields = {"env": game, "settings": GAMES[game], "model": "none", "levels": LEVELS, "held_out": HELD_OUT}
    levels = plan_levels(make_rl_config(fields | {"seed": seed}))
    world, held_out = (explore(levels.env, levels.config, tasks) for tasks in (levels.train, levels.validation))
    inputs = one_hot(world)
    return Setup(world, held_out, inputs, one_hot(held_out), cloned(world, inputs, seed))


def cloned(world: World, inputs: Any, seed: int) -> Any:
    """Return a network cloned from an expert until it wins ``LOW`` to ``HIGH`` of the levels of ``world``."""
    network = make_network(inputs.shape[1], seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4, weight_decay=0.0)
    solvable = np.flatnonzero(world.distance < FAR)
    rng = np.random.default_rng(derive_seed("clone", seed))
    for _ in range(2000):
        success = exact_success(world, policy_of(network, inputs)).mean()
        if LOW <= success <= HIGH:
            return network
        chosen = rng.choice(solvable, MINIBATCH)
        best = torch.from_numpy(world.after[chosen].argmin(axis=1))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs[chosen]), best).backward()
        optimizer.step()
    raise RuntimeError(f"seed {seed}: cloning never came to {LOW:.0%} to {HIGH:.0%} of success")


# One update


@dataclass(frozen=True)
class Turns:
    """Turns of the episodes of an update, episode after episode; arrays of shape (turns,)."""

    episode: NDArray[np.int64]
    t: NDArray[np.int64]
    state: NDArray[np.int64]
    action: NDArray[np.int64]
    advantage: Any


def play(world: World, policy: NDArray[np.float64], starts: NDArray[np.int64], rng: Any) -> tuple[Turns, Any, Any]:
    """Play an episode from each of ``starts``; return its turns, returns and successes. Advantages are not set."""
    cumulative = policy.cumsum(axis=1)
    at, running = starts.copy(), np.ones(len(starts), bool)
    returns, wins = np.zeros(len(starts)), np.zeros(len(starts), bool)
    parts: list[tuple[Any, ...]] = []
    for t in range(world.horizon):
        who = np.flatnonzero(running)
        states = at[who]
        chosen = (rng.random(len(who))[:, None] > cumulative[states]).sum(axis=1).clip(max=3)
        parts.append((who, np.full(len(who), t), states, chosen))
        returns[who] += world.rewards[states, chosen]
        wins[who] |= world.won[states, chosen]
        at[who] = world.following[states, chosen]
        running[who] = ~world.over[states, chosen]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return Turns(*(column[order] for column in columns), advantage=None), returns, wins


@dataclass(frozen=True)
class Failure:
    """A failed episode with its label, in the form of the product's corrections."""

    episode_id: str
    initial_state: str
    steps: Sequence[Any]
    first: int
    """Index of its first turn."""
    verdict: Verdict

    @property
    def num_steps(self) -> int:
        """Number of turns."""
        return len(self.steps)


def failures_of(world: World, game: str, turns: Turns, wins: Any, starts: Any, tag: str) -> list[Failure]:
    """Return the failed episodes that the solver labels."""
    bounds = np.searchsorted(turns.episode, np.arange(len(wins) + 1))
    failed = [number for number, won in enumerate(wins) if not won]
    cases, steps = [], []
    for number in failed:
        span = range(bounds[number], bounds[number + 1])
        taken = [ACTIONS[turns.action[index]] for index in span]
        steps.append(
            [SimpleNamespace(state=world.states[turns.state[i]], action=a) for i, a in zip(span, taken, strict=True)]
        )
        cases.append(Case(world.states[starts[number]], taken, world.horizon))
    answers = solver_type(game)().certify(cases)
    return [
        Failure(f"{tag}-{number}", case.initial_state, made, int(bounds[number]), answer)
        for number, case, made, answer in zip(failed, cases, steps, answers, strict=True)
        if isinstance(answer, Verdict)
    ]


def teach(arm: SmallArm, failures: Sequence[Failure], turns: Turns, world: World, logits: Any) -> tuple[Any, Any]:
    """Return the Teacher's log-probabilities of all actions, and which turns are distilled.

    Args:
        arm: an arm with a Teacher.
        failures: labelled failures.
        turns: all turns.
        world: the states.
        logits: the Student's logits at the turns, shape (turns, 4).
    """
    tilted, active = logits.clone(), torch.zeros(len(logits), dtype=torch.bool)
    for failure in failures:
        active[failure.first : failure.first + failure.num_steps] = True
        if arm.hint == "nothing":
            continue
        rng = random.Random(derive_seed(failure.episode_id, "hint"))
        pivot, trusted = failure.verdict.pivot_step, True
        step = pivot
        if arm.named == "random" or (arm.named == "analyzer" and rng.random() >= ANALYZER_ACCURACY):
            step, trusted = random_other_step(failure.episode_id, pivot, failure.num_steps), arm.named == "random"
        if arm.named == "half":
            trusted = rng.random() < 0.5
        index = failure.first + step
        taken, after = int(turns.action[index]), world.after[turns.state[index]]
        tilted[index, taken] -= TILT
        if arm.hint != "safe":
            continue
        safe = int(after.argmin())
        if not trusted:
            safe = rng.choice([each for each in range(4) if each != safe])
        if after[int(after.argmin())] < FAR or not trusted:
            tilted[index, safe] += TILT
    return tilted.log_softmax(-1), active


class Corrector:
    """The product's corrections, with the distances of the levels seen so far."""

    def __init__(self, game: str, arm: SmallArm) -> None:
        """Correct for one arm; an arm without corrections gets none."""
        self._arm, self._solver = arm, solver_type(game)()
        self._maps: dict[str, Any] = {}

    def fixes(self, failures: Sequence[Failure], count: int) -> Any:
        """Return the certified action of each of ``count`` turns, -1 for none; shape (turns,)."""
        fixes = torch.full((count,), -1)
        for failure in failures if self._arm.corrects else ():
            fix = corrected_step(failure, failure.verdict, self._arm.step, self._solver, self._maps)  # pyright: ignore[reportArgumentType]
            if fix is not None and (self._arm.corrects == "witness" or failure.steps[fix[0]].action != fix[1]):
                fixes[failure.first + fix[0]] = ACTIONS.index(fix[1])
        return fixes


def train(game: str, arm: SmallArm, seed: int, updates: int = UPDATES, silenced: float = 0.0) -> dict[str, Any]:
    """Train one arm from the start of its seed; return its figures.

    Args:
        game: key of ``GAMES``.
        arm: what is added to GRPO.
        seed: of levels, start and episodes, so that the arms of a seed are paired.
        updates: number of updates.
        silenced: share of groups, drawn at random, whose advantages are set to zero.
    """
    began = process_time()
    made = setup(game, seed)
    world, inputs = made.train, made.inputs
    network, reference = copy.deepcopy(made.start), copy.deepcopy(made.start)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, weight_decay=0.0, fused=True)
    with torch.no_grad():
        at_start = reference(inputs).log_softmax(-1)
    curve, train_curve, silent, detects = [], [], [], []
    corrector = Corrector(game, arm)
    for number in range(updates + 1):
        if number % EVERY == 0 or number == updates:
            curve.append(exact_success(made.held_out, policy_of(network, made.held_out_inputs)).mean())
            train_curve.append(exact_success(world, policy_of(network, inputs)).mean())
        if number == updates:
            break
        rng = np.random.default_rng(derive_seed("episodes", game, seed, number))
        levels = rng.permutation(len(world.starts))[:PROMPTS]
        starts, policy = world.starts[levels].repeat(ROLLOUTS), np.zeros((len(world.states), 4))
        played = np.flatnonzero(np.isin(world.level, levels))
        policy[played] = policy_of(network, inputs[played])
        turns, returns, wins = play(world, policy, starts, rng)
        quiet = np.random.default_rng(derive_seed("silenced", game, seed, number)).random(PROMPTS) < silenced
        groups = [
            group_advantages(each) * (not silence)
            for each, silence in zip(torch.from_numpy(returns).split(ROLLOUTS), quiet, strict=True)
        ]
        silent.append(np.mean([bool((each == 0).all()) for each in groups]))
        advantages = torch.cat(groups)[turns.episode]
        if arm.progress:
            before, after = world.distance[turns.state], world.after[turns.state, turns.action]
            gained = np.where((before < FAR) & (after < FAR), before - after, 0)
            advantages = advantages + arm.weight * torch.from_numpy(gained)
        turns = replace(turns, advantage=advantages.float())
        failures = (
            failures_of(world, game, turns, wins, starts, f"{game}-{seed}-{number}") if arm.hint or arm.corrects else []
        )
        detects.append(_update(network, optimizer, arm, turns, failures, world, inputs, at_start, corrector, rng))
    areas = [each for each in detects if each is not None]
    return {
        "game": game,
        "arm": arm.name,
        "seed": seed,
        "weight": arm.weight,
        **({"silenced": silenced} if silenced else {}),
        "protocol": PROTOCOL,
        "updates": updates,
        "curve": [round(float(each), 5) for each in curve],
        "train_curve": [round(float(each), 5) for each in train_curve],
        "silent": round(float(np.mean(silent)), 3),
        "gap_detects_pivot": round(float(np.mean(areas)), 3) if areas else None,
        "cpu_seconds": round(process_time() - began, 1),
    }


def _update(
    network: Any,
    optimizer: Any,
    arm: SmallArm,
    turns: Turns,
    failures: Sequence[Failure],
    world: World,
    inputs: Any,
    at_start: Any,
    corrector: "Corrector",
    rng: Any,
) -> float | None:
    """Make the optimiser steps of one update; return ``gap_detects_pivot``, or None without a Teacher."""
    rows, taken = inputs[turns.state], torch.from_numpy(turns.action)[:, None]
    with torch.no_grad():
        logits = network(rows)
    every = logits.log_softmax(-1)
    old = every.gather(1, taken)[:, 0]
    reference = at_start[turns.state]
    teacher, active = every, torch.zeros(len(old), dtype=torch.bool)
    if arm.hint:
        teacher, active = teach(arm, failures, turns, world, logits)
    teacher_logprobs = teacher.gather(1, taken)[:, 0]
    fixes = corrector.fixes(failures, len(old))
    weights = Weights(CLIP, KL, arm.weight if arm.hint else 0.0)
    distil = partial(getattr(losses, f"{arm.objective}_opd"), beta=BETA)
    order = torch.from_numpy(rng.permutation(len(old)))
    for chosen in order.split(MINIBATCH):
        student = network(rows[chosen]).log_softmax(-1)
        own = student.gather(1, taken[chosen])[:, 0]
        distilled = arm.objective == "distribution"
        batch = TokenBatch(
            old=old[chosen],
            reference=reference.gather(1, taken)[chosen, 0],
            teacher=teacher_logprobs[chosen],
            advantages=turns.advantage[chosen],
            valid=torch.ones(len(chosen), dtype=torch.bool),
            active=active[chosen],
            candidates=torch.arange(4).expand(len(chosen), 4) if distilled else None,
            teacher_candidates=teacher[chosen] if distilled else None,
            student_candidates=student if distilled else None,
        )
        count = int(active[chosen].sum())
        counts = {"valid_count": len(chosen), "active_count": count}
        loss = stage_two_loss(own, batch, **counts, weights=weights, distil=distil).total
        has = fixes[chosen] >= 0
        if bool(has.any()):
            best = fixes[chosen][has][:, None]
            learned = student[has].gather(1, best)[:, 0]
            if arm.corrects == "witness":
                loss = loss + arm.weight * witness_loss(learned, int(has.sum()))
            else:
                start = reference[chosen][has]
                rejected = own[has] - start.gather(1, taken[chosen][has])[:, 0]
                liked = learned - start.gather(1, best)[:, 0]
                loss = loss + arm.weight * preference_loss(liked, rejected, DPO_BETA, int(has.sum()))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    if not arm.hint:
        return None
    at_pivot = np.zeros(len(old), bool)
    at_pivot[[failure.first + failure.verdict.pivot_step for failure in failures]] = True
    return roc_area((old - teacher_logprobs)[active].tolist(), at_pivot[active.numpy()].tolist())


# Commands


Job = tuple[str, SmallArm, int, int, float]
"""Game, arm, seed, updates and silenced share of a run."""


def _one(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    return train(*job)


def run(jobs: Sequence[Job], path: Path, workers: int) -> None:
    """Train what the file of results does not have yet, and append a line per finished run."""
    ledger = Ledger(path, PROTOCOL)
    finished = ledger.keys()
    missing = [job for job in jobs if (job[0], job[1].name, job[1].weight, job[2], None) not in finished]
    with ProcessPoolExecutor(workers) as pool:
        for number, row in enumerate(pool.map(_one, missing), 1):
            ledger.append(row)
            what = f"{row['game']} {row['arm']} {row['weight']:g} seed {row['seed']}"
            print(f"{number}/{len(missing)} {what}: {row['curve'][-1]:.3f}", flush=True)  # noqa: T201


def rate_jobs() -> list[Job]:
    """Return the runs that look at weights: seeds and levels of their own."""
    arms = [replace(ARMS[name], weight=weight) for name in RATED for weight in RATE_WEIGHTS]
    return [(RATE_GAME, arm, seed, RATE_UPDATES, 0.0) for seed in RATE_SEEDS for arm in arms]


def rates_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the mean area under the curve of training levels by arm and weight, in Markdown."""
    lines = ["| arm | weight | seeds | area, training levels |", "|---|---|---|---|"]
    for name in RATED:
        for weight in RATE_WEIGHTS:
            areas = [area(row["train_curve"]) for row in rows if key_of(row)[:3] == (RATE_GAME, name, weight)]
            mean = f"{np.mean(areas):.1f}" if areas else "–"
            lines.append(f"| `{name}` | {weight:g} | {len(areas)} | {mean} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m pivot.benchmarks.learning.small", description=__doc__)
    parser.add_argument("command", choices=("run", "rates", "silent", "table"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--games", nargs="+", choices=tuple(GAMES), default=tuple(GAMES))
    args = parser.parse_args()
    files = {"rates": "small_rates.jsonl", "silent": "small_silent.jsonl"}
    path: Path = args.results / files.get(args.command, "small.jsonl")
    if args.command == "rates":
        run(rate_jobs(), path, args.workers)
    elif args.command != "table":
        names, share = (SILENT_ARMS, SILENT) if args.command == "silent" else (tuple(ARMS), 0.0)
        games = [(seed, game) for seed in args.seeds for game in args.games]
        run([(game, ARMS[name], seed, UPDATES, share) for seed, game in games for name in names], path, args.workers)
    rows = Ledger(path, PROTOCOL).rows()
    tables = [rates_table(rows)] if args.command == "rates" else []
    tables += [figures_table(rows, game, ARMS, CONTROLS) for game in args.games if args.command != "rates"]
    print("\n\n".join(tables))  # noqa: T201 - a command's answer


if __name__ == "__main__":
    main()
