"""The figures of an update, recomputed from stored rows without the product; the rollouts of a run are a store."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pivot.core.errors import ConfigError, StoreError
from pivot.core.progress import Reporter
from pivot.datasets.store.nights import load_store
from pivot.datasets.verify.verify import verify_store
from pivot.flows.engines.local import InProcess
from pivot.flows.pipeline import finish_store
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.policy_rl import matrix
from pivot.tests.training.lake import Line, lines_of, save_grammatical, short
from pivot.training.policy_rl import loop

pytestmark = pytest.mark.train
Trained = tuple[Path, list[Sequence[Any]], list[Line]]
"""Folder of a run, the scored turns of each update, and the lines of metrics."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of two updates under the solver's hindsight, and what they trained on."""
    out = tmp_path_factory.mktemp("trained")
    scored: list[Sequence[Any]] = []
    original = loop.score_turns

    def seen(*arguments: Any) -> Any:
        scored.append(original(*arguments))
        return scored[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "score_turns", seen)
        loop.train(loop.prepare(short(save_grammatical(out / "start"), arm="oracle")), out / "run")
    return out / "run", scored, lines_of(out / "run")


def _table(run: Path, name: str, number: int) -> pl.DataFrame:
    """Return the stored rows of an update, counted from 1."""
    return pl.read_parquet(run / "rollouts" / name / "frozenlake" / f"{number - 1:05d}.parquet")


def test_advantages_come_from_the_episodes_of_one_level(trained: Trained) -> None:
    """Catch an advantage that is not that of the level's own episodes, by stored rows alone."""
    run, updates, _ = trained
    wrong: list[tuple[str, int]] = []
    for number, scored in enumerate(updates, 1):
        steps = _table(run, "steps", number)
        penalties = steps.group_by("episode_id").agg((0.1 * (~pl.col("action_valid")).sum()).alias("penalty"))
        rows = _table(run, "episodes", number).join(penalties, on="episode_id")
        returns = {row["episode_id"]: row["episode_return"] - row["penalty"] for row in rows.iter_rows(named=True)}
        level = {row["episode_id"]: row["task_id"] for row in rows.iter_rows(named=True)}
        for each in scored:
            name = each.turn.episode_id
            mine = [returns[other] for other in returns if level[other] == level[name]]
            mean = sum(mine) / len(mine)
            deviation = (sum((value - mean) ** 2 for value in mine) / len(mine)) ** 0.5
            silent = len({round(value, 8) for value in mine}) == 1
            expected = 0.0 if silent else (returns[name] - mean) / (deviation + 1e-6)
            if abs(each.turn.advantage - expected) > 1e-6:
                wrong.append((name, number))
    assert wrong == []
    assert any(each.turn.advantage for scored in updates for each in scored), "something is taught"


def test_figures_are_those_of_the_stored_episodes(trained: Trained) -> None:
    run, updates, lines = trained
    for number, (scored, line) in enumerate(zip(updates, lines, strict=True), 1):
        episodes, steps = _table(run, "episodes", number), _table(run, "steps", number)
        broken = dict(steps.group_by("episode_id").agg((~pl.col("action_valid")).sum()).iter_rows())
        groups: dict[str, list[tuple[float, bool]]] = {}
        for row in episodes.iter_rows(named=True):
            value = round(row["episode_return"] - 0.1 * broken[row["episode_id"]], 6)
            groups.setdefault(row["task_id"], []).append((value, row["success"]))
        gaps = [
            teacher - old
            for tokens in (each.tokens for each in scored)
            for teacher, old, active in zip(
                tokens.teacher.tolist(), tokens.old.tolist(), tokens.active.tolist(), strict=True
            )
            if active
        ]
        lengths = [len(each.turn.student.tokens) for each in scored]
        expected = {
            "episodes": len(episodes),
            "success": sum(episodes["success"]) / len(episodes),
            "return": sum(episodes["episode_return"]) / len(episodes),
            "steps": len(steps),
            "format_broken": sum(broken.values()) / len(steps),
            "zero_variance": sum(len({v for v, _ in each}) == 1 for each in groups.values()) / len(groups),
            "all_failed": sum(not any(won for _, won in each) for each in groups.values()) / len(groups),
            "reply_tokens": sum(lengths) / len(lengths),
            "reply_tokens_max": max(lengths),
            "opd_gap": sum(gaps) / len(gaps),
            "tokens": sum(int(each.tokens.valid.sum()) for each in scored),
        }
        for name, value in expected.items():
            assert line[name] == pytest.approx(value, rel=1e-4), name


FAMILY = "qwen3_vl"
UPDATES = 3


def _train_played(folder: Path, updates: int, *, resume: bool = False, **fields: int) -> Path:
    config = matrix.config_of("frozenlake", "oracle", str(matrix.saved(FAMILY, folder / "model")))
    config = config.model_copy(update={"updates": updates, "save_every": 1, **fields})
    with pytest.MonkeyPatch.context() as patch:
        matrix.share(patch, "frozenlake", FAMILY)
        loop.train(loop.prepare(config), folder / "run", resume=resume)
    return folder / "run" / "rollouts"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished store of a run that was stopped after two updates and resumed for a third."""
    folder = tmp_path_factory.mktemp("played")
    root = _train_played(folder, 2)
    finish_store(root, InProcess(), Reporter())
    _train_played(folder, UPDATES, resume=True)
    with pytest.raises(StoreError, match="its build did not finish"):
        load_store(root)
    finish_store(root, InProcess(), Reporter())
    return root


def test_all_of_it_is_proved_again_from_its_config(played: Path) -> None:
    report = verify_store(played, Reporter())
    assert not report.problems
    assert report.checked["episodes"] == UPDATES * 2 * matrix.SCRIPTED
    assert report.checked["labels"] > 0


def test_episodes_carry_the_update_that_they_were_played_in(played: Path) -> None:
    rows = load_store(played).episodes.select("policy", "policy_config", "run_id", "group_id").collect()
    assert set(rows["policy"]) == {"trained"}
    configs = [json.loads(each) for each in rows["policy_config"]]
    assert [each["update"] for each in configs] == sorted([0, 1, 2] * 2 * matrix.SCRIPTED)
    assert rows["run_id"].n_unique() == UPDATES
    assert rows["group_id"].n_unique() == UPDATES * 2


def test_commands_for_stores_work_on_it(played: Path, tmp_path: Path) -> None:
    assert "frozenlake" in run("stats", played)
    run("peek", played, "--png", tmp_path / "failure.png")
    assert (tmp_path / "failure.png").read_bytes().startswith(b"\x89PNG")
    run("build", "--config", played / "run.json", "--out", played)


def test_an_earlier_state_of_the_model_cannot_play(played: Path, tmp_path: Path) -> None:
    problem = error_of("build", "--config", played / "run.json", "--out", tmp_path / "new")
    assert isinstance(problem, ConfigError)
    assert "play with a checkpoint of that run instead" in str(problem)


def test_only_every_second_update_is_kept_when_asked(tmp_path: Path) -> None:
    root = _train_played(tmp_path, 2, keep_rollouts=2)
    finish_store(root, InProcess(), Reporter())
    assert not verify_store(root, Reporter()).problems
    configs = [json.loads(each) for each in load_store(root).episodes.collect()["policy_config"]]
    assert {each["update"] for each in configs} == {1}
