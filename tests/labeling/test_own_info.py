"""An environment's own keys of ``info`` arrive in steps, log, cases and filters, and are proved by a replay."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pivot.core import plugins
from pivot.core.plugins import Settings
from pivot.environments.base import EnvProfile, Frame
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.labeling.base import Draft, Filter, Objection
from pivot.labeling.episode import FailedEpisode
from pivot.labeling.filters import ReplayFilter
from pivot.labeling.label import label_episodes
from pivot.rollouts.base import stored_keys
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Case, Unsolved, Verdict
from pivot.solvers.frozenlake import FrozenLakeSolver
from pivot.tests.labeling.episodes import random_failures


class ColdLakeEnv(FrozenLakeEnv):
    """The lake with a thermometer; it stands in for frozenlake."""

    profile: ClassVar[EnvProfile] = replace(
        FrozenLakeEnv.profile, info_keys=("cold",), log_fields=(*FrozenLakeEnv.profile.log_fields, "cold")
    )

    def step(self, action: Any) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        frame, reward, terminated, truncated, info = super().step(action)
        return frame, float(reward), terminated, truncated, {**info, "cold": float(info["remaining_turns"]) / 2}


class Warm(Filter):
    name: ClassVar[str] = "warm"
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        return Objection("cold", "seen") if all("cold" in info for info in episode.infos) else None


class Reads(FrozenLakeSolver):
    seen: ClassVar[list[Any]] = []

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        self.seen.extend(info.get("cold") for case in cases for info in case.steps)
        return super().certify(cases)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    load = plugins.load
    monkeypatch.setattr(
        plugins, "load", lambda group, name: ColdLakeEnv if group == "environments" else load(group, name)
    )


def test_own_keys_are_stored_after_those_of_every_environment(cold: None) -> None:
    config = ColdLakeEnv.config_type.model_validate({})
    tasks = [ColdLakeEnv.make_task(config, 1)]
    (rollouts,) = roll_out_tasks(ColdLakeEnv, config, tasks, ScriptedPolicy(), 2)
    for episode in rollouts.episodes:
        assert [list(step.info)[-1] for step in episode.steps] == ["cold"] * episode.num_steps
    assert stored_keys(FrozenLakeEnv.profile) == stored_keys(ColdLakeEnv.profile)[:-1]


def test_own_keys_reach_log_case_and_filter_and_are_replayed(cold: None) -> None:
    (episode,) = random_failures("frozenlake", 1)
    left = [float(info["remaining_turns"]) for info in episode.infos]
    episode = replace(episode, infos=[{**info, "cold": n / 2} for info, n in zip(episode.infos, left, strict=True)])
    rules = [ReplayFilter(), Warm()]
    (label,) = label_episodes([episode], Reads(), None, rules, "1")
    assert [reason.name for reason in label.reject_reasons] == ["warm"]
    assert Reads.seen[: len(left)] == [n / 2 for n in left]
    assert "cold=" in str(label.prompt.messages)
    infos = [{key: value for key, value in info.items() if key != "cold"} for info in episode.infos]
    (label,) = label_episodes([replace(episode, infos=infos)], FrozenLakeSolver(), None, rules, "1")
    assert [reason.kind for reason in label.reject_reasons] == ["info"]
    assert "gives cold=" in label.reject_reasons[0].detail
