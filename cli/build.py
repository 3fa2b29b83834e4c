"""``pivot build``: roll out, label, export."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import plugins
from ..datasets.config import RunConfig
from ..datasets.parts import members_of
from ..datasets.store import RUN, Store
from ..errors import ConfigError
from ..flows.append import reserve_part, take_up_parts
from ..flows.engines.base import Workers, open_pool
from ..flows.engines.local import available_cores
from ..flows.engines.server import start_server
from ..flows.pipeline import BuildResult, finished_build
from ..storage import Address, open_storage
from . import model_flags as flags
from .console import ProgressBars, err, out
from .engines import WORKERS, ClusterAddress, EngineName
from .options import StoreAddress, address_option, option
from .results import show_plan, show_result
from .settings import resolve_config


@flags.with_models("policy", "teacher")
def build(
    envs: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENV...", help=f"Environments: {', '.join(plugins.names('environments'))}."),
    ] = None,
    out_dir: Annotated[
        StoreAddress | None,
        address_option("Folder of the store, or its s3://, gs:// or az:// address; new, or begun before.", "--out"),
    ] = None,
    tasks: Annotated[
        str | None, option("Levels: one number for all, or ENV=N,... (default: the paper's counts).", "--tasks")
    ] = None,
    rollouts: Annotated[int | None, option("Rollouts a level (default 8, one group).", "--rollouts", min=1)] = None,
    seed: Annotated[int | None, option("Seed of the whole run (default 0).", "--seed", min=0)] = None,
    settings: Annotated[
        list[str] | None,
        option("Environment setting ENV.KEY=VALUE (see `pivot settings`); may be given again.", "--set"),
    ] = None,
    policy: Annotated[str | None, option("Who acts (default scripted, an embedded stand-in).", "--policy")] = None,
    teacher: Annotated[
        str | None, option("Who writes guidance (default template, an embedded stand-in).", "--teacher")
    ] = None,
    policy_settings: flags.PolicySettings = None,
    *,
    models: flags.Models,
    split: Annotated[
        str | None, option("task: a level is on one side only (default); episode: exactly a tenth.", "--split")
    ] = None,
    target_vocabulary: Annotated[
        str | None,
        option("Words for failure modes in targets: certificate (default), or paper.", "--target-vocabulary"),
    ] = None,
    log: Annotated[
        str | None,
        option(
            "What the Analyzer's log shows: full (default), the fields of the environment, which often give the pivot "
            "away by arithmetic; or actions, the actions alone, so that the pictures decide.",
            "--log",
        ),
    ] = None,
    license_id: Annotated[
        str | None,
        option(
            "Licence that the card states, as the Hugging Face hub spells it, such as cc-by-4.0 (default: derived from "
            "what the rows are made of; unknown where others made something of it, such as targets of your own).",
            "--license",
        ),
    ] = None,
    targets: Annotated[
        str | None, option("Targets of svg: a folder of SVG files, or hf:DATASET:COLUMN.", "--targets")
    ] = None,
    scorer: Annotated[
        str | None, option("Scorer of svg: pixel (default, an embedded stand-in) or dino+dreamsim.", "--scorer")
    ] = None,
    backend: Annotated[
        str | None,
        option("What runs behind: embedded (default), thor (navigation), maniskill (primitiveskill).", "--backend"),
    ] = None,
    task_file: Annotated[
        list[Path] | None, option("Tasks of navigation in AI2-THOR; once for each split.", "--task-file")
    ] = None,
    solver: Annotated[
        list[str] | None, option("Solver setting ENV.KEY=VALUE, for labels alone; may be given again.", "--solver")
    ] = None,
    workers: Annotated[int, option(WORKERS, "--workers", min=0)] = 0,
    engine: EngineName = "local",
    address: ClusterAddress = "",
    shard_size: Annotated[
        int | None,
        option(
            "Levels a shard: a file of every table, and the unit of resuming (default 16; up to 128 in a new store "
            "with more than 4,096 levels).",
            "--shard-size",
            min=1,
        ),
    ] = None,
    config: Annotated[
        StoreAddress | None,
        address_option("Take the config from a run.json; other options override it.", "--config"),
    ] = None,
    dry_run: Annotated[bool, option("Show the plan and a disk estimate, and do nothing.", "--dry-run")] = False,
    refresh: Annotated[bool, option("Throw away what the folder holds and make it anew.", "--refresh")] = False,
    append: Annotated[
        bool,
        option(
            "Add it to the store as a part of its own: more levels, another policy, other environments. What the store "
            "holds already is left out.",
            "--append",
        ),
    ] = False,
) -> None:
    """Roll out environments, label every failure with a proof, and write a dataset that a trainer can load.

    The same command again goes on where it stopped, adds what is missing, or says that all is done; so does --out DIR
    alone, with the config of the store that is there.

    [bold]Examples[/]

    pivot build sokoban frozenlake --out runs/first

    pivot build sokoban --out runs/big --tasks 2000 --set sokoban.boxes=2 --set sokoban.rows=8 --set sokoban.cols=8

    pivot build navigation --out runs/thor --backend thor --task-file base.json --task-file common_sense.json

    pivot build frozenlake --out runs/pictures --log actions

    pivot build --config runs/first/run.json --out runs/copy

    pivot build --out runs/first --tasks 300

    pivot build sokoban --out runs/first --append --tasks 50 --seed 1

    pivot build sokoban --out runs/vlm --policy openai --model Qwen/Qwen2.5-VL-3B-Instruct
    --base-url http://localhost:8000/v1

    pivot build sokoban --out /shared/big --tasks 20000 --engine ray --address ray://head:10001
    """
    changes = {
        "rollouts": rollouts,
        "seed": seed,
        "policy": models.policy(policy, flags.own(policy_settings), teacher),
        "teacher": models.teacher(teacher),
        "split": split,
        "target_vocabulary": target_vocabulary,
        "log": log,
        "license": license_id,
        "tasks_per_shard": shard_size,
    }
    short: dict[str, tuple[str, Any]] = {
        "svg.targets": ("--targets", targets),
        "svg.scorer": ("--scorer", scorer),
        _backend_setting(backend, envs): ("--backend", backend),
        "navigation.task_files": ("--task-file", [str(path) for path in task_file] if task_file else None),
    }
    flags_of = {
        f"{name}={json.dumps(value)}": f"{flag} {value if isinstance(value, str) else value[0]}"
        for name, (flag, value) in short.items()
        if value is not None
    }
    file = config or _begun(out_dir, envs)
    resolved = resolve_config(file, envs or [], tasks, [*(settings or []), *flags_of], changes, solver or [], flags_of)
    if out_dir is None:
        raise ConfigError("no folder given; say where the store goes with --out DIR")
    if file is None and shard_size is None:
        resolved = _with_shards(resolved, out_dir)
    if dry_run:
        show_plan(resolved, out_dir, workers or available_cores())
        return
    crew = Workers(engine, address, workers)
    if not append:
        show_result(_build(resolved, out_dir, crew, refresh=refresh))
        return
    part = reserve_part(out_dir, resolved)
    if part is None:
        take_up_parts(out_dir)
        parts = len(members_of(Store.open(out_dir)))
        out.print(f"{out_dir} holds all of it already, in {parts} part{'s' * (parts > 1)}", soft_wrap=True)
        return
    for env, levels in part.left_out.items():
        if levels:
            err.print(f"{env}: {levels} levels are left out, which {out_dir} holds already", soft_wrap=True)
    show_result(_build(part.config, part.root, crew, refresh=refresh))
    take_up_parts(out_dir, [part.number])
    out.print(f"part {part.number} of {out_dir}; all parts: pivot stats {out_dir}", soft_wrap=True)


def _build(config: RunConfig, root: Address, workers: Workers, *, refresh: bool) -> BuildResult:
    done = finished_build(root, config, refresh=refresh)
    if done is not None:
        return done
    with open_pool(workers, list(config.environments), root) as pool, ProgressBars() as bars:
        err.print(
            "starting the flow engine (a few seconds; the first run also compiles the solvers, about a minute)",
            soft_wrap=True,
        )
        server = start_server()
        # Imported here: Prefect takes seconds to import, and the server gets ready meanwhile.
        from ..flows.deployments import run_in_process  # noqa: PLC0415

        server.wait()
        return run_in_process(config, root, pool, bars, refresh=refresh)


def _begun(out_dir: Address | None, envs: list[str] | None) -> Address | None:
    """Return the config of the store that a command without environments goes on with; None where none was begun."""
    if out_dir is None or envs or open_storage(out_dir).stat(RUN) is None:
        return None
    return out_dir / RUN


def _with_shards(config: RunConfig, out_dir: Address) -> RunConfig:
    """Return the config with the shards of the store that is there, or with those that fit its size."""
    if open_storage(out_dir).stat(RUN) is None:
        return config.with_fitting_shards()
    held = Store.open(out_dir, complete=False).config
    return config.model_copy(update={"tasks_per_shard": held.tasks_per_shard})


def _backend_setting(backend: str | None, envs: list[str] | None) -> str:
    """Return the setting that ``--backend`` means; ``embedded`` is meant for the first environment that has one."""
    owners = {"thor": "navigation", "maniskill": "primitiveskill"}
    named = (name for name in envs or () if name in owners.values())
    return f"{owners.get(backend or '', next(named, 'navigation'))}.backend"
