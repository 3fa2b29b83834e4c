"""A run of either stage that is killed anywhere and resumed leaves the files of an undisturbed run."""

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs TRL; run: make test WHAT=train")

from pivot.core.errors import TrainingError
from pivot.core.plugins import Settings
from pivot.core.storage import LocalStorage
from pivot.tests.training import forks, victim
from pivot.tests.training.lake import bytes_of, lines_of, save_grammatical
from pivot.tests.training.small import config_of, losses
from pivot.tests.training.victim import RL_MOMENTS, SFT_MOMENTS
from pivot.training.analyzer_sft.run import prepare, train
from pivot.training.checkpoint import (
    METRICS,
    RUN,
    Checkpoint,
    check_run,
    clear_torn,
    cut_metrics,
    last_checkpoint,
    read_metrics,
    seal,
)

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("processes")]
QUICK = ("rollout", "step", "optimizer", "sealed")


def make_runs(stage: str, folder: Path, *words: str | Path) -> None:
    """Let a process make the runs of a stage, which kill themselves."""
    (end,) = forks.complete(folder, folder, victim.main, stage, *words)
    assert end.startswith("0 "), end[-3000:]


@pytest.fixture(scope="module")
def runs(small_store: Path, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folders of an undisturbed run of Stage I and of killed runs."""
    folder = tmp_path_factory.mktemp("runs")
    make_runs("sft", folder, small_store / "dataset", small_model, folder)
    return folder


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(tuple(name for name in RL_MOMENTS if name not in QUICK), id="rest", marks=pytest.mark.long),
    ],
)
def test_a_killed_run_of_stage_two_leaves_the_bytes_of_a_whole_one(moments: tuple[str, ...], tmp_path: Path) -> None:
    make_runs("rl", tmp_path, save_grammatical(tmp_path / "start"), tmp_path, *moments)
    lines, whole = lines_of(tmp_path / "whole"), bytes_of(tmp_path / "whole")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert any(name.startswith("rollouts/steps/") for name in whole)
    assert lines[-1]["grad_norm"] > 0
    for name in moments:
        assert lines_of(tmp_path / name) == lines, name
        left = bytes_of(tmp_path / name)
        assert left.keys() == whole.keys(), name
        assert [file for file in whole if left[file] != whole[file]] == [], name


@pytest.mark.parametrize("moment", SFT_MOMENTS)
def test_the_losses_after_a_kill_are_those_of_an_undisturbed_run(moment: str, runs: Path) -> None:
    whole, killed = losses(runs / "whole"), losses(runs / moment)
    assert len(whole) == 6
    assert killed == whole
    weights = "final/model.safetensors"
    assert (runs / moment / weights).read_bytes() == (runs / "whole" / weights).read_bytes()


def test_a_complete_run_is_left_as_it_is(runs: Path, small_store: Path, small_model: Path) -> None:
    config = config_of(small_store / "dataset", small_model, epochs=2, save_every=2)
    before = (runs / "whole" / "metrics.jsonl").read_bytes()
    assert train(prepare(config), runs / "whole", resume=True).already_complete
    assert (runs / "whole" / "metrics.jsonl").read_bytes() == before


def test_a_run_is_gone_on_with_under_its_own_settings_only(runs: Path, small_store: Path, small_model: Path) -> None:
    other = prepare(config_of(small_store / "dataset", small_model, epochs=2, save_every=2, lr=2e-3))
    with pytest.raises(TrainingError, match=r"was started with lr 0\.001, found 0\.002; set the same value"):
        train(other, runs / "whole", resume=True)
    with pytest.raises(TrainingError, match="expected an empty folder; resume that run with --resume"):
        train(other, runs / "whole")


def test_only_a_sealed_checkpoint_with_all_its_bytes_counts(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for step in (2, 4, 6, 8):
        storage.write_bytes(f"{Checkpoint(step).folder}/model.safetensors", b"weights")
        if step < 8:
            seal(storage, step)
    storage.write_bytes(f"{Checkpoint(6).folder}/model.safetensors", b"weigh")  # shorter than its seal says
    last = last_checkpoint(storage)
    assert last == Checkpoint(4)
    clear_torn(storage, last)
    assert {name.split("/")[1] for name in storage.listing("checkpoints")} == {
        *("checkpoint-2", "checkpoint-4", "2.json", "4.json")
    }


def test_a_repeated_run_keeps_no_line_and_no_other_model(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.write_bytes(METRICS, b'{"step": 0}\n{"step": 1}\n')
    cut_metrics(storage, 0)
    assert read_metrics(storage) == []
    begun = {"config": {}, "dataset_digest": "d", "model_revision": "old"}
    storage.write_json(RUN, begun)
    check_run(storage, begun, Settings(), (), resume=True)
    for name in ("dataset_digest", "model_revision"):
        with pytest.raises(TrainingError, match=f"a different {name[:5].strip('_')}"):
            check_run(storage, begun | {name: "new"}, Settings(), (), resume=True)
