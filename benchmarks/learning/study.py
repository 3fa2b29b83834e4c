"""Study of the hindsight that helps a model that sees: arms of ``pivot train rl`` from one start, paired by seed.

``python -m pivot.benchmarks.learning.study start`` teaches the start and passes it through the literacy gate;
``study run`` trains what ``results/study.jsonl`` does not have yet, a line per finished run, so the same command goes
on where the file ends; ``study table`` prints what is there, and ``study curves`` draws it, too. Arms with a Teacher
are run only from a start that passed the gate. ``study rates`` looks at learning rates, on seeds and levels that no
result is read on.
"""

import argparse
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from pivot.benchmarks.learning.ledger import BASELINE, Key, Ledger, Row, area, by_arm, figures_table, key_of, paired
from pivot.benchmarks.learning.vlm import GAMES, ExactReader, settings_of
from pivot.benchmarks.learning.vlm_start import BORROWED, LESSONS, RECORDS, SHARDS, STARTS, teach
from pivot.benchmarks.learning.worlds import explore
from pivot.core.intervals import student
from pivot.models.extras import need
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.config import RlConfig
from pivot.training.policy_rl.hindsight.contexts import ARMS as PRODUCT_ARMS

torch: Any = need("torch", "train")
transformers: Any = need("transformers", "train")

RESULTS = Path(__file__).parent / "results"
WORK = Path("runs/study")
UPDATES, HABIT_UPDATES, EVERY = 64, 96, 8
"""Updates of a run, of one from a habit, and between two points of the exact curve."""
PROTOCOL = 1
"""Raised with every change that moves figures: results of different protocols are never compared."""
MANY, FEW = 12, 6
"""Numbers of paired seeds: of the main arms, and of the others."""
FIRST_SEED = 1
"""Seed 0 was used while rates were chosen; the other seeds for rates are 100 and more."""
RATES = (5e-4, 1e-3, 2e-3)
RATE_SEEDS, RATE_UPDATES = (100, 101, 102), 24
RATED = (
    *("vanilla_grpo", "witness_pivot", "dpo_pivot", "progress"),
    *("oracle", "oracle_centred", "oracle_gap", "distribution_oracle"),
)
"""A look at learning rates: 24 updates on training levels of other seeds, an arm for each kind of loss."""
BROKEN = 0.5
"""Share of replies out of the start's format above which a policy counts as broken."""
MELTING = ("gap_detects_pivot", "teacher_informed")
ENDS = 4
"""Updates at both ends of a run over which the figures of the Teacher are averaged."""


@dataclass(frozen=True, slots=True)
class StudyArm:
    """An arm of the study: settings of ``pivot train rl`` and its number of seeds."""

    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seeds: int = FEW
    games: tuple[str, ...] = ("frozenlake",)

    @property
    def weight(self) -> float:
        """Weight of the arm's addition to GRPO, which is part of the key of results."""
        fallback = RlConfig.model_fields
        arm = PRODUCT_ARMS[self.fields["arm"]]
        name = "correction" if arm.corrects else "opd"
        return float(self.fields.get(name, fallback[name].default)) if arm.corrects or arm.distils else 0.0

    @property
    def needs_literacy(self) -> bool:
        """Whether a Teacher has to read hindsight."""
        return bool(PRODUCT_ARMS[self.fields["arm"]].shows)

    @property
    def missing(self) -> list[str]:
        """Settings that this version of ``pivot train rl`` does not have."""
        return [name for name in self.fields if name not in RlConfig.model_fields]


def _arm(arm: str, seeds: int = FEW, games: tuple[str, ...] = ("frozenlake",), **fields: Any) -> StudyArm:
    return StudyArm({"arm": arm} | fields, seeds, games)


WALKERS, LAKE_AND_HABIT = ("frozenlake", "sokoban"), ("frozenlake", "sokoban_habit")
ARMS: Mapping[str, StudyArm] = {
    "vanilla_grpo": _arm("vanilla_grpo", MANY, tuple(GAMES)),
    "witness_pivot": _arm("witness", MANY, WALKERS, correction=1.0),
    "witness_random": _arm("witness", MANY, WALKERS, correction=1.0, correction_step="random"),
    "dpo_pivot": _arm("dpo_pivot", MANY, WALKERS, correction=1.0),
    "distribution_oracle": _arm("oracle", MANY, WALKERS, opd=0.1, opd_objective="distribution"),
    "mp": _arm("mp", MANY, LAKE_AND_HABIT),
    "oracle": _arm("oracle", MANY, LAKE_AND_HABIT),
    "witness_pivot_0.1": _arm("witness", FEW, ("sokoban_habit",), correction=0.1),
    "distribution_analyzer": _arm("mp", MANY, opd=0.1, opd_objective="distribution"),
    "dpo_random": _arm("dpo_pivot", correction=1.0, correction_step="random"),
    "witness_start": _arm("witness", correction=1.0, correction_step="start"),
    "progress": _arm("vanilla_grpo", credit="progress"),
    "mpr": _arm("mpr"),
    "mp_random_r": _arm("mp_random_r", FEW, LAKE_AND_HABIT),
    "empty": _arm("empty", FEW, LAKE_AND_HABIT),
    "oracle_1": _arm("oracle", opd=1.0),
    "oracle_centred": _arm("oracle", opd=1.0, opd_objective="centred"),
    "oracle_gap": _arm("oracle", opd=1.0, opd_objective="gap"),
    "oracle_1_start": _arm("oracle", opd=1.0, teacher_weights="start"),
    "oracle_1_ema": _arm("oracle", opd=1.0, teacher_weights="ema"),
}
"""Arms in the order in which they run. Weights are those of the study on a small network (``small rates``)."""
NAMES = {
    "vanilla_grpo": "GRPO alone",
    "witness_pivot": "certified action at the pivot",
    "witness_random": "certified action at a random mistake",
    "witness_start": "certified action at the start",
    "witness_pivot_0.1": "certified action at the pivot, weight 0.1",
    "dpo_pivot": "preference at the pivot",
    "dpo_random": "preference at a random mistake",
    "distribution_oracle": "pivot by the solver, whole distribution",
    "distribution_analyzer": "pivot by the Analyzer, whole distribution",
    "mp": "pivot by the Analyzer",
    "oracle": "pivot by the solver",
    "progress": "progress in the advantage",
    "mpr": "pivot and guidance by the Analyzer",
    "mp_random_r": "guidance, and a random other step",
    "empty": "Teacher without hindsight",
    "oracle_1": "pivot by the solver, weight 1",
    "oracle_centred": "pivot by the solver, centred",
    "oracle_gap": "pivot by the solver, gap",
    "oracle_1_start": "pivot by the solver, Teacher as at the start",
    "oracle_1_ema": "pivot by the solver, averaged Teacher",
}
"""Arms as the pictures name them."""
COLOURS = ("black", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
PER_PANEL = 5
"""Most arms of a panel, apart from GRPO alone."""
CONTROLS = {"witness_pivot": "witness_random", "dpo_pivot": "dpo_random", "mpr": "mp_random_r"}
"""Control of each arm, which differs only in the step."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run of the study."""

    game: str
    arm: str
    seed: int
    work: Path
    updates: int = UPDATES
    lr: float | None = None
    """Learning rate of a look at rates, which reads training levels; None: the study's, and held-out levels."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings that differ from the study's, for tests."""

    @property
    def key(self) -> Key:
        """Identity of the run in a file of results."""
        return self.game, self.arm, ARMS[self.arm].weight, self.seed, self.lr

    @property
    def start(self) -> Path:
        """Folder of the start of the game, shared by all arms and seeds: in ``work``, or the committed one."""
        own = self.work / self.game / "start"
        return own if (own / "start.json").exists() else STARTS / self.game


def digest_of(start: Path) -> str:
    """Return a digest of the weights of a start."""
    return hashlib.sha256((start / "model.safetensors").read_bytes()).hexdigest()[:16]


def train_arm(job: Job) -> Row:
    """Train one arm in segments, and read the exact success between them.

    It is read on held-out levels, or for a look at rates on as many training levels.

    A run that was killed starts again: it takes minutes, and its result is a function of the job.
    """
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    began, wall = process_time(), perf_counter()
    arm, rate = ARMS[job.arm], {} if job.lr is None else {"lr": job.lr}
    out = job.work / job.game / "-".join(map(str, (job.arm, job.seed, *rate.values())))
    shutil.rmtree(out, ignore_errors=True)
    curve: list[dict[str, float]] = []
    read: ExactReader | None = None
    for done in [*range(0, job.updates, EVERY), job.updates]:
        fields = {**arm.fields, **rate, **job.fields, "updates": max(1, done)}
        prepared = loop.prepare(settings_of(job.game, str(job.start), job.seed, **fields))
        if read is None:
            levels = prepared.levels
            tasks = levels.train[: len(levels.validation)] if rate else levels.validation
            read = ExactReader(levels, explore(levels.env, levels.config, tasks), prepared.encoder)
        if done:
            loop.train(prepared, out, resume=done > EVERY)
        curve.append(read(prepared.model))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(out)
    broken = [float(line["format_broken"]) for line in lines]
    return {
        "game": job.game,
        "arm": job.arm,
        "seed": job.seed,
        "weight": arm.weight,
        **rate,
        "protocol": PROTOCOL,
        "start": digest_of(job.start),
        "updates": job.updates,
        "curve": [round(each["success"], 5) for each in curve],
        "unusual": round(curve[-1]["unusual"], 5),
        "silent": _mean(lines, "zero_variance"),
        "analyzer_step_accuracy": _mean(lines, "analyzer_step_accuracy"),
        **{name: [_mean(lines[:ENDS], name), _mean(lines[-ENDS:], name)] for name in MELTING},
        "format_broken": [round(each, 3) for each in (broken[0], max(broken), broken[-1])],  # first, worst, last update
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "cpu_seconds": round(process_time() - began),
        "seconds": round(perf_counter() - wall),
    }


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return round(float(np.mean(values)), 3) if values else None


# Runs of the study


def jobs(games: Sequence[str], work: Path, most_seeds: int = MANY) -> list[Job]:
    """Return all runs of the study, seed by seed, so that finished runs form pairs."""
    return [
        Job(game, name, FIRST_SEED + number, work, HABIT_UPDATES if game in BORROWED else UPDATES)
        for number in range(most_seeds)
        for game in games
        for name, arm in ARMS.items()
        if game in arm.games and number < (arm.seeds if game == "frozenlake" else FEW)
    ]


def rate_jobs(games: Sequence[str], work: Path) -> list[Job]:
    """Return the runs that look at learning rates, seed by seed."""
    return [
        Job(game, name, seed, work, RATE_UPDATES, rate)
        for seed in RATE_SEEDS
        for game in games
        for name in RATED
        if game in ARMS[name].games and game not in BORROWED
        for rate in RATES
    ]


def runnable(job: Job) -> str | None:
    """Return why a run cannot be made from its start, or None."""
    arm = ARMS[job.arm]
    if arm.missing:
        return f"this version has no setting {', '.join(arm.missing)}"
    if not (job.start / "start.json").exists():
        return f"no start was found in {job.start}; run: study start --games {job.game}"
    figures = json.loads((job.start / "start.json").read_text(encoding="utf-8"))
    if arm.needs_literacy and not figures["gate"]["passed"]:
        return f"the start of {job.game} did not pass the literacy gate ({figures['gate']})"
    return None


def check_starts(rows: Sequence[Row], chosen: Sequence[Job], path: Path) -> None:
    """Check that the results of a game come from one start: that of the chosen runs.

    Raises:
        ValueError: a row has another start: its differences to new runs would not be paired.
    """
    starts = {job.game: job.start for job in chosen if (job.start / "model.safetensors").exists()}
    for row in rows:
        start = starts.get(row["game"])
        if start is not None and (digest := digest_of(start)) != row["start"]:
            raise ValueError(
                f"{path}: found runs of {row['game']} from a start {row['start']}, expected {digest}, that of {start}; "
                "remove that folder to go on from the start that is kept, or name another --results"
            )


def run(chosen: Sequence[Job], path: Path, workers: int) -> None:
    """Train what the file of results does not have yet, and append a line per finished run.

    Raises:
        ValueError: the file has runs from another start.
    """
    ledger = Ledger(path, PROTOCOL)
    check_starts(ledger.rows(), chosen, path)
    finished = ledger.keys()
    reasons: dict[str, list[str]] = {}
    missing: list[Job] = []
    for job in chosen:
        if job.key in finished:
            continue
        reason = runnable(job)
        if reason is None:
            missing.append(job)
        else:
            reasons.setdefault(f"{job.game} {job.arm}: {reason}", []).append(str(job.seed))
    for reason, seeds in reasons.items():
        print(f"left out, seeds {', '.join(seeds)}: {reason}", flush=True)  # noqa: T201
    with ProcessPoolExecutor(workers) as pool:
        for number, done in enumerate(as_completed([pool.submit(train_arm, job) for job in missing]), 1):
            row = done.result()
            ledger.append(row)
            rate = f" lr {row['lr']:g}" if "lr" in row else ""
            what = (
                f"{row['game']} {row['arm']}{rate} seed {row['seed']}: {row['curve'][0]:.3f} -> {row['curve'][-1]:.3f}"
            )
            print(f"{number}/{len(missing)} {what}, {row['cpu_seconds']} s", flush=True)  # noqa: T201


# Results


def done_table(rows: Sequence[Row], chosen: Sequence[Job]) -> str:
    """Return how many of the planned runs are done, game by game."""
    keys = {key_of(row) for row in rows}
    lines = []
    for game in GAMES:
        planned = {job.key for job in chosen if job.game == game}
        if planned:
            lines.append(f"{game}: {len(planned & keys)} of {len(planned)} runs")
    return "\n".join(lines)


def rates_table(rows: Sequence[Row], game: str) -> str:
    """Return area and final success on training levels by arm and learning rate, and broken policies, in Markdown."""
    heads = [f"lr {rate:g}: area, final success" for rate in RATES]
    lines = [" | ".join([f"| {game}", "seeds", *heads]) + " |", "|---" * (2 + len(heads)) + "|"]
    for name in ARMS:
        mine = [[row for row in rows if (row["game"], row["arm"], row["lr"]) == (game, name, rate)] for rate in RATES]
        counts = sorted({len(each) for each in mine})
        if counts[-1]:
            lines.append(" | ".join([f"| `{name}`", " to ".join(map(str, counts)), *map(_rate_cell, mine)]) + " |")
    return "\n".join(lines)


def _rate_cell(rows: Sequence[Row]) -> str:
    if not rows:
        return "–"
    broken = sum(row["unusual"] > BROKEN for row in rows)
    means = np.mean([area(row["curve"]) for row in rows]), 100 * np.mean([row["curve"][-1] for row in rows])
    return f"{means[0]:.1f}, {means[1]:.1f}" + (f" ({broken} broken)" if broken else "")


def teacher_table(rows: Sequence[Row], game: str) -> str:
    """Return how well the Teacher detects the pivot at the start and end of a run, in Markdown."""
    lines = [
        f"| {game} | seeds | gap detects pivot, first and last | change, hundredths | informed, nats, first and last |",
        "|---|---|---|---|---|",
    ]
    for name in ARMS:
        mine = [
            row for row in rows if row["game"] == game and row["arm"] == name and row["teacher_informed"][0] is not None
        ]
        if mine and ARMS[name].needs_literacy:
            cells = [" to ".join(_at(mine, figure, end) for end in (0, 1)) for figure in MELTING]
            both = [row for row in mine if None not in row[MELTING[0]]]
            first, last = ({row["seed"]: 100 * row[MELTING[0]][end] for row in both} for end in (0, 1))
            lines.append(f"| `{name}` | {len(mine)} | {cells[0]} | {paired(last, first) or '–'} | {cells[1]} |")
    return "\n".join(lines)


def _at(rows: Sequence[Row], figure: str, end: int) -> str:
    values = [row[figure][end] for row in rows if row[figure][end] is not None]
    return f"{np.mean(values):.2f}" if values else "–"


def draw(rows: Sequence[Row], game: str, path: Path) -> None:
    """Draw the mean exact success of each arm over updates, with its 95 % interval over seeds; finished arms only.

    A panel has at most five arms of one number of seeds, and the paired runs of GRPO.
    """
    counts = {arm: len(each) for arm, each in by_arm(rows, game, "final").items()}
    seeds = {name: arm.seeds if game == "frozenlake" else FEW for name, arm in ARMS.items() if game in arm.games}
    done = [name for name in seeds if name != BASELINE and counts.get(name, 0) >= seeds[name]]
    panels: list[list[str]] = []
    for number in sorted({*seeds.values()}, reverse=True):
        names = [name for name in done if seeds[name] == number]
        share = -(-len(names) // max(1, -(-len(names) // PER_PANEL)))
        panels += [names[first : first + share] for first in range(0, len(names), share or 1)]
    across = min(3, max(1, len(panels)))
    down = max(1, -(-len(panels) // across))
    figure = need("matplotlib.figure", "train").Figure(figsize=(5.6 * across, 4.6 * down), layout="constrained")
    every = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for axes in every[len(panels) :]:
        axes.set_axis_off()
    for axes, names in zip(every, panels, strict=False):
        mine = [row for row in rows if row["game"] == game and row["arm"] in (BASELINE, *names)]
        seen = {row["seed"] for row in mine if row["arm"] != BASELINE}
        for name, colour in zip((BASELINE, *names), COLOURS, strict=False):
            curves = 100 * np.array([row["curve"] for row in mine if row["arm"] == name and row["seed"] in seen])
            if not len(curves):
                continue
            places, mean = np.arange(curves.shape[1]) * EVERY, curves.mean(axis=0)
            axes.plot(places, mean, label=f"{NAMES[name]} ({name})", color=colour)
            if len(curves) > 1:
                half = student(len(curves) - 1) * curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
                axes.fill_between(places, mean - half, mean + half, color=colour, alpha=0.12, linewidth=0)
        axes.set(xlabel="update", ylabel="exact success on held-out levels, %", title=f"{game}, {len(seen)} seeds")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(path, dpi=100, facecolor="white")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m pivot.benchmarks.learning.study", description=__doc__)
    parser.add_argument("command", choices=("start", "run", "rates", "table", "curves"))
    parser.add_argument("--results", type=Path, help="file of results; study.jsonl or study_rates.jsonl of this folder")
    parser.add_argument("--work", type=Path, default=WORK, help="folder of starts and of unfinished runs")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--games", nargs="+", choices=tuple(GAMES), default=tuple(GAMES))
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=tuple(ARMS))
    parser.add_argument("--lessons", type=int, default=LESSONS, help="most lessons of a start")
    parser.add_argument("--records", type=int, default=RECORDS, help="records in a lesson; fewer ones suit a CPU")
    parser.add_argument("--shards", type=int, default=SHARDS, help="plays of all levels that lessons are taken from")
    parser.add_argument("--out", type=Path, default=Path("curves"), help="prefix of the pictures")
    args = parser.parse_args()
    rates = args.command == "rates"
    plan = rate_jobs(args.games, args.work) if rates else jobs(args.games, args.work)
    chosen = [job for job in plan if job.arm in args.arms]
    path: Path = args.results or RESULTS / ("study_rates.jsonl" if rates else "study.jsonl")
    if args.command == "start":
        torch.set_num_threads(1)
        for game in args.games:
            folder = args.work / game / "start"
            teach(game, folder, lessons=args.lessons, records=args.records, shards=args.shards)
        return
    if args.command in {"run", "rates"}:
        run(chosen, path, args.workers)
    rows = Ledger(path, PROTOCOL).rows()
    texts = [done_table(rows, chosen)]
    for game in args.games:
        if args.command == "curves":
            draw(rows, game, args.out.with_name(f"{args.out.name}-{game}.png"))
        both = figures_table(rows, game, ARMS, CONTROLS), teacher_table(rows, game)
        texts += [rates_table(rows, game)] if rates else both
    print("\n\n".join(texts))  # noqa: T201 - a command's answer


if __name__ == "__main__":
    main()
