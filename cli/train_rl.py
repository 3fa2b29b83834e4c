"""``pivot train rl``: a policy by GRPO with gated self-distillation (Stage II)."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from ..datasets.config import env_config
from ..datasets.progress import Silent
from ..models.extras import look_for
from ..training.policy_rl.config import RlConfig, make_rl_config
from ..training.policy_rl.hindsight.contexts import ARMS, DEFAULT_ARM
from ..training.wording import words_taught
from .console import err, out, show_table
from .from_config import env_settings
from .options import option

_SIZE = "How much it plays"
_HOW = "How it learns"
_ENGINE = "Memory and speed (no result but rounding)"
_WATCH = "Validation and checkpoints"


def rl(
    env: Annotated[str, typer.Argument(metavar="ENV", help="Environment, such as sokoban; see: pivot settings")],
    model: Annotated[str, option("Model to start from: a folder, or a hub id.", "--model")],
    out_dir: Annotated[Path, option("Folder of checkpoints and results; empty, or with --resume.", "--out")],
    arm: Annotated[
        str, option(f"What the Teacher is told: {', '.join(ARMS)} (default {DEFAULT_ARM}).", "--arm")
    ] = DEFAULT_ARM,
    teacher_model: Annotated[
        str | None, option("Arm sdar alone: the frozen larger model, a folder or a hub id.", "--teacher-model")
    ] = None,
    teacher_url: Annotated[
        str | None,
        option("Where that model is served (vLLM; prompt log-probabilities), if not loaded here.", "--teacher-url"),
    ] = None,
    revision: Annotated[str | None, option("Revision of the model on the hub.", "--revision")] = None,
    settings: Annotated[list[str] | None, option("Environment setting KEY=VALUE; may be given again.", "--set")] = None,
    updates: Annotated[
        int | None, option("Updates (default: the paper's 250, sokoban 350).", "--updates", panel=_SIZE, min=1)
    ] = None,
    prompts: Annotated[
        int | None, option("Levels an update (default: the paper's 16, navigation 8).", "--prompts", panel=_SIZE, min=1)
    ] = None,
    rollouts: Annotated[
        int | None, option("Episodes a level, compared with each other (default 8).", "--rollouts", panel=_SIZE, min=2)
    ] = None,
    levels: Annotated[
        int | None, option("Different levels, held-out ones included (default: the paper's).", "--levels", panel=_SIZE)
    ] = None,
    max_tokens: Annotated[
        int | None, option("Longest reply (default 512).", "--max-tokens", panel=_SIZE, min=1)
    ] = None,
    seed: Annotated[
        int | None, option("Of levels, replies and minibatches (default 0).", "--seed", panel=_SIZE)
    ] = None,
    lr: Annotated[float | None, option("Learning rate (default 1e-6).", "--lr", panel=_HOW)] = None,
    kl: Annotated[float | None, option("Weight of the KL term (default 0.01).", "--kl", panel=_HOW)] = None,
    opd: Annotated[
        float | None, option("Weight of the distillation, lambda (default 0.01).", "--lambda-opd", panel=_HOW)
    ] = None,
    beta: Annotated[float | None, option("Slope of its gate (default 5).", "--beta-opd", panel=_HOW)] = None,
    opd_objective: Annotated[
        str | None,
        option(
            "printed (the paper's, default); extensions: centred, gap, which also lower what the Teacher dislikes.",
            "--opd-objective",
            panel=_HOW,
        ),
    ] = None,
    opd_scope: Annotated[
        str | None,
        option("all tokens of a failure (default); extension: pivot, its turn alone.", "--opd-scope", panel=_HOW),
    ] = None,
    target_vocabulary: Annotated[
        str | None,
        option(
            "The Analyzer's words for failure modes: certificate, or paper (default: those that Stage I taught it).",
            "--target-vocabulary",
            panel=_HOW,
        ),
    ] = None,
    gamma: Annotated[float | None, option("Discount in advantages (default 1).", "--gamma", panel=_HOW)] = None,
    lora: Annotated[
        bool | None, option("Train adapters of the language model instead of all weights.", "--lora/--full", panel=_HOW)
    ] = None,
    lora_rank: Annotated[
        int | None, option("Rank of the adapters (default 64).", "--lora-rank", panel=_HOW, min=1)
    ] = None,
    minibatch: Annotated[
        int | None, option("Turns in an optimiser step (default 64).", "--minibatch", panel=_HOW, min=1)
    ] = None,
    micro_batch_tokens: Annotated[
        int | None, option("Tokens in memory at a time (default 16384).", "--micro-batch-tokens", panel=_ENGINE, min=1)
    ] = None,
    engine: Annotated[
        str | None,
        option("What generates: in-process (default), or vllm: servers of this run.", "--engine", panel=_ENGINE),
    ] = None,
    server_command: Annotated[
        str | None,
        option(
            "What starts a vLLM server, with your options (default: python -m vllm.entrypoints.openai.api_server).",
            "--server-command",
            panel=_ENGINE,
        ),
    ] = None,
    server_device: Annotated[
        list[str] | None,
        option("A server on this GPU (CUDA_VISIBLE_DEVICES); may be given again.", "--server-device", panel=_ENGINE),
    ] = None,
    hand_over: Annotated[
        str | None,
        option(
            "How servers get new weights: restart (default), nccl (other GPUs), ipc (the same one).",
            "--hand-over",
            panel=_ENGINE,
        ),
    ] = None,
    generate: Annotated[
        int | None, option("Replies generated together (default 32).", "--generate", panel=_ENGINE, min=1)
    ] = None,
    bf16: Annotated[
        bool | None, option("Compute in bfloat16 (default: on a GPU).", "--bf16/--fp32", panel=_ENGINE)
    ] = None,
    gradient_checkpointing: Annotated[
        bool | None,
        option(
            "Compute activations again instead of keeping them (default: no).",
            "--gradient-checkpointing/--no-gradient-checkpointing",
            panel=_ENGINE,
        ),
    ] = None,
    shard: Annotated[
        bool,
        option(
            "Spread weights, gradients and AdamW's state over torchrun's processes (FSDP2) instead of all in each.",
            "--shard",
            panel=_ENGINE,
        ),
    ] = False,
    validate_every: Annotated[
        int | None, option("Updates between validations (default 25).", "--validate-every", panel=_WATCH, min=0)
    ] = None,
    validation_episodes: Annotated[
        int | None,
        option("Episodes of a validation (default 128; 0: none).", "--validation-episodes", panel=_WATCH, min=0),
    ] = None,
    save_every: Annotated[
        int | None, option("Updates between checkpoints (default 25).", "--save-every", panel=_WATCH, min=1)
    ] = None,
    resume: Annotated[bool, option("Go on from the last whole checkpoint of --out.", "--resume")] = False,
) -> None:
    """Train a policy on an environment: GRPO, and a Teacher that re-reads every failure with hindsight.

    Each update plays levels, lets the Analyzer (the same model) name where failures were lost, scores their tokens once
    more under a prompt that says so, and steps. Which hindsight the prompt holds is the arm:

    vanilla_grpo and sft_grpo have none, p the panel, m the mode, mp panel, mode and step (the paper's default), mpr
    guidance, too; oracle asks the solver instead of the Analyzer, mp_random_r shows a random step, sdar has a frozen
    larger Teacher, empty and analyzer_only are controls.

    A killed run goes on with --resume, with the very updates it would have made.

    [bold]Examples[/]

    pivot train rl sokoban --model runs/analyzer/final --arm mp --out runs/sokoban-mp

    pivot train rl frozenlake --model Qwen/Qwen2.5-VL-3B-Instruct --arm vanilla_grpo --out runs/lake

    torchrun --nproc-per-node 8 -m pivot train rl sokoban --model runs/analyzer/final --out runs/sokoban-mp --shard
    """
    given: dict[str, Any] = {
        "env": env,
        "settings": env_settings(env, settings or ()),
        "model": model,
        "revision": revision,
        "arm": arm,
        "teacher_model": teacher_model,
        "teacher_url": teacher_url,
        "engine": engine,
        "server_command": server_command,
        "server_devices": tuple(server_device) if server_device else None,
        "updates": updates,
        "prompts": prompts,
        "rollouts": rollouts,
        "levels": levels,
        "max_tokens": max_tokens,
        "seed": seed,
        "lr": lr,
        "kl": kl,
        "opd": opd,
        "beta": beta,
        "opd_objective": opd_objective,
        "opd_scope": opd_scope,
        "target_vocabulary": target_vocabulary or words_taught(model),
        "gamma": gamma,
        "lora": lora,
        "lora_rank": lora_rank,
        "minibatch": minibatch,
        "micro_batch_tokens": micro_batch_tokens,
        "hand_over": hand_over,
        "generate": generate,
        "precision": None if bf16 is None else "bf16" if bf16 else "fp32",
        "gradient_checkpointing": gradient_checkpointing,
        "shard": shard,
        "validate_every": validate_every,
        "validation_episodes": validation_episodes,
        "save_every": save_every,
    }
    config = make_rl_config({name: value for name, value in given.items() if value is not None})
    env_config(config.env, config.settings)  # a mistake there is told before anything is loaded
    for package in ("torch", "transformers", "accelerate", "matplotlib"):
        look_for(package, "train")
    _train(config, out_dir, resume=resume)


def _train(config: RlConfig, out_dir: Path, *, resume: bool) -> None:
    from ..flows.engines.local import InProcess, execute_with  # noqa: PLC0415
    from ..flows.pipeline import finish_store  # noqa: PLC0415
    from ..training.policy_rl import loop  # noqa: PLC0415 - PyTorch and its friends take seconds
    from ..training.policy_rl.rollout_store import FOLDER  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the run ends its servers, as after Ctrl-C
    prepared = loop.prepare(config)
    speaks = prepared.ranks.is_main
    if speaks:
        counts = f"{len(prepared.levels.train)} levels, {len(prepared.levels.validation)} held out"
        start = ARMS[config.arm].starts_from
        err.print(f"{config.env}, arm {config.arm} (meant to start from {start}): {counts}", soft_wrap=True)
    result = loop.train(prepared, out_dir, resume=resume, report=_tell if speaks else lambda _: None)
    if not speaks:
        return
    done = "already complete" if result.already_complete else f"{result.updates} updates"
    out.print(f"{out_dir}: {done}", soft_wrap=True)
    rows = [[name, result.last[name]] for name in ("success", "return", "zero_variance", "kl") if name in result.last]
    if "validation" in result.last:
        held = result.last["validation"]["success"]
        rows.append(["success, held-out levels", held["value"]])
    show_table("Last update", ["figure", "value"], rows)
    out.print(f"the policy is in {out_dir / 'final'}; curves: {out_dir / 'curves.png'}", soft_wrap=True)
    out.print(f"measure it: pivot evaluate policy {out_dir}", soft_wrap=True)
    if 0 < config.keep_rollouts <= config.updates:
        rollouts = out_dir / FOLDER
        err.print("labelling what was played …", soft_wrap=True)
        finish_store(rollouts, execute_with(InProcess()), Silent())
        out.print(f"look at what it played: pivot stats {rollouts}; pivot peek {rollouts}", soft_wrap=True)


def _tell(line: str) -> None:
    err.print(line, soft_wrap=True, markup=False)
