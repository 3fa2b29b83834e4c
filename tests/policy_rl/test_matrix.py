"""One whole update of every arm on every environment, by both model families; only levels and rollouts are shared."""

from copy import deepcopy
from dataclasses import replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from pivot.core.errors import TrainingError
from pivot.datasets.store.config import solver_type
from pivot.labeling.target import build_target
from pivot.solvers.base import ExactSolver
from pivot.tests.policy_rl import matrix
from pivot.tests.training.lake import FAMILIES, lines_of, torch, weights_in
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.engines.in_process import InProcessModel
from pivot.training.policy_rl.hindsight import analysis as hindsight
from pivot.training.policy_rl.hindsight.analysis import make_samples, write_skills
from pivot.training.policy_rl.hindsight.contexts import ARMS

pytestmark = pytest.mark.train


@cache
def _folder(family: str, parent: Path) -> Path:
    return matrix.saved(family, parent / family)


PAIRS = [
    pytest.param(env, family, marks=[] if (row + column) % 2 else pytest.mark.long)
    for row, env in enumerate(sorted(matrix.SETTINGS))
    for column, family in enumerate(FAMILIES)
]
"""Without ``long`` every environment has one family, and each family at least two environments."""


@pytest.mark.xdist_group("matrix")
@pytest.mark.parametrize(("env", "family"), PAIRS)
def test_every_arm_makes_an_update(
    env: str, family: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch an arm that teaches nothing in an environment, or the same as another arm."""
    folder = _folder(family, tmp_path_factory.getbasetemp())
    played: list[Any] = []
    batches: dict[str, Any] = {}

    def shared(levels: Any, tasks: Any, policy: Any, *_: Any) -> Any:
        del levels, tasks
        if not played:
            played.extend(matrix.rollouts_of(env, family, policy))
        return deepcopy(played)

    def kept(*arguments: Any) -> Any:
        batches[arm] = make_samples(*arguments)
        return batches[arm]

    monkeypatch.setattr(InProcessModel, "answer_all", _with_one_unreadable(InProcessModel.answer_all, env))
    monkeypatch.setattr(hindsight, "write_skills", _with_words(write_skills))
    monkeypatch.setattr(loop, "load_weights", lambda *_: deepcopy(matrix.player(family)))
    monkeypatch.setattr(loop, "plan_levels", lambda _: matrix.levels_of(env))
    monkeypatch.setattr(loop, "roll_out", shared)
    monkeypatch.setattr(loop, "make_samples", kept)
    before = weights_in(folder)
    episodes = matrix.contested(env).episodes
    won = sum(not episode.failed for episode in episodes)
    gaps: dict[str, float] = {}
    for arm, chosen in ARMS.items():
        if chosen.corrects is not None and not issubclass(solver_type(env), ExactSolver):
            with pytest.raises(TrainingError, match="proves no shortest plans"):
                loop.prepare(matrix.config_of(env, arm, str(folder)))
            continue
        out = tmp_path / arm
        loop.train(loop.prepare(matrix.config_of(env, arm, str(folder))), out)
        (line,) = lines_of(out)
        _check(line, chosen, won)
        assert line["success"] == pytest.approx(won / (matrix.OWN + len(episodes)))
        after = weights_in(out / "final")
        moved = [name for name in before if not torch.equal(before[name], after[name])]
        assert {"visual" in name for name in moved} == {True, False}, f"{arm}: both halves of the model learn"
        if chosen.distils:
            gaps[arm] = line["opd_gap"]
    assert gaps.pop("empty") == 0
    assert 0 not in gaps.values()
    assert len(set(gaps.values())) == len(gaps), f"two arms tell the Teacher the same: {gaps}"
    failed = {episode.episode_id for record in played for episode in record.episodes if episode.failed}
    for arm, batch in batches.items():
        taught = {turn.episode_id for turn in batch.turns if turn.teacher is not None}
        every = {turn.episode_id for turn in batch.turns}
        assert taught == (set() if not ARMS[arm].distils else every if arm == "sdar" else failed), arm
        assert len(batch.turns) == matrix.turns(played)


def _with_one_unreadable(answer_all: Any, env: str) -> Any:
    """Let the model answer, and replace all answers but the first by valid guidance."""
    modes = matrix.levels_of(env).env.profile.failure_modes

    def answered(model: Any, requests: Any) -> Any:
        first, *others = answer_all(model, requests)
        text = build_target(0, modes[-1], "Look where the box goes before pushing.")
        return [first, *(replace(each, text=text, finish_reason="stop") for each in others)]

    return answered


def _with_words(write: Any) -> Any:
    """Let the frozen model write skills, and replace its random texts."""
    return lambda *arguments, **named: dict.fromkeys(write(*arguments, **named), "Look before you push.")


def _check(line: dict[str, Any], arm: Any, won: int) -> None:
    """Check that a line of metrics has the figures of this arm."""
    assert line["episodes"] == matrix.OWN + matrix.SCRIPTED
    assert line["errors"] == line["placeholders"] == 0
    assert line["zero_variance"] == 0.5
    assert line["optimizer_steps"] >= 1
    assert line["generator_difference"] < 1e-4
    assert line["grad_norm"] > 0
    assert all(isfinite(value) for value in line.values() if isinstance(value, float)), line
    is_analyzed = arm.analyzer in ("model", "solver")
    assert (line["analyzer_step_accuracy"] is not None) is is_analyzed
    if arm.analyzer == "model":
        assert 0 < line["analyzer_unreadable"] < 1
    if arm.analyzer == "solver":
        assert line["analyzer_step_accuracy"] == line["analyzer_mode_accuracy"] == 1.0
    if arm.name == "sdar":
        assert line["opd_active"] == 1.0, "sdar distils every episode, failed or not"
    elif arm.distils:
        assert (0 < line["opd_active"] < 1) if won else line["opd_active"] == 1.0
    else:
        assert line["opd_active"] == 0
        assert line["opd_gap"] is None
        assert line["loss_opd"] == 0
