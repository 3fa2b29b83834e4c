"""Play failures again from a step of theirs: the logged replies up to it, the policy from there on.

The environment is not asked to jump: it is started as it was and given the logged replies again, which is exact
wherever re-execution is (spec section 9), needs nothing of a simulator, and gives the policy the history that it had.
The retry is an episode like any other, with an id, and so a random stream, of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...datasets.store import Store
from ...environments.base import Task
from ...errors import PolicyError
from ...messages import PromptMessages
from ...plugins import Settings
from ...rollouts.base import Episode, Policy, Reply, Status, StudentPrompt, TaskRollouts, Turn
from ...training.policy_rl.hindsight.contexts import Hindsight, teacher_prompt
from .records import VERSION, ProbeSettings, Retry, RetryStatus, is_lift, suffix_return

ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed episode with what is needed to play it again."""

    task: Task
    sample_idx: int
    """Of the failure among the rollouts of its level."""
    steps: Sequence[Mapping[str, Any]]
    """Its rows of the ``steps`` table, in order."""
    pivot_step: int
    failure_mode: str
    kind: str
    """Of its certificate."""
    label_version: str
    guidance: str
    """That of its label."""

    @property
    def episode_id(self) -> str:
        """Which episode it is."""
        return str(self.steps[0]["episode_id"])

    @property
    def rewards(self) -> list[float]:
        """The logged rewards."""
        return [step["reward"] for step in self.steps]


@dataclass(frozen=True, slots=True)
class Planned:
    """A retry that is to be played."""

    failure: Failure
    restore_step: int
    hint: str | None


class RollbackPolicy(Policy):
    """Gives the logged replies up to the restored step, then asks the policy, which may be told a hint."""

    config_type = Settings

    def __init__(self, policy: Policy, prompts: Mapping[str, StudentPrompt]) -> None:
        """Play as ``policy`` does; retries are given to :attr:`planned` by their ids.

        Args:
            policy: who plays from the restored step on.
            prompts: the Student prompt of each environment, which says where a hint goes.
        """
        self.name = policy.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self.episode_seconds = policy.episode_seconds
        self.planned: dict[str, Planned] = {}
        self._policy, self._prompts = policy, prompts

    @property
    def episodes_in_flight(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As many as the policy can take."""
        return self._policy.episodes_in_flight

    @property
    def config(self) -> dict[str, Any]:
        """That of the policy, and that its episodes are retries."""
        return {**self._policy.config, ROLLBACK: VERSION}

    def config_for(self, env: str) -> dict[str, Any]:
        """The same for one environment: ids follow it."""
        return {**self._policy.config_for(env), ROLLBACK: VERSION}

    def check_environment(self, env: str, config: Any) -> None:
        """See whether the policy can play here; see the base class."""
        self._policy.check_environment(env, config)

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the errors are those of the policy.

        Raises:
            PolicyError: nobody planned this episode.
        """
        plan = self.planned.get(turn.episode_id)
        if plan is None:
            raise PolicyError(f"no retry with the id {turn.episode_id} was planned")
        if turn.t < plan.restore_step:
            logged = plan.failure.steps[turn.t]
            return Reply(logged["response"], logged["finish_reason"])
        return await self._policy.reply(replace(turn, prompt=self._told(turn, plan)))

    def _told(self, turn: Turn, plan: Planned) -> PromptMessages:
        if plan.hint is None:
            return turn.prompt
        env, failure = turn.env.profile.name, plan.failure
        known = Hindsight(("mode", "guidance"), failure.pivot_step, failure.failure_mode, plan.hint, None)
        return teacher_prompt(turn.prompt, self._prompts[env], env, known)

    async def aclose(self) -> None:
        """Let go of what the policy holds."""
        await self._policy.aclose()


def rollback_policy(store: Store, policy: Policy | None = None) -> RollbackPolicy:
    """Return the policy of a store, or another one, ready to play the store's failures again."""
    return RollbackPolicy(policy or store.run.policy(), {name: env.prompt for name, env in store.run.envs.items()})


def finish_row(
    row: Retry, plan: Planned, episode: Episode, settings: ProbeSettings, *, exact: bool, tolerance: float
) -> None:
    """Write what a retry gave into its row.

    Args:
        row: of :func:`planned_row`.
        plan: what was to be played.
        episode: what was played, from the first step on.
        settings: of the probe.
        exact: whether the environment repeats its pictures to the pixel.
        tolerance: by which repeated rewards may differ.
    """
    start, logged = plan.restore_step, plan.failure.steps
    row.restore_step = start
    if episode.status is not Status.COMPLETE:
        row.status, row.error = RetryStatus.ERROR, episode.error
        return
    before = episode.steps[:start]
    wrong = _difference(before, logged[:start], tolerance)
    if wrong is None and exact and episode.steps[start].frame_id != logged[start]["frame_id"]:
        wrong = f"the picture at step {start} is another one"
    if wrong is not None:
        row.status, row.error = RetryStatus.NOT_RESTORED, wrong
        return
    suffix = episode.steps[start:]
    row.status = RetryStatus.DONE
    row.old_return = suffix_return(plan.failure.rewards, start, settings.gamma)
    row.new_return = suffix_return(episode.rewards, start, settings.gamma)
    row.lift = is_lift(row.old_return, row.new_return)
    row.success = bool(episode.success)
    row.actions = [step.action for step in suffix]
    row.payloads = [step.payload or "" for step in suffix]
    row.action_valid = [step.action_valid for step in suffix]
    row.rewards = [step.reward for step in suffix]
    row.responses = [step.response for step in suffix]


def _difference(played: Sequence[Any], logged: Sequence[Mapping[str, Any]], tolerance: float) -> str | None:
    if len(played) < len(logged):
        return f"the logged replies ended the episode after step {len(played) - 1}"
    for t, (step, row) in enumerate(zip(played, logged, strict=True)):
        if step.action != row["action"]:
            return f"step {t} was {row['action']}, played again it is {step.action}"
        if abs(step.reward - row["reward"]) > tolerance:
            return f"step {t} gave {row['reward']}, played again it gives {step.reward}"
    return None


def episodes_of(records: Sequence[TaskRollouts]) -> dict[str, Episode]:
    """Return what was played, by id."""
    return {episode.episode_id: episode for task in records for episode in task.episodes}
