"""Errors and unusual cases in an update of Stage II: each is defined, typed and counted."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pivot.core.errors import PivotError, SimulatorError, StoreError, TrainingError
from pivot.core.storage import LocalStorage
from pivot.datasets.store.config import env_config
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.rollouts.base import TaskRollouts
from pivot.tests.policy_rl import matrix
from pivot.tests.training.lake import lines_of, torch, weights_in
from pivot.training import checkpoint as on_disk
from pivot.training.policy_rl import journal, loop

SafetensorError: Any = pytest.importorskip("safetensors").SafetensorError
modeling_utils: Any = pytest.importorskip("transformers.modeling_utils")

pytestmark = pytest.mark.train
FAMILY = "qwen2_5_vl"


class Runs:
    """Runs of one update in a folder, with the model and levels of other tests."""

    def __init__(self, patch: pytest.MonkeyPatch, player: Path, out: Path) -> None:
        matrix.share(patch, "frozenlake", FAMILY)
        self.patch, self.player, self.out = patch, player, out

    def train(self, arm: str = "oracle", *, resume: bool = False, **fields: Any) -> dict[str, Any]:
        """Make one update; return its line."""
        config = matrix.config_of("frozenlake", arm, str(self.player)).model_copy(update=fields)
        loop.train(loop.prepare(config), self.out, resume=resume)
        (line,) = lines_of(self.out)
        return line

    def update(self, rollouts: Sequence[TaskRollouts], arm: str = "oracle") -> tuple[dict[str, Any], bool]:
        """Make one update from given rollouts; return its line, and whether any weight moved."""
        self.patch.setattr(loop, "roll_out", lambda *_: deepcopy(list(rollouts)))
        line, before, after = self.train(arm), weights_in(self.player), weights_in(self.out / "final")
        return line, any(not torch.equal(before[name], after[name]) for name in before)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random player on disk."""
    return matrix.saved(FAMILY, tmp_path_factory.mktemp("player"))


@pytest.fixture
def runs(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs in a new folder."""
    return Runs(monkeypatch, saved, tmp_path / "run")


def _only(keep: Callable[[Any], bool]) -> list[TaskRollouts]:
    """Return the stand-in's episodes that match, twice each, so that no group has one episode."""
    record = matrix.tokenized("frozenlake", FAMILY)
    chosen = [each for each in record.episodes if keep(each)]
    assert chosen
    again = [replace(each, episode_id=f"{each.episode_id}-again") for each in chosen]
    for each in again:
        each.steps = [replace(step, episode_id=each.episode_id) for step in each.steps]
    return [replace(record, episodes=[*chosen, *again])]


@pytest.mark.parametrize("arm", ["oracle", "mp"])
def test_without_a_failure_there_is_nothing_to_distil_and_nothing_moves(arm: str, runs: Runs) -> None:
    line, moved = runs.update(_only(lambda each: not each.failed), arm)
    assert line["success"] == line["zero_variance"] == 1.0
    assert line["all_failed"] == line["opd_active"] == line["grad_norm"] == 0
    for name in ("opd_gap", "opd_gate", "gap_detects_pivot", "analyzer_step_accuracy", "analyzer_unreadable"):
        assert line[name] is None, name
    assert not moved


@pytest.mark.parametrize(("arm", "moves"), [("oracle", True), ("vanilla_grpo", False)])
def test_where_all_fail_alike_only_the_distillation_teaches(arm: str, moves: bool, runs: Runs) -> None:
    line, moved = runs.update(_only(lambda each: each.failed), arm)
    assert line["all_failed"] == line["zero_variance"] == 1.0
    assert line["success"] == line["loss_grpo"] == 0
    assert line["opd_active"] == float(moves)
    assert moved is moves


@pytest.mark.parametrize("arm", ["mpr", "mp_random_r"])
def test_episodes_of_one_step_have_no_other_step_and_are_counted(arm: str, runs: Runs) -> None:
    settings = {"size": 3, "horizon": 1}
    short = replace(matrix.levels_of("frozenlake"), config=env_config("frozenlake", settings))
    runs.patch.setattr(loop, "plan_levels", lambda _: short)
    line = runs.train(arm, settings=settings)
    assert line["steps"] == line["episodes"] == 4
    assert line["no_other_step"] == (4 if arm == "mp_random_r" else 0)
    assert line["opd_gap"] != 0


# Full disks


@pytest.mark.parametrize("file", [on_disk.METRICS, journal.SAMPLES])
def test_a_full_disk_stops_the_run_with_what_to_do(file: str, runs: Runs) -> None:
    append = journal.append

    def onto_a_full_disk(storage: Any, name: str, text: str) -> None:
        if name == file:
            (runs.out / name).symlink_to("/dev/full")
        append(storage, name, text)

    with runs.patch.context() as full:
        full.setattr(loop, "append", onto_a_full_disk)
        full.setattr(LocalStorage, "local_path", lambda storage, name="": storage.root / name)  # through the link
        with pytest.raises(TrainingError, match=rf"cannot write .*{file}: No space left .* with --resume"):
            runs.update(_only(lambda _: True))
    (runs.out / file).unlink()
    assert runs.train(resume=True)["step"] == 1


@pytest.mark.parametrize("what", ["rollouts", "weights", "final", "checkpoint"])
def test_a_full_disk_is_reported_for_shards_and_checkpoints_too(what: str, runs: Runs) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    def no_weights(_: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if what == "weights" or on_disk.STAGED_FINAL in str(file):
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        save(_, file, *args, **kwargs)

    save = modeling_utils.safe_save_file
    if what == "checkpoint":
        runs.patch.setattr(torch, "save", full)
    elif what in ("weights", "final"):
        runs.patch.setattr(modeling_utils, "safe_save_file", no_weights)
    else:
        runs.patch.setattr("os.fsync", full)
    with pytest.raises(PivotError, match="No space left") as raised:
        runs.update(_only(lambda _: True))
    assert isinstance(raised.value, StoreError if what == "rollouts" else TrainingError)
    assert (on_disk.last_checkpoint(on_disk.open_storage(runs.out)) is None) is (what != "final")


# Simulators


class Brittle(FrozenLakeEnv):
    """A lake whose steps sometimes raise."""

    blocks = True
    deaths: ClassVar[Iterator[bool]] = iter(())

    def step(self, action: Any) -> Any:
        """Move, or die."""
        if next(Brittle.deaths, False):
            raise SimulatorError("the simulator died")
        return super().step(action)


@pytest.mark.parametrize(("deaths", "lost"), [(8, 0), (9, 1), (1000, 4)])
def test_an_episode_whose_simulator_dies_three_times_is_lost(deaths: int, lost: int, runs: Runs) -> None:
    levels = replace(matrix.levels_of("frozenlake"), env=Brittle)
    runs.patch.setattr(Brittle, "deaths", iter([True] * deaths))
    runs.patch.setattr(loop, "plan_levels", lambda _: levels)
    if lost == 4:
        with pytest.raises(TrainingError, match="the simulator died"):
            runs.train()
        return
    line = runs.train()
    assert (line["episodes"], line["errors"]) == (4 - lost, lost), "every episode was played twice again"
