"""Training runs that kill themselves at a chosen moment; each run is a fork, so that PyTorch is imported once.

Arguments: ``sft``, dataset, model, folder; or ``rl``, model, folder, moments. A run ``whole`` is not disturbed; for
every moment there is a run that is killed and then resumed.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pivot.core.storage.base import Receipt
from pivot.tests.training.lake import short, torch
from pivot.tests.training.small import config_of
from pivot.training import checkpoint as on_disk
from pivot.training.analyzer_sft import run as sft
from pivot.training.analyzer_sft import trainer
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.engines.in_process import InProcessModel
from pivot.training.policy_rl.learner import Learner

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


def main(stage: str, *words: str | Path) -> None:
    """Make all runs of a stage."""
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
