"""``pivot build`` and ``pivot relabel``: the commands that write a store."""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ... import plugins
from ...datasets.config import RunConfig, env_config, environment, load_config, make_config
from ...datasets.parts import make_policy, make_teacher
from ...datasets.store import Store
from ...datasets.usage import USAGE_HEADER, usage_rows
from ...errors import ConfigError
from ..estimate import estimate_bytes
from ..execution import available_cores, execute_with, worker_pool
from ..pipeline import BuildResult, check_ready, finished_build
from ..relabel import relabel_store
from ..server import start_server
from . import model_flags as flags
from .console import ProgressBars, err, out, percent, show_table


def _option(default_help: str, *names: str, panel: str | None = None, **extra: Any) -> Any:
    return typer.Option(*names, help=default_help, rich_help_panel=panel, **extra)


StorePath = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished store.")]


def build(
    envs: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENV...", help="Environments: sokoban, frozenlake, svg, navigation, primitiveskill."),
    ] = None,
    out_dir: Annotated[Path | None, _option("Folder of the store; new, or one this command began.", "--out")] = None,
    tasks: Annotated[
        str | None, _option("Levels: one number for all, or ENV=N,... (default: the paper's counts).", "--tasks")
    ] = None,
    rollouts: Annotated[int | None, _option("Rollouts a level (default 8, one group).", "--rollouts", min=1)] = None,
    seed: Annotated[int | None, _option("Seed of the whole run (default 0).", "--seed", min=0)] = None,
    settings: Annotated[
        list[str] | None, _option("Environment setting ENV.KEY=VALUE; may be given again.", "--set")
    ] = None,
    policy: Annotated[str | None, _option("Who acts (default scripted, an embedded stand-in).", "--policy")] = None,
    teacher: Annotated[
        str | None, _option("Who writes guidance (default template, an embedded stand-in).", "--teacher")
    ] = None,
    model: flags.Model = None,
    base_url: flags.BaseUrl = None,
    revision: flags.Revision = None,
    temperature: flags.Temperature = None,
    top_p: flags.TopP = None,
    top_k: flags.TopK = None,
    max_tokens: flags.MaxTokens = None,
    max_concurrency: flags.MaxConcurrency = None,
    request_timeout: flags.RequestTimeout = None,
    episode_timeout: flags.EpisodeTimeout = None,
    patience: flags.Patience = None,
    cache: flags.Cache = None,
    no_cache: flags.NoCache = False,
    price_in: flags.PriceIn = None,
    price_out: flags.PriceOut = None,
    teacher_model: flags.TeacherModel = None,
    teacher_base_url: flags.TeacherBaseUrl = None,
    teacher_revision: flags.TeacherRevision = None,
    split: Annotated[
        str | None, _option("task: a level is on one side only (default); episode: exactly a tenth.", "--split")
    ] = None,
    target_vocabulary: Annotated[
        str | None,
        _option("Words for failure modes in targets: certificate (default), or paper.", "--target-vocabulary"),
    ] = None,
    targets: Annotated[
        str | None, _option("Targets of svg: a folder of SVG files, or hf:DATASET:COLUMN.", "--targets")
    ] = None,
    scorer: Annotated[
        str | None, _option("Scorer of svg: pixel (default, an embedded stand-in) or dino+dreamsim.", "--scorer")
    ] = None,
    backend: Annotated[
        str | None,
        _option("What runs behind: embedded (default), thor (navigation), maniskill (primitiveskill).", "--backend"),
    ] = None,
    task_file: Annotated[
        list[Path] | None, _option("Tasks of navigation in AI2-THOR; once for each split.", "--task-file")
    ] = None,
    solver: Annotated[
        list[str] | None, _option("Solver setting ENV.KEY=VALUE, for labels alone; may be given again.", "--solver")
    ] = None,
    workers: Annotated[int, _option("Worker processes (default: one a core).", "--workers", min=0)] = 0,
    config: Annotated[
        Path | None, _option("Take the config from a run.json; other options override it.", "--config")
    ] = None,
    dry_run: Annotated[bool, _option("Show the plan and a disk estimate, and do nothing.", "--dry-run")] = False,
    refresh: Annotated[bool, _option("Throw away what the folder holds and make it anew.", "--refresh")] = False,
) -> None:
    """Roll out environments, label every failure with a proof, and write a dataset that a trainer can load.

    The same command again goes on where it stopped, adds what is missing, or says that all is done.

    [bold]Examples[/]

    pivot build sokoban frozenlake --out runs/first

    pivot build sokoban --out runs/big --tasks 2000 --set sokoban.boxes=2 --set sokoban.rows=8 --set sokoban.cols=8

    pivot build navigation --out runs/thor --backend thor --task-file base.json --task-file common_sense.json

    pivot build --config runs/first/run.json --out runs/copy

    pivot build sokoban --out runs/vlm --policy openai --model Qwen/Qwen2.5-VL-3B-Instruct
    --base-url http://localhost:8000/v1
    """
    options = {
        "model": model,
        "revision": revision,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "max_tokens": max_tokens,
    }
    service = {
        "base_url": base_url,
        "max_concurrency": max_concurrency,
        "request_seconds": request_timeout,
        "episode_seconds": episode_timeout,
        "patience_seconds": patience,
        "cache": "" if no_cache else cache,
        "price_in": price_in,
        "price_out": price_out,
    }
    changes = {
        "rollouts": rollouts,
        "seed": seed,
        "policy": flags.Change(policy, flags.given(options), flags.given(service)),
        "teacher": flags.teacher_change(teacher, teacher_model, teacher_revision, teacher_base_url, service),
        "split": split,
        "target_vocabulary": target_vocabulary,
    }
    short: dict[str, Any] = {"svg.targets": targets, "svg.scorer": scorer, _backend_setting(backend, envs): backend}
    short["navigation.task_files"] = [str(path) for path in task_file] if task_file else None
    named = [f"{name}={json.dumps(value)}" for name, value in short.items() if value is not None]
    resolved = resolve_config(config, envs or [], tasks, [*(settings or []), *named], changes, solver or [])
    if out_dir is None:
        raise ConfigError("no folder given; say where the store goes with --out DIR")
    workers = workers or available_cores()
    if dry_run:
        show_plan(resolved, out_dir, workers)
        return
    done = finished_build(out_dir, resolved, refresh=refresh)
    if done is not None:
        show_result(done)
        return
    check_ready(resolved)
    with worker_pool(workers, list(resolved.environments)) as pool, ProgressBars() as bars:
        err.print(
            "starting the flow engine (a few seconds; the first run also compiles the solvers, about a minute)",
            soft_wrap=True,
        )
        server = start_server()
        # Imported here: Prefect takes seconds to import, and the server gets ready meanwhile.
        from ..build import run_in_process  # noqa: PLC0415

        server.wait()
        result = run_in_process(resolved, out_dir, pool, bars, refresh=refresh)
    show_result(result)


def _backend_setting(backend: str | None, envs: list[str] | None) -> str:
    """Return the setting that ``--backend`` means; ``embedded`` is meant for the first environment that has one."""
    owners = {"thor": "navigation", "maniskill": "primitiveskill"}
    named = (name for name in envs or () if name in owners.values())
    return f"{owners.get(backend or '', next(named, 'navigation'))}.backend"


def resolve_config(
    file: Path | None,
    envs: Sequence[str],
    tasks: str | None,
    settings: Sequence[str],
    changes: dict[str, Any],
    solvers: Sequence[str] = (),
) -> RunConfig:
    """Merge config file and options into one checked config.

    Raises:
        ConfigError: an option cannot be used, or no environment is named.
    """
    base: dict[str, Any] = load_config(file).model_dump(mode="json") if file else {"environments": {}}
    runs: dict[str, Any] = base["environments"]
    names = list(dict.fromkeys(envs)) or list(runs)
    if not names:
        known = ", ".join(plugins.names("environments"))
        raise ConfigError(f"no environment named; give one or more of: {known}")
    counts = _task_counts(tasks, names)
    chosen: dict[str, Any] = {}
    for name in names:
        run = runs.get(name, {"tasks": None, "settings": {}})
        chosen[name] = {"tasks": counts.get(name, run["tasks"]), "settings": dict(run["settings"])}
    for text in settings:
        name, key, value = _setting("--set", text)
        if name not in chosen:
            raise ConfigError(f"--set {text}: environment {name!r} is not part of this build ({', '.join(names)})")
        chosen[name]["settings"][key] = value
    for name, run in chosen.items():
        if run["tasks"] is None:
            run["tasks"] = _default_tasks(name, run["settings"])
    raw = base | {"environments": chosen, "solvers": solver_settings(base.get("solvers", {}), solvers, chosen)}
    for key, value in changes.items():
        if isinstance(value, flags.Change):
            raw[key] = value.apply(key, raw.get(key) or RunConfig.model_fields[key].default.model_dump())
        elif value is not None:
            raw[key] = value
    resolved = make_config(raw)
    make_policy(resolved.policy).check()
    make_teacher(resolved.teacher).check()
    return resolved


def _default_tasks(name: str, settings: dict[str, Any]) -> int:
    """Return the paper's count, or that of all tasks where the settings list them."""
    kind = environment(name)
    listed = kind.fixed_tasks(env_config(name, settings))
    return kind.profile.default_tasks if listed is None else len(listed)


def _task_counts(text: str | None, names: Sequence[str]) -> dict[str, int]:
    if text is None:
        return {}
    if text.isdecimal():
        return dict.fromkeys(names, int(text))
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if not number.isdecimal():
            raise ConfigError(f"--tasks {text}: found {part!r}; expected a number, or ENV=N,ENV=N")
        if name not in names:
            raise ConfigError(f"--tasks {text}: environment {name!r} is not part of this build ({', '.join(names)})")
        counts[name] = int(number)
    return counts


def solver_settings(
    old: Mapping[str, Mapping[str, Any]], settings: Sequence[str], environments: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the solvers' settings of a run: the ``old`` ones of its environments, changed by ``ENV.KEY=VALUE`` texts.

    Raises:
        ConfigError: a text cannot be used.
    """
    chosen = {name: dict(options) for name, options in old.items() if name in environments}
    for text in settings:
        name, key, value = _setting("--solver", text)
        if name not in environments:
            known = ", ".join(environments)
            raise ConfigError(f"--solver {text}: environment {name!r} is not part of this build ({known})")
        chosen.setdefault(name, {})[key] = value
    return chosen


def _setting(option: str, text: str) -> tuple[str, str, Any]:
    target, equals, value = text.partition("=")
    name, dot, key = target.partition(".")
    if not (equals and dot and name and key):
        example = "sokoban.boxes=2" if option == "--set" else "navigation.threshold=1.0"
        raise ConfigError(f"{option} {text}: expected ENV.KEY=VALUE, such as {example}")
    try:
        return name, key, json.loads(value)
    except ValueError:
        return name, key, value


def show_plan(config: RunConfig, root: Path, workers: int) -> None:
    """Print what a build would do, and what it would take."""
    rows, total = [], 0
    for name, run in config.environments.items():
        episodes = run.tasks * config.rollouts
        size = estimate_bytes(config, name)
        total += size
        shards = sum(shard.env == name for shard in config.shards())
        rows.append([name, run.tasks, episodes, shards, f"{size / 1e6:.0f} MB"])
    show_table("Plan", ["environment", "tasks", "episodes", "shards", "disk (estimate)"], rows)
    parent = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.exists())
    free = shutil.disk_usage(parent).free
    out.print(
        f"policy {config.policy.name}, teacher {config.teacher.name}, split by {config.split}, seed {config.seed}, "
        f"{workers} workers"
    )
    out.print(f"about {total / 1e6:.0f} MB into {root}, {free / 1e9:.1f} GB free there; nothing was written")
    if total > free:
        err.print("[yellow]this does not fit; free some space or choose another --out[/]")


def show_result(result: BuildResult) -> None:
    """Print the summary table and the next commands."""
    rows = []
    for name, counts in result.environments.items():
        rows.append(
            [
                name,
                counts["episodes"],
                percent(counts["succeeded"], counts["episodes"]),
                counts["failed"],
                counts["accepted"],
                counts["rejected"],
                counts["rows"],
            ]
        )
    root = result.root
    title = f"{root} (already complete)" if result.already_complete else str(root)
    show_table(title, ["environment", "episodes", "success", "failed", "accepted", "rejected", "training rows"], rows)
    usage = usage_rows(Store.open(root))
    if usage:
        show_table("Models", USAGE_HEADER, usage)
    if result.reused_shards and not result.already_complete:
        out.print(f"{result.reused_shards} of {result.shards} rollout shards were there already")
    if result.owed:
        out.print(f"{result.owed} episodes ended in an error and are owed: run the same command again to make them")
    if result.unanswered:
        out.print(
            f"{result.unanswered} labels got no answer from the teacher: run the same build again to ask for them"
        )
    first = next(iter(result.environments))
    hints = {
        f"pivot stats {root}": "failure modes, groups, rejects",
        f"pivot peek {root}": "one labelled failure (--png FILE for the picture)",
        f"pivot verify {root}": "prove every label again",
        f'load_dataset("{root}/dataset", "{first}")': "in Python, with the datasets library",
    }
    width = max(map(len, hints))
    out.print("\nnext:")
    for command, purpose in hints.items():
        out.print(f"  {command:<{width}}   {purpose}", soft_wrap=True, markup=False)


def relabel(
    root: StorePath,
    teacher: Annotated[str | None, _option("Another teacher.", "--teacher")] = None,
    teacher_model: flags.TeacherModel = None,
    teacher_base_url: flags.TeacherBaseUrl = None,
    teacher_revision: flags.TeacherRevision = None,
    max_concurrency: flags.MaxConcurrency = None,
    cache: flags.Cache = None,
    no_cache: flags.NoCache = False,
    split: Annotated[str | None, _option("Another split: task or episode.", "--split")] = None,
    target_vocabulary: Annotated[
        str | None, _option("Other words for failure modes in targets: certificate or paper.", "--target-vocabulary")
    ] = None,
    solver: Annotated[
        list[str] | None, _option("Solver setting ENV.KEY=VALUE; may be given again.", "--solver")
    ] = None,
    include_infeasible: Annotated[
        bool | None,
        _option("Whether episodes lost before any action are training data.", "--infeasible/--no-infeasible"),
    ] = None,
    keep_old: Annotated[bool, _option("Keep the replaced labels beside the new ones.", "--keep-old")] = False,
    workers: Annotated[int, _option("Worker processes (default: one a core).", "--workers", min=0)] = 0,
) -> None:
    """Label a finished store again, without new rollouts, as its next label version.

    Dataset and manifest are replaced in one step: a reader sees the old store or the new one, also after a kill.

    [bold]Examples[/]

    pivot relabel runs/first --split episode

    pivot relabel runs/first --infeasible --keep-old

    pivot relabel runs/rooms --solver navigation.threshold=1.0

    pivot relabel runs/first --teacher openai --teacher-model Qwen/Qwen3-VL-8B-Instruct
    --teacher-base-url http://localhost:8000/v1
    """
    config = Store.open(root, complete=False).config
    changes: dict[str, Any] = {}
    if any(given is not None for given in (teacher, teacher_model, teacher_base_url, teacher_revision)):
        service = {"max_concurrency": max_concurrency, "cache": "" if no_cache else cache}
        change = flags.teacher_change(teacher, teacher_model, teacher_revision, teacher_base_url, service)
        changes["teacher"] = change.apply("teacher", config.teacher.model_dump())
        make_teacher(make_config(config.model_dump(mode="json") | changes).teacher).check()
    if split is not None:
        changes["split"] = split
    if target_vocabulary is not None:
        changes["target_vocabulary"] = target_vocabulary
    if include_infeasible is not None:
        changes["include_infeasible"] = include_infeasible
    environments = list(config.environments)
    if solver:
        changes["solvers"] = solver_settings(config.solvers, solver, environments)
    with ProgressBars() as bars, worker_pool(workers or available_cores(), environments) as pool:
        result = relabel_store(root, changes, execute_with(pool), bars, keep_old=keep_old)
    show_result(result)
