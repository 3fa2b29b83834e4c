"""The policy of a store of imported episodes, and the records of their origin.

Replies and actions were read from the files of another program, so they exist in the rows alone. The environment
re-executed the actions; rewards, states and pictures are its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from ...core.errors import PluginError
from ...core.plugins import Settings
from ...core.records import Stored
from ...environments.turns import Reply, Turn
from ..base import Policy


class Compared(StrEnum):
    """Parts of a recorded episode that its replay is compared with."""

    END = "end"
    STATES = "states"
    REWARDS = "rewards"
    FRAMES = "frames"


class StateSource(StrEnum):
    """Origin of the state that an episode starts from."""

    ROW = "row"
    SEED = "seed"
    PICTURE = "picture"


class Evidence(StrEnum):
    """Confirmation of the actions and the level under a label; a list of these is stored with every label.

    A recorded value is evidence for a turn only if the replay of that turn as an unusable reply, or as another action,
    would contradict it.
    """

    PICTURE = "picture"
    """Recorded pictures have the pixels of the replay."""
    BOARD = "board"
    """Boards in recorded texts are those of the replay."""
    STATE = "state"
    """Recorded states are those of the replay."""
    REWARD = "reward"
    """Recorded rewards are those of the replay."""
    END = "end"
    """The recorded episode ended where the replay does, and only there."""
    INFO = "info"
    """Evidence: recorded measurements equal those of the replay."""
    SUCCESS = "success"
    """All recorded successes of the source, three or more, replay to success."""
    READ = "read"
    """At least 95 % of the source's turns were read, or confirmed as unusable, and no word of others was dropped."""
    DECLARED = "declared"
    """The user declared how the source is read."""
    PLAYED = "played"
    """The episode is a rollout of PIVOT itself."""


def evidence_of(kinds: Iterable[str]) -> tuple[Evidence, ...]:
    """Return the evidence that kinds of recorded values are, in the order of the vocabulary."""
    names = {kind.partition(":")[0] for kind in kinds}
    return tuple(each for each in Evidence if each.value in names)


class LeftOut(StrEnum):
    """Reason why an episode of a source is not in the store."""

    UNREADABLE = "unreadable"
    ENVIRONMENT = "environment"
    SETTINGS = "settings"
    ACTION = "action"
    NO_STATE = "no_state"
    LEVEL = "level"
    DISAGREES = "disagrees"
    UNCONFIRMED = "unconfirmed"
    REPEATED = "repeated"


@dataclass(frozen=True, slots=True)
class DistanceBound:
    """Lower bound on the pivot of a navigation log that has distances to the target, but no state to replay."""

    kind: Annotated[str, Stored("`lower_bound`: the goal was lost at this turn at the latest.")]
    pivot_step: Annotated[int, Stored("First turn after which more movements are needed than actions are left.")]
    failure_mode: Annotated[str, Stored("`format`, `blocked` or `budget`, of that turn.")]
    fallback: Annotated[bool, Stored("Whether no turn was fatal, so that it is the last one by convention.")]
    before: Annotated[int, Stored("Movements that are needed at least before that turn.")]
    after: Annotated[int, Stored("Movements that are needed at least after it.")]
    distances: Annotated[tuple[float, ...], Stored("Metres to the target before the first turn and after each.")]
    left: Annotated[tuple[int, ...], Stored("Most actions that could still run, at the same moments.")]
    step: Annotated[float, Stored("Longest movement, metres.")]
    threshold: Annotated[float, Stored("Distance that is success, metres.")]


@dataclass(frozen=True, slots=True)
class Imported:
    """Origin of one episode of a source: a row of the ``imports`` table."""

    place: Annotated[str, Stored("Where the episode is in the source, such as `episodes.jsonl line 7`.")]
    episode_id: Annotated[str | None, Stored("Id of the episode in the store; null if it was left out.")] = None
    source_id: Annotated[str | None, Stored("Id in the source.")] = None
    source_policy: Annotated[str | None, Stored("Policy that the source names.")] = None
    state_source: Annotated[
        StateSource | None, Stored("Origin of the initial state: the `row`, its `seed`, or the first `picture`.")
    ] = None
    end_agrees: Annotated[
        bool | None,
        Stored("Whether the replay ends as recorded; null if the source does not say how the episode ended."),
    ] = None
    states_agree: Annotated[
        bool | None, Stored("Whether the states of the replay are the recorded ones; null if none were recorded.")
    ] = None
    rewards_agree: Annotated[
        bool | None,
        Stored("Whether the rewards of the replay are the recorded ones, turn by turn; null if none were recorded."),
    ] = None
    frames_agree: Annotated[
        bool | None, Stored("Whether the pictures of the replay have the recorded pixels; null if none were recorded.")
    ] = None
    left_out: Annotated[
        LeftOut | None,
        Stored(
            "Reason why the episode is not in the store: `unreadable`, `environment`, `settings`, `action`, "
            "`no_state`, `level`, `disagrees`, `unconfirmed`, or `repeated` for one that the store has already; null "
            "if it is."
        ),
    ] = None
    detail: Annotated[str | None, Stored("What was found and expected, for an episode that was left out.")] = None
    turn_starts: Annotated[
        tuple[int, ...] | None, Stored("First step of each recorded turn, which may have several actions.")
    ] = None
    recorded_rewards: Annotated[tuple[float, ...] | None, Stored("Recorded rewards, one per turn.")] = None
    recorded_success: Annotated[bool | None, Stored("Whether the episode succeeded, as recorded.")] = None
    other: Annotated[str | None, Stored("Fields that the import has no column for, JSON.")] = None
    evidence: Annotated[
        tuple[Evidence, ...] | None,
        Stored("What confirms the actions and the level; null for an episode that was left out."),
    ] = None
    env: Annotated[str | None, Stored("Environment; null if the episode could not be read as one of it.")] = None
    turns: Annotated[int | None, Stored("Recorded turns up to the end of the replay; null if there was none.")] = None
    unread_turns: Annotated[int | None, Stored("Turns whose reply holds no readable action.")] = None
    dropped_words: Annotated[
        int | None, Stored("Words and parts of replies that could be actions and were not used.")
    ] = None
    trailing_turns: Annotated[int | None, Stored("Replies after the end of the episode.")] = None
    confirmed_turns: Annotated[int | None, Stored("Turns that recorded values confirm.")] = None
    recorded_kinds: Annotated[
        tuple[str, ...] | None,
        Stored(
            "Kinds of recorded values that agree with the replay, before the first turn and after each: `picture`, "
            "`board`, `state`, `reward`, `info:KEY`, `end:terminated`, `end:success`, separated by blanks."
        ),
    ] = None
    calls: Annotated[
        str | None,
        Stored(
            "Calls of tools in the replies, a list per turn of objects with name and arguments, JSON; null without any."
        ),
    ] = None
    bound: Annotated[
        DistanceBound | None,
        Stored("Label of a failure of navigation without a state, from its recorded distances; null for others."),
    ] = None


RECORDED = ("imported", "1")
"""Template and version of prompts that a source recorded."""


class ImportedSettings(Settings):
    """Origin of imported episodes; part of their ids."""

    format: str = ""
    """Format of the source."""
    source: str = ""
    """Name of the source, without its folder."""
    digest: str = ""
    """Digest of the episodes in the store, as they were read."""
    model: str = ""
    """Model that acted, as the user names it."""
    require: tuple[Literal["end", "states", "rewards", "frames"], ...] = ("end", "states")
    """Parts of the record that a replay had to agree in."""


class ImportedPolicy(Policy):
    """Policy whose episodes were imported; it cannot play."""

    name = "imported"
    plays: ClassVar[bool] = False
    config_type: ClassVar[type[Settings]] = ImportedSettings
    settings: ImportedSettings

    @property
    def config(self) -> dict[str, Any]:
        """Return the origin of the episodes."""
        return self.settings.model_dump(mode="json")

    def check(self) -> None:
        """Refuse to play.

        Raises:
            PluginError: always.
        """
        raise PluginError("imported episodes cannot be played again; read their source with: pivot import")

    async def reply(self, turn: Turn) -> Reply:
        """Refuse to play.

        Raises:
            PluginError: always.
        """
        raise PluginError(f"episode {turn.episode_id} was imported and cannot be played again")
