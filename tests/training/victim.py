"""A training run that kills itself at a chosen moment; each run is a fork, so that PyTorch is imported once.

Arguments: dataset, model, folder. Runs `whole` undisturbed, then one killed run for every moment, each gone on with.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pivot.models.extras import need
from pivot.tests.training.small import config_of
from pivot.training.analyzer_sft import run as sft
from pivot.training.analyzer_sft import trainer as training
from pivot.training.analyzer_sft.run import prepare, train

torch: Any = need("torch", "train")

EPOCHS, SAVE_EVERY = 2, 2


def die() -> None:
    """End as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_step(step: int) -> None:
    """Die between the forward and the backward pass of an update."""
    compute = training.AnalyzerTrainer.compute_loss

    def computed(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = compute(self, *args, **kwargs)
        if self.state.global_step == step:
            die()
        return loss

    training.AnalyzerTrainer.compute_loss = computed


def in_a_checkpoint(step: int) -> None:
    """Die when the weights of a checkpoint are written and the optimizer's state is half written."""
    save = torch.save

    def saved(value: Any, place: Any, *args: Any, **kwargs: Any) -> None:
        if f"checkpoint-{step}/optimizer" in str(place):
            Path(place).write_bytes(b"half a file")
            die()
        save(value, place, *args, **kwargs)

    torch.save = saved


def before_the_seal(step: int) -> None:
    """Die when a checkpoint is whole but does not count yet."""
    on_save = training.RunLog.on_save

    def saved(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == step:
            die()
        on_save(self, args, state, control, **kwargs)

    training.RunLog.on_save = saved


def between_epochs(step: int) -> None:
    """Die right after the checkpoint of an epoch."""
    on_save = training.RunLog.on_save

    def saved(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        on_save(self, args, state, control, **kwargs)
        if state.global_step == step:
            die()

    training.RunLog.on_save = saved


MOMENTS: dict[str, tuple[Callable[[int], None], int]] = {
    "in_a_step": (in_a_step, 4),
    "in_a_checkpoint": (in_a_checkpoint, 4),
    "before_the_seal": (before_the_seal, 2),
    "between_epochs": (between_epochs, 3),
}


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


def main(dataset: Path, model: Path, folder: Path) -> None:
    """Make all runs."""
    torch.set_num_threads(1)
    training.draw_losses = sft.draw_losses = lambda *_: None  # pyright: ignore[reportPrivateImportUsage]

    def run(name: str, *, resume: bool = False) -> None:
        # An epoch has three updates: between the two lies a checkpoint only when it is asked for.
        every = 3 if name == "between_epochs" else SAVE_EVERY
        config = config_of(dataset, model, epochs=EPOCHS, save_every=every)
        train(prepare(config), folder / name, resume=resume)

    assert forked(lambda: run("whole")) == 0
    for name, (prepare_death, step) in MOMENTS.items():

        def killed(name: str = name, arm: Callable[[int], None] = prepare_death, step: int = step) -> None:
            arm(step)
            run(name)

        assert forked(killed) == -signal.SIGKILL, name
        assert forked(lambda name=name: run(name, resume=True)) == 0, name


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
