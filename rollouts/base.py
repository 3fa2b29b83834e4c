"""The vocabulary of rollouts: what a policy is asked, what it answers, and the records an episode leaves.

A policy sees a rendered prompt and returns raw text; whether that text holds an action is the reply grammar's business.
Why an episode ended is a typed value, and a failed or broken episode is a record like any other.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from ..environments.base import EnvConfig, EnvProfile, Frame, PivotEnv, Task
from ..messages import EncodedFrame, PromptMessages

INFO_KEYS = (
    "moved",
    "last_action_success",
    "action_is_valid",
    "dist",
    "remaining_turns",
    "legal",
    "remaining_stages",
    "valid_svg",
    "average_score",
)
"""Keys of a step's stored ``info`` (spec section 4); whatever else an environment reports is not stored."""


class Status(StrEnum):
    """How far the record of an episode goes."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"  # imports only: the log stops before the episode did
    ERROR = "error"


class StopReason(StrEnum):
    """Why an episode ended."""

    SUCCESS = "success"
    LOST = "lost"  # the environment ended it: a fall into a hole
    HORIZON = "horizon"  # the turn budget is spent
    POLICY_ERROR = "policy_error"
    ENV_ERROR = "env_error"


class ReplyOutcome(StrEnum):
    """What the reply grammar (spec section 2) made of a reply."""

    OK = "ok"
    NO_THINK = "no_think"  # the action runs, but the step is not action_valid
    NO_ANSWER = "no_answer"
    NOT_AN_ACTION = "not_an_action"
    TAG_IN_THINK = "tag_in_think"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to a policy."""

    episode_id: str
    t: int
    seed: int
    """Derived from the episode id and ``t``; all randomness of the reply comes from it."""
    prompt: PromptMessages
    images: Mapping[str, EncodedFrame]
    """The frames that the prompt names, and perhaps others of the same task."""
    task: Task
    """The level being attempted, for logs. Like ``env`` it tells more than a model may know."""
    env: PivotEnv
    """The live environment. Only an embedded stand-in may look at it; a real policy sees prompt and images."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy answered."""

    text: str
    finish_reason: str = "stop"
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    call: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the ``calls`` table that the policy knows: attempts, latency, usage, cost, cache_hit."""


class Policy(ABC):
    """Answers turns. Episodes run concurrently in one event loop; a policy may batch the turns that wait together."""

    name: ClassVar[str]
    is_stand_in: ClassVar[bool] = False
    """True for an embedded policy that stands in for a model; named as such wherever its rows appear."""
    served: ClassVar[bool] = False
    """True for a policy that waits for a model, in another process or on a device. All shards of a build are then
    rolled out in one event loop, so that the model is kept busy across them, and the service settings of the config
    (address, limits, cache: what decides no byte) are passed to the constructor together with the options."""
    episodes_in_flight: int = 64
    """Episodes that a build keeps going at a time; a served policy raises it to what its model can take."""
    episode_seconds: float | None = None
    """Longest time that all replies of one episode may take together; None for no limit."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Everything that decides the replies (model, revision, sampling, version); part of every episode id."""

    def check(self) -> None:  # noqa: B027 - most policies need nothing
        """See whether everything that the policy needs is installed, before a long run starts.

        Raises:
            PluginError: something is missing; the message says how to get it.
        """

    def check_environment(self, env: str, config: EnvConfig) -> None:  # noqa: B027 - most policies play everything
        """See whether the policy can play an environment with these settings, before a simulator starts for it.

        Raises:
            ConfigError: it cannot.
        """

    @abstractmethod
    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn.

        Raises:
            PolicyError: no answer could be had; the episode becomes an ``error`` record and is owed again.
            ServerGoneError: nobody will get an answer; the run stops.
        """

    async def aclose(self) -> None:  # noqa: B027 - most policies hold nothing
        """Let go of connections and models when the last episode is over; called in the loop that ran them."""


@dataclass(slots=True)
class Step:
    """One row of the ``steps`` table (spec section 9), without the episode id."""

    t: int
    prompt_hash: str
    observation_text: str
    response: str
    finish_reason: str
    response_token_ids: tuple[int, ...] | None
    response_logprobs: tuple[float, ...] | None
    action: str
    payload: str | None
    action_valid: bool
    moved: bool | None
    reward: float
    remaining_turns: int
    frame_id: str
    next_frame_id: str
    info: dict[str, Any]
    score_parts: str | None = None
    """JSON of what the score of a submission is made of; None where nothing is scored."""
    snapshot: bytes | None = None


@dataclass(slots=True)
class Episode:
    """One rollout: the row of the ``episodes`` table and its steps."""

    episode_id: str
    group_id: str
    sample_idx: int
    task: Task
    steps: list[Step] = field(default_factory=list)
    status: Status = Status.COMPLETE
    stop_reason: StopReason | None = None
    success: bool | None = None
    failed: bool | None = None
    error: str | None = None

    @property
    def actions(self) -> list[str]:
        """Normalised action names, one a step."""
        return [step.action for step in self.steps]

    @property
    def rewards(self) -> list[float]:
        """Rewards, one a step."""
        return [step.reward for step in self.steps]

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of rewards, summed in order (spec section 1)."""
        return sum(self.rewards, 0.0)


@dataclass(slots=True)
class TaskRollouts:
    """All rollouts of one task with the frames and prompts they share."""

    task: Task
    episodes: list[Episode]
    frames: dict[str, EncodedFrame]
    prompts: dict[str, PromptMessages]
    calls: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A past action for the Student's history, 1-based as spec section 4 asks."""

    step: int
    action: str
    frame_id: str = ""
    """The picture before the action; the first entry's is the first observation, such as a target."""


class StudentPrompt(ABC):
    """Renders the acting prompt of one environment."""

    template: str
    """Its public name, ``student.`` and the environment."""
    version: str
    """Raised with every change of wording."""
    frame_only: ClassVar[bool] = False
    """True when the messages of a task depend on nothing but the frame, so that a repeated frame repeats the prompt."""

    @abstractmethod
    def render(
        self,
        profile: EnvProfile,
        task: Task,
        *,
        t: int,
        frame_id: str,
        history: Sequence[HistoryEntry],
        observation: str,
    ) -> tuple[dict[str, Any], ...]:
        """Return the messages of turn ``t``.

        Args:
            profile: what is known about the environment.
            task: the level; prompts show its instruction, never its state.
            t: step index, 0-based.
            frame_id: the current picture.
            history: the past actions, oldest first; the template decides how many it shows.
            observation: the text observation of this step, empty where the environment has none.
        """


__all__ = [
    "INFO_KEYS",
    "Episode",
    "Frame",
    "HistoryEntry",
    "Policy",
    "Reply",
    "ReplyOutcome",
    "Status",
    "Step",
    "StopReason",
    "StudentPrompt",
    "Task",
    "TaskRollouts",
    "Turn",
]
