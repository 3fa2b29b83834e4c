"""Retry failures from one of their steps: the logged replies before it, then the policy's own.

The step is reached by re-executing the logged replies, which is exact wherever re-execution is, needs
no snapshot of a simulator, and gives the policy the same history. A retry is an episode like any other, with an id and
so a random stream of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...core.errors import PolicyError
from ...core.messages import PromptMessages
from ...core.plugins import Settings
from ...datasets.store.store import Store
from ...environments.base import Task
from ...environments.turns import Reply, StudentPrompt, Turn
from ...labeling.hindsight import Hindsight, teacher_prompt
from ...rollouts.base import Episode, Policy, Status, TaskRollouts
from .records import VERSION, Retry, RetryStatus, is_lift

ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed episode with what a retry needs."""

    task: Task
    sample_idx: int
    """Index of the failure among the rollouts of its level."""
    steps: Sequence[Mapping[str, Any]]
    """Rows of the episode in the ``steps`` table, in order."""
    pivot_step: int
    failure_mode: str
    kind: str
    """Kind of its certificate."""
    label_version: str
    guidance: str
    """Guidance of its label."""

    @property
    def episode_id(self) -> str:
        """Id of the episode."""
        return str(self.steps[0]["episode_id"])

    @property
    def rewards(self) -> list[float]:
        """The logged rewards."""
        return [step["reward"] for step in self.steps]


@dataclass(frozen=True, slots=True)
class Planned:
    """A pending retry."""

    failure: Failure
    restore_step: int
    hint: str | None


class RollbackPolicy(Policy):
    """Gives the logged replies up to the restored step, then asks the policy, with the hint of the retry."""

    config_type = Settings
    mark: ClassVar[Mapping[str, Any]] = {ROLLBACK: VERSION}

    def __init__(self, policy: Policy, prompts: Mapping[str, StudentPrompt]) -> None:
        """Wrap ``policy``; :attr:`planned` holds the retries by id.

        Args:
            policy: acts from the restored step on.
            prompts: the Student prompt of each environment, which places the hint.
        """
        self.name = policy.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self.episode_seconds = policy.episode_seconds
        self.planned: dict[str, Planned] = {}
        self._policy, self._prompts = policy, prompts

    @property
    def episodes_in_flight(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of the policy's concurrent episodes."""
        return self._policy.episodes_in_flight

    @property
    def config(self) -> dict[str, Any]:
        """Config of the policy, with a mark that its episodes are retries."""
        return {**self._policy.config, **self.mark}

    def config_for(self, env: str) -> dict[str, Any]:
        """Return the config for one environment, which decides ids."""
        return {**self._policy.config_for(env), **self.mark}

    def check_environment(self, env: str, config: Any) -> None:
        """Check that the policy can act here; see the base class."""
        self._policy.check_environment(env, config)

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the errors are those of the policy.

        Raises:
            PolicyError: the episode is not a planned retry.
        """
        plan = self.planned.get(turn.episode_id)
        if plan is None:
            raise PolicyError(f"no retry with the id {turn.episode_id} was planned")
        if turn.t < plan.restore_step:
            return self.logged(turn, plan.failure.steps[turn.t])
        return await self._policy.reply(replace(turn, prompt=self._with_hint(turn, plan)))

    def logged(self, turn: Turn, step: Mapping[str, Any]) -> Reply:
        """Return the reply of a row of the ``steps`` table."""
        del turn
        return Reply(step["response"])

    def _with_hint(self, turn: Turn, plan: Planned) -> PromptMessages:
        if plan.hint is None:
            return turn.prompt
        env, failure = turn.env.profile.name, plan.failure
        hindsight = Hindsight(("mode", "guidance"), failure.pivot_step, failure.failure_mode, plan.hint, None)
        return teacher_prompt(turn.prompt, self._prompts[env], env, hindsight)

    async def aclose(self) -> None:
        """Close the policy."""
        await self._policy.aclose()


def rollback_policy(store: Store, policy: Policy | None = None) -> RollbackPolicy:
    """Return the policy of a store, or ``policy``, ready to retry the store's failures."""
    return RollbackPolicy(policy or store.run.policy(), {name: env.prompt for name, env in store.run.envs.items()})


def finish_row(row: Retry, plan: Planned, episode: Episode, *, exact: bool, tolerance: float) -> None:
    """Write the outcome of a retry into its row.

    Args:
        row: row of the planned retry.
        plan: the planned retry.
        episode: the episode of the retry, from the first step on.
        exact: whether the environment repeats its pictures to the pixel.
        tolerance: largest difference of repeated rewards.
    """
    start, logged = plan.restore_step, plan.failure.steps
    row.restore_step = start
    if episode.status is not Status.COMPLETE:
        row.status, row.error = RetryStatus.ERROR, episode.error
        return
    before = episode.steps[:start]
    wrong = _difference(before, logged[:start], tolerance)
    if wrong is None and exact and episode.steps[start].frame_id != logged[start]["frame_id"]:
        wrong = f"the picture at step {start} differs"
    if wrong is not None:
        row.status, row.error = RetryStatus.NOT_RESTORED, wrong
        return
    suffix = episode.steps[start:]
    row.status = RetryStatus.DONE
    row.old_return = sum(plan.failure.rewards[start:])
    row.new_return = sum(episode.rewards[start:])
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
    """Return the episodes by id."""
    return {episode.episode_id: episode for task in records for episode in task.episodes}
