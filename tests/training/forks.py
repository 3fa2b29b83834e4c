"""Processes forked from one that has already imported PyTorch, TRL and the product, and their work.

Importing takes seven seconds. The work: one update of Stage I, alone or as one of two processes; runs that kill
themselves at a chosen moment and are resumed; runs of Stage II by two processes; any command.
"""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from pivot import cli
from pivot.core.storage.base import Receipt
from pivot.models.extras import need
from pivot.tests.training.lake import short, torch
from pivot.tests.training.small import config_of, uneven
from pivot.training import checkpoint as on_disk
from pivot.training.analyzer_sft import run as sft
from pivot.training.analyzer_sft import trainer
from pivot.training.analyzer_sft.trainer import load_model, make_plan, make_trainer
from pivot.training.encode import Encoder
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.engines.in_process import InProcessModel
from pivot.training.policy_rl.learner import Learner

need("accelerate", "train")  # once for all forks
transformers: Any = need("transformers", "train")
assert transformers.Qwen2_5_VLForConditionalGeneration
assert transformers.Qwen3VLForConditionalGeneration

PATIENCE = 500.0
"""Seconds for a process, because one whose partner is stuck would wait forever."""


@cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pivot.tests.training.forks"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSAFEPATH", "1")  # the current folder may hide packages
        forkserver.ensure_running()
    return context


def _enter(work: Callable[..., object], words: Sequence[Any], folder: Path, log: Path, environment: Any) -> None:
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), sys.stderr.fileno())
    os.environ.update(environment)
    os.chdir(folder)
    work(*words)


def complete(folder: Path, logs: Path, work: Callable[..., object], *words: Any, ranks: int = 1) -> list[str]:
    """Run a function in ``ranks`` processes that train together; return what each wrote to its error stream.

    The status of each process, negative for a signal, is the first word.
    """
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": str(ranks)}
    shared |= {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    files = [logs / f"{rank}.log" for rank in range(ranks)]
    processes: list[Any] = []
    with ExitStack() as stack:
        for rank, file in enumerate(files):
            own = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}
            process = _context().Process(target=_enter, args=(work, words, folder, file, own))
            process.start()
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            process.join(PATIENCE)
        return [f"{each.exitcode} {file.read_text('utf-8')}" for each, file in zip(processes, files, strict=True)]


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens."""
    with ExitStack() as open_together:
        probes = [open_together.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


# One update of four records


class Keep(transformers.TrainerCallback):
    """A callback that keeps the gradient given to the optimizer."""

    def __init__(self) -> None:
        self.model: Any = None
        self.gradient: dict[str, Any] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Copy the gradient."""
        named = self.model.named_parameters()
        self.gradient = {name: each.grad.clone() for name, each in named if each.grad is not None}


def one_update(dataset: Path, folder: Path, out: Path, micro_batch: int, processes: int, dtype: Any) -> dict[str, Any]:
    """Return the loss and the gradient of one update."""
    config = config_of(dataset, folder, epochs=1, micro_batch=micro_batch, max_grad_norm=1e9)
    model, processor = load_model(config)
    model.to(dtype)
    data = uneven(dataset)
    trainer = make_trainer(config, make_plan(config, 4, processes), data, model, Encoder(processor), out)
    keep = Keep()
    keep.model = model
    trainer.add_callback(keep)
    trainer.train()
    (loss,) = (entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
    return {"loss": loss, "gradient": keep.gradient, "main": trainer.is_world_process_zero()}


def save_update(dataset: Path, folder: Path, out: Path) -> None:
    """Make the update as one of two processes; the first saves it."""
    torch.set_num_threads(1)
    made = one_update(dataset, folder, out, 2, 2, torch.float64)
    if made["main"]:
        torch.save(made, out / "made.pt")


# Runs that kill themselves


EPOCHS, UPDATES, SAVE_EVERY = 2, 4, 2


def die() -> None:
    """End as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(owner: Any, name: str, number: int, *, after: bool = False) -> Callable[[], None]:
    """Die at the ``number``-th call of a function, before it does anything or when it is done."""

    def arm() -> None:
        original, calls = getattr(owner, name), 0

        def until_then(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number and not after:
                die()
            result = original(*arguments, **named)
            if calls == number:
                die()
            return result

        setattr(owner, name, until_then)

    return arm


def half_a_line(number: int) -> Callable[[], None]:
    """Die when half of the ``number``-th text that is appended to a file is written."""

    def arm() -> None:
        append, calls = loop.append, 0

        def torn(storage: Any, name: str, text: str) -> None:
            nonlocal calls
            calls += 1
            append(storage, name, text[: len(text) // 2] if calls == number else text)
            if calls == number:
                die()

        loop.append = torn  # pyright: ignore[reportPrivateImportUsage]

    return arm


def half_an_optimizer() -> None:
    """Die when the weights of the second checkpoint are written, and half of the optimiser's state."""
    save, calls = torch.save, 0

    def torn(value: Any, place: Any, *arguments: Any, **named: Any) -> None:
        nonlocal calls
        calls += "optimizer" in str(place)
        if calls == 2:
            Path(place).write_bytes(b"half a file")
            die()
        save(value, place, *arguments, **named)

    torch.save = torn


SFT_MOMENTS: dict[str, Callable[[], None]] = {
    "in_a_step": at_call(trainer.AnalyzerTrainer, "compute_loss", 5, after=True),
    "in_a_checkpoint": half_an_optimizer,
    "before_the_seal": at_call(trainer.RunLog, "on_save", 1),
    "between_epochs": at_call(trainer.RunLog, "on_save", 1, after=True),
}
RL_MOMENTS: dict[str, Callable[[], None]] = {
    "first_rollout": at_call(InProcessModel, "answer_all", 1),
    "rollout": at_call(InProcessModel, "answer_all", 8),
    "analyze": at_call(loop, "analyze", 3),
    "score": at_call(loop, "score_turns", 4),
    "step": at_call(torch.optim.AdamW, "step", 6),
    "learned": at_call(Learner, "update", 3, after=True),
    "receipt": at_call(Receipt, "write", 3),
    "line": half_a_line(6),
    "optimizer": half_an_optimizer,
    "seal": at_call(on_disk, "seal", 2),
    "sealed": at_call(on_disk, "seal", 1, after=True),
    "final": at_call(loop, "policy_card", 1),
}
"""Moments of kills, in update 3 or 4 of four unless the name says otherwise; checkpoints are after every second."""


def forked(work: Callable[[], object]) -> int:
    """Run something in a fork and return its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def make_runs(run: Callable[..., object], moments: Mapping[str, Callable[[], None]]) -> None:
    """Make an undisturbed run, and one per moment that is killed and resumed."""
    assert forked(lambda: run("whole")) == 0
    for name, arm in moments.items():

        def killed(name: str = name, arm: Callable[[], None] = arm) -> None:
            arm()
            run(name)

        assert forked(killed) == -signal.SIGKILL, name
        assert forked(lambda name=name: run(name, resume=True)) == 0, name


def make_killed(stage: str, *words: str | Path) -> None:
    """Make all runs of a stage: ``sft`` with dataset, model, folder, or ``rl`` with model, folder, moments.

    A run ``whole`` is not disturbed; for every moment there is a run that is killed and then resumed.
    """
    torch.set_num_threads(1)
    if stage == "sft":
        trainer.draw_losses = sft.draw_losses = lambda *_: None  # pyright: ignore[reportPrivateImportUsage]
        dataset, model, folder = map(Path, words)

        def taught(name: str, *, resume: bool = False) -> None:
            # An epoch has three updates; a checkpoint within it exists only if requested.
            every = 3 if name == "between_epochs" else SAVE_EVERY
            config = config_of(dataset, model, epochs=EPOCHS, save_every=every)
            sft.train(sft.prepare(config), folder / name, resume=resume)

        make_runs(taught, SFT_MOMENTS)
        return
    loop.draw_curves = lambda *_: None  # pyright: ignore[reportPrivateImportUsage]
    start, folder = map(Path, words[:2])

    def played(name: str, *, resume: bool = False) -> None:
        config = short(start, arm="mpr", updates=UPDATES, save_every=SAVE_EVERY, prompts=2, minibatch=6, opd=0.5)
        loop.train(loop.prepare(config), folder / name, resume=resume)

    make_runs(played, {str(name): RL_MOMENTS[str(name)] for name in words[2:]})


# Runs of two processes


ALIKE = {"arm": "oracle", "updates": 2, "lr": 1e-5, "prompts": 2, "minibatch": 5, "micro_batch_tokens": 70}
"""Settings of the runs that are to give the same parameters: three micro-batches a minibatch, of two turns at most."""
COMMAND = (
    "train rl frozenlake --set size=2 --set horizon=2 --set cell=16 --model other --arm mp --levels 12 "
    "--prompts 2 --rollouts 4 --max-tokens 8 --minibatch 6 --micro-batch-tokens 100 --lr 1e-3 --updates 2 "
    "--save-every 1 --validation-episodes 4 --validate-every 1 --generate 16"
)


def alike() -> None:
    """Make the run that is to give the parameters of one process."""
    loop.train(loop.prepare(short("start", **ALIKE)), Path("two"))


def pivot(*words: str | Path) -> None:
    """Run a command."""
    sys.argv = ["pivot", *map(str, words)]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise


def command(name: str, *more: str) -> None:
    """Run ``pivot train rl``; the Analyzer's replies are short."""
    pivot(*COMMAND.split(), "--analyzer-tokens", "4", "--out", name, *more)


def killed() -> None:
    """Let the last process die in the second update."""
    if os.environ["RANK"] == "1":
        at_call(torch.nn.utils, "clip_grad_norm_", 4)()
    command("killed")


def make_shared(ports: list[str]) -> None:
    """Make runs of Stage II in a folder with two models, ``start`` and ``other`` (of the other family).

    Each has a free port. Left there are the runs, and how they ended in each process: ``RANK.json``.
    """
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # pyright: ignore[reportPrivateImportUsage]
    runs: dict[str, Callable[[], None]] = {
        "two": alike,
        "undisturbed": lambda: command("undisturbed"),
        "killed": killed,
        "resumed": lambda: command("killed", "--resume"),
    }
    statuses: dict[str, int] = {}
    for (name, run), port in zip(runs.items(), ports, strict=True):
        os.environ["MASTER_PORT"] = port

        def report_one(run: Callable[[], None] = run) -> None:
            try:
                run()
            except BaseException:
                traceback.print_exc()
                raise

        statuses[name] = forked(report_one)
        if name == "killed" and os.environ["RANK"] == "0":
            shutil.copytree("killed", "alone")
    Path(f"{os.environ['RANK']}.json").write_text(json.dumps(statuses), encoding="utf-8")
