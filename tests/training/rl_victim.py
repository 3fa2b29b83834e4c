"""Runs of Stage II that kill themselves at a chosen moment; each run is a fork, so that PyTorch is imported once.

Arguments: model, folder, moments. Makes a run ``whole`` that is not
disturbed, and for every moment a run that is killed and then resumed.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pivot.core.storage.base import Receipt
from pivot.tests.training.lake import Line, bytes_of, lines_of, short, torch
from pivot.tests.training.victim import die, forked
from pivot.training import checkpoint as on_disk
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.engines.in_process import InProcessModel
from pivot.training.policy_rl.learner import Learner

UPDATES, SAVE_EVERY = 4, 2
QUICK = ("rollout", "step", "optimizer", "sealed")


def assert_resumed_alike(start: Path, runs: Path, moments: Sequence[str]) -> tuple[list[Line], set[str]]:
    """Kill and resume a run at each moment, and check that all leave the bytes of the whole one.

    Returns:
        The metrics of the whole run, and the names of its files.
    """
    runs.mkdir()
    command = [sys.executable, "-P", "-m", "pivot.tests.training.rl_victim", start, runs, *moments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=runs.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    lines, whole = lines_of(runs / "whole"), bytes_of(runs / "whole")
    for name in moments:
        assert lines_of(runs / name) == lines, name
        left = bytes_of(runs / name)
        assert left.keys() == whole.keys(), name
        assert [file for file in whole if left[file] != whole[file]] == [], name
    return lines, {*whole}


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
        calls += 1
        if calls == 2:
            Path(place).write_bytes(b"half a file")
            die()
        save(value, place, *arguments, **named)

    torch.save = torn


MOMENTS: dict[str, Callable[[], None]] = {
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
"""Each in the third or fourth update of four, with a checkpoint after every second, unless its name says otherwise."""


def main(model: Path, folder: Path, moments: list[str]) -> None:
    """Make all runs."""
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # pyright: ignore[reportPrivateImportUsage]

    def run(name: str, *, resume: bool = False) -> None:
        config = short(model, arm="mpr", updates=UPDATES, save_every=SAVE_EVERY, prompts=2, minibatch=6, opd=0.5)
        loop.train(loop.prepare(config), folder / name, resume=resume)

    assert forked(lambda: run("whole")) == 0
    for name in moments:

        def killed(name: str = name) -> None:
            MOMENTS[name]()
            run(name)

        assert forked(killed) == -signal.SIGKILL, name
        assert forked(lambda name=name: run(name, resume=True)) == 0, name


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
