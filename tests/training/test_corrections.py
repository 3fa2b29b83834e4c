"""Arms that learn from the solver's plan: step and reply of a correction, and runs of these arms."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

import pivot
from pivot.core.errors import TrainingError
from pivot.core.messages import PromptMessages
from pivot.datasets.store.config import solver_type
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.api import certify
from pivot.solvers.base import DistanceMap, ExactSolver
from pivot.tests.models.from_scratch import bpe_tokenizer
from pivot.tests.training.lake import run, short, torch, weights_in
from pivot.training.policy_rl.hindsight.corrections import corrected_reply, corrected_step
from pivot.training.policy_rl.learner import Learner
from pivot.training.policy_rl.levels import plan_levels, roll_out
from pivot.training.policy_rl.scoring import Row

pytestmark = pytest.mark.train


def test_a_correction_is_a_safe_action_where_it_should_be() -> None:
    """Each corrected action is one after which the exact distance is least, by a search of its own."""
    levels = plan_levels(short("none", settings={"size": 4, "horizon": 9}, levels=40))
    rollouts = roll_out(levels, levels.train, ScriptedPolicy(), 4)
    solver = solver_type("frozenlake")()
    assert isinstance(solver, ExactSolver)
    maps: dict[str, DistanceMap | None] = {}
    counts = {"pivot": 0, "random": 0, "start": 0}
    failures = [each for task in rollouts for each in task.episodes if each.failed]
    for episode in failures:
        verdict = certify("frozenlake", episode.initial_state, episode.actions, episode.horizon)
        for which in counts:
            correction = corrected_step(episode, verdict, which, solver, maps)
            assert correction == corrected_step(episode, verdict, which, solver, {}), "it depends on the episode alone"
            if correction is None:
                continue
            counts[which] += 1
            step, action = correction
            state = episode.steps[step].state
            assert state is not None
            distances = solver.distance_map(episode.initial_state)
            after = dict(zip(solver.actions, distances.after_each_action(state), strict=True))
            assert after[action] == min(each for each in after.values() if each is not None)
            if which == "pivot":
                assert step == verdict.pivot_step
                assert action in verdict.feasible_actions
                assert episode.actions[step] != action
            elif which == "random":
                assert step != verdict.pivot_step
                assert episode.actions[step] != action
            else:
                assert step == 0
    assert min(counts.values()) > len(failures) // 4, counts


@pytest.mark.parametrize(("env", "settings"), [("frozenlake", {"size": 4}), ("sokoban", {})])
def test_a_correction_of_a_long_turn_saves_a_turn(env: str, settings: dict[str, Any]) -> None:
    """After the corrected turn one turn fewer is needed; at a random step the agent's own turn saved none."""
    levels = plan_levels(short("none", env=env, settings=settings | {"horizon": 4, "actions_per_turn": 2}, levels=40))
    rollouts = roll_out(levels, levels.train, ScriptedPolicy(), 4)
    solver = solver_type(env)()
    counts = {"pivot": 0, "random": 0, "start": 0}
    for episode in (each for task in rollouts for each in task.episodes if each.failed):
        verdict = certify(env, episode.initial_state, episode.actions, episode.horizon, actions_per_turn=2)
        for which in counts:
            correction = corrected_step(episode, verdict, which, solver, {}, 2)
            if correction is None:
                continue
            step, turn = correction
            before, saved = list(episode.actions[:step]), []
            for action in (turn, episode.actions[step]):
                case = {"initial_state": episode.initial_state, "actions": [*before, action], "horizon": 20}
                (credit,) = pivot.credit(env, [case | {"actions_per_turn": 2}])
                assert isinstance(credit, tuple)
                saved.append(credit[step].progress == 1)
            assert saved[0]
            assert which == "start" or not saved[1]
            counts[which] += 1
    assert min(counts.values()) > 20, counts


class _Reader:
    """The part of an encoder that makes replies, over a given tokenizer."""

    placeholders = ()
    end = 0

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def reply_tokens(self, text: str) -> list[int]:
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end]


@pytest.mark.parametrize("whole", [(), ("</think>",), ("><", "<action>")])
def test_own_thoughts_stay_and_the_action_alone_is_learned(whole: tuple[str, ...]) -> None:
    tokenizer = bpe_tokenizer([], 264, dict.fromkeys(whole))
    reader: Any = _Reader(tokenizer)
    prompt = PromptMessages("h", "t", "1", ())
    spoken = Row(prompt, tuple(reader.reply_tokens("<think>left it is</think><action>left</action>")))
    made = corrected_reply(spoken, "up", "action", reader, keep_thoughts=True)
    text = tokenizer.decode(made.row.tokens[:-1])
    assert text == "<think>left it is</think><action>up</action>"
    assert "think" not in tokenizer.decode(made.row.tokens[-made.supervised : -1])
    assert made.supervised < len(made.row.tokens)
    bare = corrected_reply(spoken, "up", "action", reader, keep_thoughts=False)
    assert tokenizer.decode(bare.row.tokens[:-1]) == "<think></think><action>up</action>"
    assert bare.supervised == len(bare.row.tokens)


@pytest.mark.parametrize(
    ("arm", "step"), [("witness", "pivot"), ("witness", "start"), ("dpo_pivot", "pivot"), ("dpo_pivot", "start")]
)
def test_corrections_are_learned_alike_in_any_micro_batches(arm: str, step: str, player: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"arm": arm, "correction_step": step, "updates": 1, "lr": 1e-5}
    (one,) = run(tmp_path / "one", player, **fields)
    (split,) = run(tmp_path / "split", player, micro_batch_tokens=70, **fields)
    assert one["corrections"] > 0
    assert one["loss_correction"] > 0
    assert one["loss_correction"] == pytest.approx(split["loss_correction"], rel=1e-4)
    before, after = weights_in(tmp_path / "one" / "final"), weights_in(tmp_path / "split" / "final")
    assert all(torch.allclose(before[name], after[name], atol=2e-5) for name in before)


@pytest.mark.parametrize("arm", ["witness", "dpo_pivot"])
def test_learning_corrections_makes_them_likely_and_resumes(
    arm: str, player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[tuple[float, float]] = []
    update = Learner.update

    def twice(learner: Learner, *arguments: Any) -> dict[str, float | None]:
        first, second = (update(learner, *arguments) for _ in range(2))
        losses.append((first["loss_correction"] or 0.0, second["loss_correction"] or 0.0))
        return second

    monkeypatch.setattr(Learner, "update", twice)
    fields: dict[str, Any] = {"arm": arm, "correction": 100.0, "updates": 2, "save_every": 1, "lr": 1e-4}
    whole = run(tmp_path / "whole", player, minibatch=1000, **fields)
    assert all(0 < second < first for first, second in losses)
    fields["updates"] = 1
    run(tmp_path / "parts", player, minibatch=1000, **fields)
    fields["updates"] = 2
    assert run(tmp_path / "parts", player, minibatch=1000, resume=True, **fields) == whole


def test_what_cannot_be_corrected_is_refused(player: Path) -> None:
    with pytest.raises(TrainingError, match="corrects nothing"):
        short(player, arm="oracle", correction_step="random")
