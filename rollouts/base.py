"""The vocabulary of rollouts: requests to a policy, its replies, and the records of an episode.

A policy gets a rendered prompt and returns raw text; the reply grammar decides whether that text holds an action. The
reason why an episode ended is a typed value, and a failed or broken episode is a record like any other.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, ClassVar

from ..core.contracts import Answer, JsonObject, Terms
from ..core.errors import PolicyError
from ..core.identity import ID_VERSION, digest
from ..core.messages import Call, EncodedFrame, PromptMessages
from ..core.plugins import Plugin
from ..core.records import Stored
from ..environments.base import INFO_TYPES, EnvConfig, EnvProfile, PivotEnv, Task
from ..environments.turns import HistoryEntry, Reply, ReplyOutcome, StudentPrompt, Turn

INFO_KEYS = tuple(INFO_TYPES)
"""Keys of a step's stored ``info`` in every environment; those of ``profile.info_keys`` follow."""


def stored_keys(profile: EnvProfile) -> tuple[str, ...]:
    """Return the keys of a step's stored ``info``, in their order; whatever else is in ``info`` is not stored."""
    return (*INFO_KEYS, *profile.info_keys)


def judged(info: Mapping[str, Any], action_valid: bool) -> Mapping[str, Any]:
    """Return an environment's ``info`` completed by the result of the reply grammar.

    An environment sees actions alone; only the parser knows whether the whole reply, think block included, kept the
    format. ``action_is_valid`` of the log equals the column ``action_valid``.
    """
    if "action_is_valid" not in info:
        return info
    return {**info, "action_is_valid": bool(info["action_is_valid"]) and action_valid}


GROUP_SIZE = 8
"""Group size N of the paper: rollouts of one prompt key that are compared."""


class Status(StrEnum):
    """Completeness of an episode's record."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"  # imports only: the log stops before the episode did
    ERROR = "error"


class StopReason(StrEnum):
    """Reason why an episode ended."""

    SUCCESS = "success"
    LOST = "lost"  # the environment ended it: a fall into a hole
    HORIZON = "horizon"  # the turn budget is spent
    POLICY_ERROR = "policy_error"
    ENV_ERROR = "env_error"


class EndOfLogError(PolicyError):
    """The log of an imported episode ends before the episode does; its record becomes ``truncated``."""


class Policy(Plugin, ABC):
    """Agent that answers turns. Episodes run concurrently in one event loop; a policy may batch waiting turns."""

    name: str
    is_stand_in: ClassVar[bool] = False
    """True for an embedded policy that stands in for a model; named as such wherever its rows appear."""
    served: ClassVar[bool] = False
    """True for a policy that waits for a model, in another process or on a device: many of its episodes are then
    played at a time. Without it ``reply`` must not wait, and one episode is played after the other."""
    episodes_in_flight: int = 64
    """Most concurrent episodes of one process; a served policy raises it to what its model accepts."""
    episode_seconds: float | None = None
    """Longest time that all replies of one episode may take together; None for no limit."""
    plays: ClassVar[bool] = True
    """False if the episodes were imported: levels, samples and replies are in the rows alone, and no request was made
    for them."""
    terms: ClassVar[Terms] = Terms(
        attributes={
            "name": str,
            "is_stand_in": bool,
            "served": bool,
            "episodes_in_flight": int,
            "episode_seconds": float | None,
        },
        answers={"config": Answer(JsonObject), "config_for": Answer(JsonObject), "reply": Answer(Reply)},
    )

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return everything that decides the replies (model, revision, sampling, version); part of every episode id."""

    def config_for(self, env: str) -> dict[str, Any]:
        """Return what decides the replies in one environment, for its episode ids; by default ``config``."""
        del env
        return self.config

    def check(self) -> None:
        """Check that everything the policy needs is installed, before a long run starts.

        Raises:
            PluginError: something is missing; the message says how to get it.
        """

    async def preflight(self) -> None:
        """Send the model one small request before a run begins, if it is behind a server.

        Raises:
            ConfigError, PluginError, ServerGoneError, CacheError: the run cannot use the model.
        """

    def check_environment(self, env: str, config: EnvConfig) -> None:
        """Check that the policy can play an environment with these settings, before a simulator starts for it.

        Raises:
            ConfigError: the policy cannot play it.
        """

    @abstractmethod
    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn.

        Raises:
            PolicyError: the turn cannot be answered; the episode becomes an ``error`` record and is pending again.
            ServerGoneError: no turn will be answered; the run stops.
        """

    async def aclose(self) -> None:
        """Release connections and models after the last episode; called in the event loop that used them."""


@dataclass(slots=True)
class Step:
    """One turn of an episode: one row of the ``steps`` table."""

    episode_id: Annotated[str, Stored("Episode.")]
    t: Annotated[int, Stored("Step index, 0-based.")]
    prompt_hash: Annotated[str, Stored("Key into `prompts`; empty where an import recorded no prompt.")]
    observation_text: Annotated[str, Stored("Text of the observation; empty if it is the image alone.")]
    response: Annotated[str, Stored("The policy's raw reply.")]
    finish_reason: Annotated[
        str,
        Stored(
            "Why generation ended: `stop`, `length`, or `unknown` where the server does not say. Imports keep what was "
            "recorded."
        ),
    ]
    response_token_ids: Annotated[
        tuple[int, ...] | None, Stored("Tokens of the reply; null if the engine reports none.")
    ]
    response_logprobs: Annotated[
        tuple[float, ...] | None, Stored("Log-probabilities of these tokens; null if there are none.")
    ]
    action: Annotated[str, Stored("Normalised action, or the environment's word for an unusable reply.")]
    payload: Annotated[str | None, Stored("Parsed arguments of the action, JSON.")]
    action_valid: Annotated[bool, Stored("Whether the reply kept the whole format.")]
    reply_outcome: Annotated[
        ReplyOutcome,
        Stored(
            "Parse result of the reply: `ok`, `no_think` (the action ran), `no_answer`, `not_an_action` or "
            "`tag_in_think`. In an import that of the source: `ok`, `not_an_action`, or `unused` for an action that a "
            "turn of several actions did not have."
        ),
    ]
    moved: Annotated[bool | None, Stored("Whether the action changed the agent's position; null where it has none.")]
    reward: Annotated[float, Stored("Reward of the step.")]
    remaining_turns: Annotated[int, Stored("k_t: turns left after the step.")]
    frame_id: Annotated[str, Stored("Frame before the action.")]
    next_frame_id: Annotated[str, Stored("Frame after it.")]
    info: Annotated[dict[str, Any], Stored("Log fields after the action, JSON.", json=True)]
    submission_outcome: Annotated[
        str | None,
        Stored(
            "Outcome of a submission: `ok`, or the environment's word for why it was rejected; null where actions "
            "submit nothing."
        ),
    ] = None
    score_parts: Annotated[
        str | None,
        Stored("Components of the score, such as those of DINO and DreamSim, JSON; null where nothing was scored."),
    ] = None
    inside_frame_ids: Annotated[
        tuple[str, ...] | None,
        Stored("Frames between the actions of a turn with several, in order; null for one action."),
    ] = None
    snapshot: Annotated[bytes | None, Stored("Simulator state, only where re-execution is not exact.")] = None
    state: Annotated[
        str | None,
        Stored(
            "State text before the action. For navigation only the part of the agent, for svg only the scores: the "
            "rest is in `initial_state` and the last accepted `payload`."
        ),
    ] = None
    need: Annotated[
        int | None,
        Stored(
            "Needed amount before the action, by the measure of the certificate: fewest turns to success (null if "
            "more than the horizon), for navigation the bound on them, for primitiveskill the open stages; null for "
            "svg."
        ),
    ] = None

    @property
    def shown_frames(self) -> tuple[str, ...]:
        """Ids of the frames before, inside and after the turn, in order."""
        return self.frame_id, *(self.inside_frame_ids or ()), self.next_frame_id


@dataclass(slots=True, kw_only=True)
class Episode:
    """One rollout: one row of the ``episodes`` table, and its steps."""

    episode_id: Annotated[str, Stored("Versioned hash of the inputs of the episode, never of its results.")]
    run_id: Annotated[str, Stored("Digest of seed, rollouts per task and policy; a group never spans two runs.")]
    env: Annotated[str, Stored("Environment name, such as `sokoban`.")]
    env_version: Annotated[str, Stored("Version of the environment's rules and pictures.")]
    env_config: Annotated[
        str,
        Stored(
            "Settings of the environment that affect its episodes (for svg the scorer, too), JSON; `run.json` has all."
        ),
    ]
    backend: Annotated[str, Stored("Simulator that ran; `embedded` is the built-in one.")]
    task_id: Annotated[str, Stored("Level: environment, digest of its settings, seed; it may have several tasks.")]
    goal_idx: Annotated[int, Stored("Index of the goal.")]
    eval_set: Annotated[str, Stored("Split of the task set, if it has splits.")]
    seed: Annotated[
        int | None,
        Stored("Seed that generated the level (after retries); null if an import does not know it.", wide=True),
    ]
    group_id: Annotated[str, Stored("Id of a prompt key under one policy: equal for the rollouts of a task.")]
    sample_idx: Annotated[int, Stored("Index of the rollout within its task.")]
    instruction: Annotated[str, Stored("Task in words, as the agent's prompt states it.")]
    state_format: Annotated[str, Stored("How to read `initial_state`.")]
    initial_state: Annotated[str, Stored("Text of the level; re-executing `actions` from it reproduces every state.")]
    horizon: Annotated[int, Stored("T_max, the turn budget.")]
    num_steps: Annotated[int, Stored("T, the realised number of steps.")] = 0
    actions: Annotated[list[str], Stored("Normalised action names, one per step.")] = field(default_factory=list)
    rewards: Annotated[list[float], Stored("Rewards, one per step.")] = field(default_factory=list)
    episode_return: Annotated[float, Stored("Undiscounted sum of rewards.")] = 0.0
    status: Annotated[Status, Stored("`complete`, `truncated` (imports) or `error`.")] = Status.COMPLETE
    success: Annotated[bool | None, Stored("Whether the episode succeeded; null unless complete.")] = None
    failed: Annotated[bool | None, Stored("Whether the episode failed; null unless complete.")] = None
    stop_reason: Annotated[
        StopReason | None, Stored("`success`, `lost`, `horizon`, `policy_error` or `env_error`.")
    ] = None
    error: Annotated[str | None, Stored("Error message, for status `error`.")] = None
    policy: Annotated[str, Stored("Policy name; `scripted` is built in, in place of a model.")]
    policy_config: Annotated[str, Stored("Model, revision and sampling of the policy, JSON.")]
    optimal_start: Annotated[
        int | None,
        Stored(
            "Fewest turns to success from the start, where the certificate is exact; null if more than the horizon or "
            "unknown."
        ),
    ] = None
    steps: list[Step] = field(default_factory=list)

    def log(self) -> dict[str, Any]:
        """Return what :func:`pivot.credit` and :func:`pivot.certify_batch` read of an episode."""
        names = ("initial_state", "actions", "horizon", "env_config")
        return {name: getattr(self, name) for name in names} | {
            "steps": [step.info for step in self.steps],
            "observations": [step.observation_text for step in self.steps],
            "states": [step.state or "" for step in self.steps],
        }


@dataclass(slots=True)
class TaskRollouts:
    """All rollouts of one task with the frames and prompts they share."""

    task: Task
    episodes: list[Episode]
    frames: dict[str, EncodedFrame]
    prompts: dict[str, PromptMessages]
    calls: list[Call]


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes that are delivered together, such as a shard or its pending episodes."""

    env_type: type[PivotEnv]
    config: EnvConfig
    tasks: Sequence[Task]
    rollouts: int = GROUP_SIZE
    """Samples per task: ``sample_idx`` 0 to ``rollouts - 1``."""
    only: Collection[str] | None = None
    """Ids of the episodes to run, None for all: a later run makes the pending ones alone."""
    run_id: str | Sequence[str] = ""
    """The run id of all episodes, or one per task."""
    prompt: StudentPrompt | None = None
    """The Student prompt; by default the one registered for the environment."""
    work: Any = None
    """Data of the receiver; the scheduler passes it through."""
    samples: Sequence[int] | None = None
    """The sample indices of every task, if they are not ``range(rollouts)``."""


def render_student(
    prompt: StudentPrompt,
    profile: EnvProfile,
    task: Task,
    *,
    t: int,
    frame_id: str,
    history: Sequence[HistoryEntry] = (),
    observation: str = "",
) -> PromptMessages:
    """Return the messages of turn ``t`` with their hash; the arguments are those of :meth:`StudentPrompt.render`."""
    messages = prompt.render(profile, task, t=t, frame_id=frame_id, history=history, observation=observation)
    return PromptMessages(digest(messages), prompt.template, prompt.version, messages)


# Ids: pure functions of an episode's inputs, never of its results. An episode's random stream derives from its id, so
# two runs with equal inputs give equal episodes for any number of workers, and a store can name its pending episodes.


def _group_inputs(
    profile: EnvProfile, config: EnvConfig, task: Task, policy_name: str, policy_config: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "env": profile.name,
        "env_version": profile.version,
        "env_config": config.decisive(),
        "task_id": task.task_id,
        "goal_idx": task.goal_idx,
        "eval_set": task.eval_set,
        "seed": task.seed,
        "policy": policy_name,
        "policy_config": dict(policy_config),
    }


def group_id(
    profile: EnvProfile, config: EnvConfig, task: Task, *, policy_name: str, policy_config: Mapping[str, Any]
) -> str:
    """Return the id shared by all samples of one prompt key under one policy and its sampling settings."""
    return f"group-{ID_VERSION}-{digest(_group_inputs(profile, config, task, policy_name, policy_config))}"


def episode_id(
    profile: EnvProfile,
    config: EnvConfig,
    task: Task,
    sample_idx: int,
    *,
    policy_name: str,
    policy_config: Mapping[str, Any],
) -> str:
    """Return the id of sample ``sample_idx`` (0-based) of a task."""
    inputs = _group_inputs(profile, config, task, policy_name, policy_config)
    return f"episode-{ID_VERSION}-{digest(inputs | {'sample_idx': sample_idx})}"


def request_id(episode: str, t: int, role: str) -> str:
    """Return the id of one request to a model: the key of the ``calls`` table and of reply caches."""
    # Computed for every step, and no part holds a slash: joined text is as unique as JSON and much cheaper.
    parts = f"{episode}/{t}/{role}"
    return f"request-{ID_VERSION}-{sha256(parts.encode()).hexdigest()[:32]}"
