"""Functions that train and use models, or build stores for training.

PyTorch, and what only one of them needs, is imported when they are called: a machine that only trains has no Prefect,
DuckDB or polars.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.admission import Names, allowing
from ..core.errors import ConfigError, TrainingError
from ..core.progress import Reporter
from ..datasets.store.config import env_config
from ..models.extras import installed, look_for
from ..training.analyzer_sft.config import SftConfig, make_sft_config
from ..training.config import checked
from ..training.evaluation.config import MakeConfig, PolicyEvaluationConfig
from ..training.policy_rl.config import RlConfig, make_rl_config

if TYPE_CHECKING:
    from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]

    from ..training.analyzer_sft.run import Prepared, SftResult
    from ..training.evaluation.items import Benchmark
    from ..training.evaluation.policy import PolicyResult
    from ..training.made_models import MadeModel
    from ..training.policy_rl.loop import Prepared as RlPrepared
    from ..training.policy_rl.loop import RlResult

SFT_PACKAGES = ("torch", "transformers", "accelerate", "peft")
RL_PACKAGES = ("torch", "transformers", "accelerate")
OF_STORES = ("pyarrow", "polars", "duckdb", "cv2", "numba")
"""Packages that labels and dataset of a store need, which a machine that only trains may lack."""


def _ignore(_: Any) -> None:
    """Ignore a report."""


def check_packages(packages: tuple[str, ...]) -> None:
    """Check that the packages of training are installed.

    Raises:
        PluginError: one is not installed; the message names the command that installs it.
    """
    for package in packages:
        look_for(package, "train")


def train_sft(
    config: SftConfig | Mapping[str, Any],
    *,
    report: Callable[[str], None] = _ignore,
    on_checked: "Callable[[Prepared], None]" = _ignore,
    callbacks: "Sequence[TrainerCallback | type[TrainerCallback]]" = (),
) -> "SftResult":
    """Train an Analyzer from a dataset (Stage I).

    Args:
        config: dataset, model, ``out`` and how it trains, such as
            ``{"dataset": "runs/first", "model": "Qwen/Qwen2.5-VL-3B-Instruct", "out": "runs/analyzer"}``.
        report: receives lines about the progress, in the main process alone.
        on_checked: receives the checked records before training starts, in the main process alone.
        callbacks: instances or classes of ``transformers.TrainerCallback``.

    Returns:
        Updates, loss and data check; with ``dry_run`` the memory estimate alone.

    Raises:
        TrainingError: the config, the data or the model cannot be used. PluginError: a package is missing.
    """
    settings = config if isinstance(config, SftConfig) else make_sft_config(config)
    check_packages(SFT_PACKAGES)
    from ..training.analyzer_sft import run  # noqa: PLC0415
    from ..training.memory import estimate, within_memory  # noqa: PLC0415
    from ..training.ranks import Ranks  # noqa: PLC0415

    if settings.dry_run:
        return run.SftResult(None, 0, None, memory=estimate(settings))
    if settings.out is None and not settings.check_only:
        raise TrainingError("no folder given, expected one for checkpoints and results; name it with --out DIR")
    prepared = run.prepare(settings)
    if settings.out is not None and not settings.check_only:
        listeners: dict[str, Any] = {"report": report, "on_checked": on_checked, "callbacks": callbacks}
        with within_memory(settings):
            return run.train(prepared, settings.out, settings.resume, **listeners)
    if Ranks.current().is_main:
        on_checked(prepared)
    return run.SftResult(None, prepared.plan.steps, None, data=prepared.report)


def train_rl(
    config: RlConfig | Mapping[str, Any],
    *,
    report: Callable[[str], None] = _ignore,
    on_prepared: "Callable[[RlPrepared], None]" = _ignore,
) -> "RlResult":
    """Train a policy on an environment with hindsight (Stage II), and label the rollouts that it stored.

    Args:
        config: environment, model, ``out`` and how it trains, such as
            ``{"env": "sokoban", "model": "runs/analyzer/final", "arm": "mp", "out": "runs/agent"}``.
        report: receives one line per update, in the main process alone.
        on_prepared: receives levels and model before training starts, in the main process alone.

    Returns:
        Updates and the last figures; with ``dry_run`` the memory estimate alone.

    Raises:
        TrainingError: the config or the model cannot be used. PluginError: a package is missing.
    """
    settings = config if isinstance(config, RlConfig) else make_rl_config(config)
    # A mistake in a setting is reported before anything is loaded.
    env = env_config(settings.env, settings.settings)
    check_packages(RL_PACKAGES)
    from ..training.memory import estimate_rl, within_memory  # noqa: PLC0415
    from ..training.policy_rl import loop  # noqa: PLC0415
    from ..training.policy_rl.rollout_store import FOLDER  # noqa: PLC0415

    if settings.dry_run:
        return loop.RlResult("", 0, {}, memory=estimate_rl(settings))
    if settings.out is None:
        raise TrainingError("no folder given, expected one for checkpoints and results; name it with --out DIR")
    with allowing(env.code), within_memory(settings):  # the caller names the code
        prepared = loop.prepare(settings)
        if prepared.ranks.is_main:
            on_prepared(prepared)
        result = loop.train(prepared, settings.out, resume=settings.resume, report=report)
        if prepared.ranks.is_main and 0 < settings.keep_rollouts <= settings.updates:
            _label(settings.out / FOLDER, report)
    return result


def _label(store: Path, report: Callable[[str], None]) -> None:
    """Make labels and dataset of stored rollouts, or report how another machine does."""
    if missing := [package for package in OF_STORES if not installed(package)]:
        report(
            f"the stored rollouts have no labels, which need {', '.join(missing)}; make them on a machine that has "
            f"these: pivot build --config {store}/run.json --out {store}"
        )
        return
    from .engines.local import InProcess  # noqa: PLC0415
    from .pipeline import finish_store  # noqa: PLC0415

    report("labelling the stored rollouts …")
    finish_store(store, InProcess(), Reporter())


def evaluate_policy(
    config: PolicyEvaluationConfig | Mapping[str, Any], *, report: Callable[[str], None] = _ignore, allow: Names = ()
) -> "PolicyResult":
    """Play held-out levels with a policy alone and measure how often it succeeds, without Analyzer and Teacher.

    Args:
        config: the run or checkpoint, such as ``{"model": "runs/agent"}``.
        report: receives single lines.
        allow: modules or models that the run names and that may be loaded.

    Returns:
        The figures, which are also in ``evaluation/policy.json`` of the folder ``out``.

    Raises:
        TrainingError: the config or the model cannot be used. PluginError: a package is missing.
    """
    settings = config if isinstance(config, PolicyEvaluationConfig) else checked(PolicyEvaluationConfig, config)
    check_packages(RL_PACKAGES)
    from ..training.evaluation import policy  # noqa: PLC0415

    named = env_config(settings.env, settings.settings).code if settings.env else ()
    with allowing(named), allowing(allow):
        return policy.evaluate_policy(settings, report)


TINY_STORE = {"environments": {"sokoban": {"tasks": 12}, "frozenlake": {"tasks": 12}}, "rollouts": 4}
"""Config of the store that a tiny model is made for if none is given."""


def make_model(
    kind: str,
    out: Path | str,
    data: str | Path | None = None,
    *,
    seed: int = 0,
    lessons: int = 80,
    report: Callable[[str], None] = _ignore,
) -> "MadeModel":
    """Make a model for walks on a CPU; nothing is downloaded.

    Args:
        kind: ``tiny``, a Qwen2.5-VL from scratch; or ``smol``, SmolLM2-135M-Instruct with a vision tower from scratch.
        out: folder of the model; empty or missing.
        data: store whose texts the tokenizer of ``tiny`` fits; None builds a small one of Sokoban and FrozenLake in a
            temporary folder.
        seed: seed of weights and lessons.
        lessons: optimiser steps that teach ``tiny`` the format of replies; 0 leaves the weights random.
        report: receives lines about the progress.

    Raises:
        ConfigError: the kind is unknown. TrainingError: the folder is not empty, or the store cannot be read.
        PluginError: a package is missing.
    """
    check_packages(RL_PACKAGES)
    from ..training import made_models  # noqa: PLC0415

    if kind == "smol":
        return made_models.make_smol_model(Path(out), seed=seed, report=report)
    if kind != "tiny":
        raise ConfigError(f"found model kind {kind!r}, expected tiny or smol")
    with tempfile.TemporaryDirectory() as folder:
        if data is None:
            from .build import build  # noqa: PLC0415

            data = Path(folder) / "store"
            build(TINY_STORE, data)
        return made_models.make_tiny_model(Path(out), str(data), seed=seed, lessons=lessons, report=report)


def rehearse(
    model: str | None = None, *, minutes: float = 10.0, report: Callable[[str], None] = _ignore
) -> dict[str, Any]:
    """Run short pieces of both stages on this machine with random weights; nothing is downloaded.

    Args:
        model: ``qwen2.5-vl-3b`` or ``qwen3-vl-2b`` at full size, ``tiny``, or a folder; by default the first with a
            GPU, else ``tiny``.
        minutes: time after which no further part begins.
        report: receives a line per part.

    Returns:
        Device, versions, a row of figures per part, and the slowest phases.

    Raises:
        TrainingError: the model is unknown. PluginError: a package is missing.
    """
    check_packages(SFT_PACKAGES)
    from ..training import rehearsal  # noqa: PLC0415

    return rehearsal.rehearse(model or rehearsal.default_model(), minutes, report)


def make_benchmark(config: MakeConfig | Mapping[str, Any], *, reporter: Reporter | None = None) -> "Benchmark":
    """Make the benchmark, with its baselines; an existing one is checked and kept.

    Args:
        config: ``out`` and what differs from the public benchmark.
        reporter: receives the progress.

    Raises:
        ConfigError: a setting cannot be used. TrainingError: the folder holds another benchmark.
        PluginError: a package of the learned baselines is missing.
    """
    from ..training.evaluation import make  # noqa: PLC0415
    from ..training.evaluation.baselines import check_learned  # noqa: PLC0415
    from ..training.evaluation.episodes import GYM, config_of  # noqa: PLC0415
    from ..training.evaluation.items import is_benchmark, open_benchmark  # noqa: PLC0415
    from .build import build  # noqa: PLC0415
    from .engines.local import available_cores  # noqa: PLC0415

    settings = config if isinstance(config, MakeConfig) else checked(MakeConfig, config)
    bars = reporter or Reporter()
    levels = _levels_of(settings)
    if is_benchmark(settings.out):
        return make.check_made(open_benchmark(settings.out), levels, settings.scale, settings.private)
    if settings.learned:
        check_learned()
    named = [name for env in levels if env.startswith(GYM) for name in config_of(env).code]  # the caller names the ids
    with allowing(named):
        return make.make_benchmark(
            settings.out,
            lambda raw, root: build(raw, root, workers=available_cores(), reporter=bars),
            levels=levels,
            share=settings.scale,
            private=settings.private,
            learned=settings.learned,
            reporter=bars,
        )


def _levels_of(settings: MakeConfig) -> dict[str, int]:
    """Return the number of levels per environment.

    Raises:
        ConfigError: an environment is unknown. PluginError: the package of one is missing.
    """
    from ..training.evaluation import make  # noqa: PLC0415
    from ..training.evaluation.episodes import GYM  # noqa: PLC0415

    foreign = [env for env in settings.env if env.startswith(GYM) and env != GYM]
    if unknown := sorted({*settings.env} - {*foreign, *make.LEVELS}):
        raise ConfigError(
            f"--env: found {unknown[0]!r}, expected one of {', '.join(make.LEVELS)}, or gym:ID with the id of a "
            "gymnasium environment"
        )
    levels = {env: count for env, count in make.LEVELS.items() if not settings.env or env in settings.env}
    levels |= {env: make.OTHER_LEVELS for env in foreign if env not in levels}
    if any(env.startswith(f"{GYM}MiniGrid-") for env in levels):
        look_for("minigrid", "gym")
    if any(env.startswith(GYM) for env in levels):
        look_for("pygame", "gym")
    return levels
