"""``pivot evaluate policy``: success of a trained policy on levels that are not in its training."""

from pathlib import Path
from typing import Any

from ..core.errors import TrainingError
from ..core.intervals import Interval
from ..core.storage import Address, open_storage
from ..flows import training
from ..training.evaluation.config import POLICY_RESULT, PolicyEvaluationConfig
from ..training.policy_rl.compare_runs import RunComparison, compare_runs, is_policy_run
from .console import out, show_table
from .from_config import Flag, from_config
from .train import log_line
from .train_rl import EnvForm

SIDES = ("old", "new", "difference")
POLICY = EnvForm("policy", PolicyEvaluationConfig, {"model": Flag(argument="DIR")}, skip=("settings",))


@from_config(POLICY)
def policy(config: PolicyEvaluationConfig) -> None:
    """Play held-out levels as the Student alone and report how often it succeeds, without Analyzer and Teacher.

    Intervals are 95 % bootstrap intervals over levels. The result is DIR/evaluation/policy.json.

    [bold]Examples[/]

    pivot evaluate policy runs/sokoban-mp

    pivot evaluate policy runs/sokoban-mp --checkpoint best --beside runs/sokoban-grpo

    pivot evaluate policy Qwen/Qwen2.5-VL-3B-Instruct --env sokoban --out runs/raw
    """
    result = training.evaluate_policy(config, report=log_line)
    row = result.row()
    shares = {"success": row["success"], **{f"success, {each}": value for each, value in row["by_set"].items()}}
    shares["return"] = row["return"]
    table = [[each, value["value"], value["low"], value["high"], value["records"]] for each, value in shares.items()]
    header = ["figure", "mean", "low", "high", "episodes"]
    show_table(f"{row['env']}: {result.levels} held-out levels", header, table)
    if result.trained_on:
        out.print(f"{result.trained_on} more were left out: the run was trained on them", soft_wrap=True)
    if row["errors"]:
        out.print(f"{row['errors']} episodes ended in an error and are in no figure", soft_wrap=True)
    folder = Path(config.model)
    if config.beside is not None:
        _show_gain(row, config.beside)
        if is_policy_run(config.beside) and is_policy_run(folder):
            show_runs(compare_runs(config.beside, folder), config.beside, folder)
    out.print(f"written: {(config.out or folder) / POLICY_RESULT}", soft_wrap=True)


def show_runs(compared: RunComparison, old: Address, new: Address) -> None:
    """Show how the updates of two runs compare, and what they cost."""
    for name, (before, after) in compared.settings.items():
        out.print(f"setting {name}: {before} -> {after}", soft_wrap=True)
    table = [
        [row.measure, *(_bounded(getattr(row, each), getattr(row, f"{each}_bounds")) for each in SIDES)]
        for row in compared.rows
    ]
    header = ["mean of an update", "old", "new", "difference"]
    show_table(f"{old} (old), {new} (new): up to update {compared.updates}", header, table)


def _bounded(value: float | None, bounds: tuple[float, float] | None) -> object:
    """Return a number with the bounds of its interval, if it has one."""
    return value if value is None or bounds is None else str(Interval(value, *bounds))


def _show_gain(row: dict[str, Any], beside: Path) -> None:
    storage = open_storage(beside)
    if storage.stat(POLICY_RESULT) is None:
        raise TrainingError(f"{beside} holds no {POLICY_RESULT}; measure it first: pivot evaluate policy {beside}")
    other = storage.read_json(POLICY_RESULT)
    alike = ("env", "settings", "seed", "levels", "levels_digest", "temperature")
    if different := [
        f"{each} {other.get(each)} and {row.get(each)}" for each in alike if other.get(each) != row.get(each)
    ]:
        raise TrainingError(
            f"{beside} was measured on other levels, or in another way ({'; '.join(different)}); measure both with the "
            "same settings"
        )
    before, after = other["success"]["value"], row["success"]["value"]
    gain = f"{100 * (after - before) / before:+.0f} % relative" if before else "from nothing"
    out.print(f"success {before:.3f} ({beside}) -> {after:.3f}: {gain}", soft_wrap=True)
