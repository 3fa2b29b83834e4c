"""``pivot evaluate policy``: how often a trained policy succeeds on levels that it has never seen."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import TrainingError
from ..models.extras import look_for
from ..storage import Address, open_storage
from ..training.evaluation.compare_runs import compare_runs, is_policy_run
from ..training.policy_rl.config import make_rl_config
from .console import err, out, show_table
from .from_config import env_settings
from .options import option


def policy(
    model: Annotated[
        str, typer.Argument(metavar="DIR", help="A run of pivot train rl; or with --env any checkpoint or hub id.")
    ],
    env: Annotated[str | None, option("Environment to play (default: the run's).", "--env")] = None,
    settings: Annotated[list[str] | None, option("Environment setting KEY=VALUE; may be given again.", "--set")] = None,
    checkpoint: Annotated[str, option("Which weights of the run: final or best.", "--checkpoint")] = "final",
    episodes: Annotated[
        int | None, option("Episodes, spread over the held-out levels (default 128).", "--episodes", min=1)
    ] = None,
    temperature: Annotated[float | None, option("Sampling temperature (default 0.4).", "--temperature")] = None,
    max_tokens: Annotated[int | None, option("Longest reply (default 512, or the run's).", "--max-tokens")] = None,
    levels: Annotated[
        int | None, option("Different levels of which a tenth is held out (default: the run's).", "--levels")
    ] = None,
    seed: Annotated[int | None, option("Of the levels and replies (default: the run's).", "--seed")] = None,
    beside: Annotated[Path | None, option("Another evaluated run, to tell the gain over it.", "--beside")] = None,
    out_dir: Annotated[Path | None, option("Folder of the result (default: DIR).", "--out")] = None,
) -> None:
    """Play held-out levels as the Student alone and say how often it succeeds; Analyzer and Teacher are not asked.

    Intervals are 95 % bootstrap intervals over levels. The result is DIR/evaluation/policy.json.

    [bold]Examples[/]

    pivot evaluate policy runs/sokoban-mp

    pivot evaluate policy runs/sokoban-mp --checkpoint best --beside runs/sokoban-grpo

    pivot evaluate policy Qwen/Qwen2.5-VL-3B-Instruct --env sokoban --out runs/raw
    """
    for package in ("torch", "transformers", "accelerate"):
        look_for(package, "train")
    from ..training.evaluation import policy as evaluation  # noqa: PLC0415 - PyTorch takes seconds

    run = evaluation.run_config(Path(model)) if Path(model).is_dir() else None
    fields: dict[str, Any] = {} if run is None else run.model_dump(mode="json")
    name = env or fields.get("env")
    if name is None:
        raise TrainingError(f"{model} is no run of pivot train rl, so it does not say what to play; name it with --env")
    if env is not None and run is not None and env != run.env:
        fields |= {"env": env, "settings": {}, "levels": 0}
    changes = {
        "env": name,
        "settings": {**fields.get("settings", {}), **env_settings(name, settings or ())} or None,
        "validation_episodes": episodes,
        "validation_temperature": temperature,
        "max_tokens": max_tokens,
        "levels": levels,
        "seed": seed,
        "prompts": 1,
        "model": fields.get("model", model),
    }
    config = make_rl_config(fields | {key: value for key, value in changes.items() if value is not None})
    weights = model if run is None else evaluation.checkpoint_of(Path(model), checkpoint)
    target = out_dir or (Path(model) if Path(model).is_dir() else None)
    if target is None:
        raise TrainingError(f"{model} is no folder, so there is no place for the result; say where with --out DIR")
    err.print(f"playing {config.validation_episodes} episodes of {name} …", soft_wrap=True)
    result = evaluation.measure_policy(config, weights, run)
    row = result.row()
    open_storage(target).write_json(evaluation.RESULT, row)
    shares = {"success": row["success"], **{f"success, {each}": value for each, value in row["by_set"].items()}}
    shares["return"] = row["return"]
    table = [[each, value["value"], value["low"], value["high"], value["records"]] for each, value in shares.items()]
    show_table(f"{name}: {result.levels} held-out levels", ["figure", "mean", "low", "high", "episodes"], table)
    if result.trained_on:
        out.print(f"{result.trained_on} more were left out: the run was trained on them", soft_wrap=True)
    if row["errors"]:
        out.print(f"{row['errors']} episodes could not be finished and are in no figure", soft_wrap=True)
    if beside is not None:
        _tell_gain(row, beside, evaluation.RESULT)
        if run is not None and is_policy_run(beside):
            show_runs(beside, Path(model))
    out.print(f"written: {target / evaluation.RESULT}", soft_wrap=True)


def show_runs(old: Address, new: Address) -> None:
    """Show how the updates of two runs went, and what they cost.

    Raises:
        TrainingError: they cannot be compared.
    """
    compared = compare_runs(old, new)
    for name, (before, after) in compared.settings.items():
        out.print(f"setting {name}: {before} -> {after}", soft_wrap=True)
    table = [[row.measure, row.old, row.new, row.difference] for row in compared.rows]
    header = ["mean of an update", "old", "new", "difference"]
    show_table(f"{old} (old), {new} (new): up to update {compared.updates}", header, table)


def _tell_gain(row: dict[str, Any], beside: Path, name: str) -> None:
    storage = open_storage(beside)
    if storage.stat(name) is None:
        raise TrainingError(f"{beside} holds no {name}; measure it first: pivot evaluate policy {beside}")
    other = storage.read_json(name)
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
