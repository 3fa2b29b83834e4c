"""Study of the hindsight that helps a small network: the arms of Stage II without pictures, minutes on one core.

``python -m pivot.benchmarks.learning.small run`` trains a network of two layers on the one-hot state of FrozenLake
(4x4, nine turns) and Sokoban (four turns) with GRPO and one arm each, and resumes where its file of results ends;
``small table`` prints paired differences with 95 % intervals; ``small rates`` looks at weights on three other seeds.
Each game has two starts (``small_start.py``): a walker, and a habit that is confident and wrong, with nine turns in
both games.

Success is exact: dynamic programming over all states that an episode can reach. Pivots, corrections and credit are
those of the product's solvers, losses and advantages those of ``training/policy_rl``.
"""

import argparse
import copy
import os
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pivot.benchmarks.learning.ledger import BASELINE, Ledger, area, differences_table, figures_table, key_of
from pivot.benchmarks.learning.small_arms import (
    ANALYZER_ACCURACY,
    ARMS,
    CONTROLS,
    RATE_GAME,
    RATE_WEIGHTS,
    RATED,
    TILT,
    SmallArm,
    arms_of,
)
from pivot.benchmarks.learning.small_start import GAMES, policy_of, setup
from pivot.benchmarks.learning.worlds import FAR, World, exact_success
from pivot.core.identity import derive_seed
from pivot.datasets.store.config import solver_type
from pivot.models.extras import need
from pivot.solvers.base import Case, Needs, Verdict
from pivot.solvers.credit import rule_of, turn_credits
from pivot.solvers.puzzles import ACTIONS
from pivot.training.policy_rl import losses
from pivot.training.policy_rl.advantages import group_advantages
from pivot.training.policy_rl.hindsight.contexts import random_other_step
from pivot.training.policy_rl.hindsight.corrections import corrected_steps
from pivot.training.policy_rl.learner import roc_area
from pivot.training.policy_rl.losses import TokenBatch, Weights, preference_loss, stage_two_loss, witness_loss

torch: Any = need("torch", "train")

RESULTS = Path(__file__).parent / "results"
UPDATES, PROMPTS, ROLLOUTS, MINIBATCH, LR = 80, 16, 8, 64, 1e-3
EVERY = 4
"""Updates between two points of the curve of exact success."""
CLIP, KL, BETA, DPO_BETA = 0.2, 0.01, 5.0, 0.1
SEEDS, RATE_SEEDS, RATE_UPDATES = 12, (100, 101, 102), 40
PROTOCOL = 1
"""Raised with every change that moves figures: results of different protocols are never compared."""


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
        logits: logits of the Student, or of a frozen Teacher's weights, at the turns, shape (turns, 4).
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

    def __init__(self, env: str, arm: SmallArm) -> None:
        """Correct for one arm; an arm without corrections gets none."""
        self._arm, self._solver = arm, solver_type(env)()
        self._maps: dict[str, Any] = {}

    def fixes(self, failures: Sequence[Failure], count: int, rng: Any) -> Any:
        """Return the certified action of each of ``count`` turns, -1 for none; shape (turns,).

        Where a failure may have several corrections, as many are drawn as there are failures, so that no step of
        correction teaches more tokens than another.
        """
        corrections: list[tuple[int, str]] = []
        for failure in failures if self._arm.corrects else ():
            steps = corrected_steps(failure, failure.verdict, self._arm.step, self._solver, self._maps)  # pyright: ignore[reportArgumentType]
            for step, action in steps:
                if self._arm.corrects == "witness" or failure.steps[step].action != action:
                    corrections.append((failure.first + step, action))
        if len(corrections) > len(failures):
            corrections = [corrections[index] for index in rng.permutation(len(corrections))[: len(failures)]]
        fixes = torch.full((count,), -1)
        for index, action in corrections:
            fixes[index] = ACTIONS.index(action)
        return fixes


def credit_of(rule: str, world: World, turns: Turns) -> Any:
    """Return the credit part of the advantage of every turn, as ``--credit`` computes it; shape (turns,)."""
    scores: list[float] = []
    before, after = world.distance[turns.state], world.after[turns.state, turns.action]
    bounds = np.searchsorted(turns.episode, np.arange(PROMPTS * ROLLOUTS + 1))
    for first, last in pairwise(bounds):
        distances = [before[first], *after[first:last]]
        needs = [int(each) if each <= world.horizon else None for each in distances]
        case = Case("", ["" for _ in needs[1:]], world.horizon)
        scores += [turn.score for turn in turn_credits(case, Needs(needs, [()] * len(case.actions)), rule_of(rule))]
    groups = np.diff(bounds[::ROLLOUTS]).tolist()
    return torch.cat([group_advantages(each) for each in torch.tensor(scores, dtype=torch.float64).split(groups)])


def train(game: str, arm: SmallArm, seed: int, updates: int = UPDATES) -> dict[str, Any]:
    """Train one arm from the start of its seed; return its figures.

    Args:
        game: key of ``GAMES``.
        arm: what is added to GRPO.
        seed: of levels, start and episodes, so that the arms of a seed are paired.
        updates: number of updates.
    """
    began = process_time()
    made = setup(game, seed)
    world, inputs = made.train, made.inputs
    network, reference = copy.deepcopy(made.start), copy.deepcopy(made.start)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, weight_decay=0.0, fused=True)
    with torch.no_grad():
        at_start = reference(inputs).log_softmax(-1)
    curve, train_curve, silent, detects = [], [], [], []
    corrector = Corrector(GAMES[game].env, arm)
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
        groups = [group_advantages(each) for each in torch.from_numpy(returns).split(ROLLOUTS)]
        silent.append(np.mean([bool((each == 0).all()) for each in groups]))
        advantages = torch.cat(groups)[turns.episode]
        if arm.credit is not None:
            advantages = advantages + arm.weight * credit_of(arm.credit, world, turns)
        turns = replace(turns, advantage=advantages.float())
        failures = (
            failures_of(world, GAMES[game].env, turns, wins, starts, f"{game}-{seed}-{number}")
            if arm.hint or arm.corrects
            else []
        )
        detects.append(_update(network, optimizer, arm, turns, failures, world, inputs, at_start, corrector, rng))
    areas = [each for each in detects if each is not None]
    return {
        "game": game,
        "arm": arm.name,
        "seed": seed,
        "weight": arm.weight,
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
        teacher, active = teach(arm, failures, turns, world, reference if arm.frozen else logits)
    teacher_logprobs = teacher.gather(1, taken)[:, 0]
    fixes = corrector.fixes(failures, len(old), rng)
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


Job = tuple[str, SmallArm, int, int]
"""Game, arm, seed and updates of a run."""


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
    return [(RATE_GAME, arm, seed, RATE_UPDATES) for seed in RATE_SEEDS for arm in arms]


def run_jobs(games: Sequence[str], seeds: int | None = None) -> list[Job]:
    """Return the runs of the study, seed by seed, so that finished runs form pairs."""
    return [
        (game, arm, seed, UPDATES)
        for seed in range(seeds or SEEDS)
        for game in games
        for arm in arms_of(habit=GAMES[game].habit).values()
    ]


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
    parser.add_argument("command", choices=("run", "rates", "table"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, help="number of seeds; by default the study's")
    parser.add_argument("--games", nargs="+", choices=tuple(GAMES), default=tuple(GAMES))
    args = parser.parse_args()
    rates = args.command == "rates"
    path: Path = args.results / ("small_rates.jsonl" if rates else "small.jsonl")
    if args.command != "table":
        run(rate_jobs() if rates else run_jobs(args.games, args.seeds), path, args.workers)
    rows = Ledger(path, PROTOCOL).rows()
    tables = [rates_table(rows)] if rates else [*short_tables(rows), *(game_table(rows, game) for game in args.games)]
    print("\n\n".join(tables))  # noqa: T201 - a command's answer


def game_table(rows: Sequence[dict[str, Any]], game: str) -> str:
    """Return the table of a game in Markdown."""
    return figures_table(rows, game, arms_of(habit=GAMES[game].habit), CONTROLS)


def short_tables(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the differences of area from GRPO and from a random step, of walkers and of habits, in Markdown.

    Of habits, Teachers of weight 0.1 are left out, and steps at the weight that suits the loss less.
    """

    def suits(name: str) -> bool:
        return name.startswith("witness") == name.endswith("_0.1")

    tables: list[str] = []
    for habit in (False, True):
        games, arms = [name for name, game in GAMES.items() if game.habit == habit], arms_of(habit=habit)
        grpo = [name for name, arm in arms.items() if name != BASELINE and not (arm.hint and "_0.1" in name)]
        located = [name for name in CONTROLS if name in arms and (not habit or suits(name))]
        tables.append(differences_table(rows, games, dict.fromkeys(grpo, BASELINE), "area minus that of GRPO"))
        controls = {arm: CONTROLS[arm] for arm in located}
        tables.append(differences_table(rows, games, controls, "area minus that at a random step"))
    return tables


if __name__ == "__main__":
    main()
