"""The contract of an environment: a gymnasium environment with exact restore, and levels that are plain text.

An episode is reproduced by restoring its initial state text and re-executing the logged actions; nothing else may
matter. A new environment is one file with one :class:`PivotEnv` subclass, one entry point, and one test class that
inherits the contract test.
"""

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import gymnasium
import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from ..errors import ConfigError
from ..identity import digest
from ..images import Frame, encode_png
from ..plugins import Plugin, Settings
from ..solvers.base import unfit_modes

NO_FRAME: Frame = np.zeros((0, 0, 3), np.uint8)
"""What an environment may return where nobody wants a picture; see :attr:`PivotEnv.draw_frames`."""
NO_FRAME.flags.writeable = False


@dataclass(frozen=True, slots=True)
class Source:
    """Something in the rows of an environment that others made, for the licence of a dataset."""

    what: str
    """Half a sentence for the dataset card."""
    licence: str | None
    """Its licence as the Hugging Face hub spells it, such as ``mit``; None where nobody here knows it."""


class EnvConfig(Settings):
    """Settings of one environment; every field can be set by ``--set ENV.KEY=VALUE``."""

    locations: ClassVar[frozenset[str]] = frozenset()
    """Settings that say where something lies on this machine, never what it is: no part of ids and rows."""

    level_sources: ClassVar[frozenset[str]] = frozenset()
    """Those of ``locations`` from which levels are made, where they are not at their default."""

    added: ClassVar[frozenset[str]] = frozenset()
    """Settings that earlier versions lack: they are stored only if they differ from their defaults, to keep ids."""

    horizon: int = Field(gt=0, le=1000)
    """``T_max``, turns."""

    @model_serializer(mode="wrap")
    def _without_added_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        unset = {name for name in self.added if getattr(self, name) == fields[name].get_default()}
        return {name: value for name, value in serialize(self).items() if name not in unset}

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """Parts that stand in for others under these settings, each half a sentence for the dataset card."""
        return ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """What of levels and pictures others made, under these settings; empty where all of it is generated.

        An environment that does not say so is not taken for one that owes nothing to anybody.
        """
        return (Source("levels and pictures of this environment, which does not say who made them", None),)

    @property
    def simulator(self) -> str | None:
        """The backend that these settings choose, for the column ``backend``; None for the profile's."""
        return None

    @property
    def repeats_exactly(self) -> bool:
        """Whether re-execution gives equal frames; a simulator may draw a little differently each time."""
        return True

    @property
    def tolerance(self) -> float:
        """How far a measured number of a re-execution may be off, in its unit: metres of a simulator, or a score."""
        return 0.0

    @property
    def most_instances(self) -> int | None:
        """Most environments that one process should hold at a time; None where they cost little."""
        return None

    def decisive(self) -> dict[str, Any]:
        """Return the resolved settings that decide an episode, as JSON data: what ids and rows are made with."""
        return self.model_dump(mode="json", exclude=set(self.locations))

    def without_locations(self) -> Self:
        """Return the same settings that name no place on this machine."""
        defaults = {name: type(self).model_fields[name].get_default() for name in self.locations}
        return self.model_copy(update=defaults)

    @property
    def levels_from_elsewhere(self) -> str | None:
        """Say where levels are made from, if that is a place outside of PIVOT; None for a generator."""
        fields = type(self).model_fields
        named = {name: getattr(self, name) for name in sorted(self.level_sources)}
        return next((f"{name}={value}" for name, value in named.items() if value != fields[name].get_default()), None)

    @property
    def loads_from_elsewhere(self) -> str | None:
        """Say which model or program is loaded from a place that these settings name; None where none is."""
        return None

    def digest(self) -> str:
        """Return eight hex digits of the decisive settings; part of every task id."""
        return digest(self.decisive(), length=8)


class TurnRewards(EnvConfig):
    """Settings of an environment that rewards every turn and success (table in spec section 2)."""

    added: ClassVar[frozenset[str]] = frozenset({"step_reward", "success_reward"})

    step_reward: float = -0.1
    """Reward of every turn."""
    success_reward: float = 10.0
    """Reward added at the turn that reaches the goal."""


@dataclass(frozen=True, slots=True)
class EnvProfile:
    """What the rest of PIVOT must know about an environment without running it."""

    name: str
    version: str
    backend: str
    """``embedded`` or the simulator's name."""
    answer_tag: str
    """Name of the tag around the action in a reply."""
    unusable_action: str
    """Logged in place of an action when the reply had none: ``invalid`` or ``empty``."""
    failure_modes: tuple[str, ...]
    state_format: str
    log_fields: tuple[str, ...]
    """``info`` keys shown in the compact action log, in order."""
    task_description: str
    """One sentence for the Analyzer and the dataset card."""
    default_tasks: int
    """Task count of the paper."""
    success_return: float = 1.0
    """``R_succ`` by default; used only where ``has_success_bit`` is false. See :attr:`PivotEnv.success_return`."""
    has_success_bit: bool = True
    tiles: Literal["observations", "outcomes"] = "observations"
    """What the pictures for Analyzer and Teacher show: the frames before each action, or, where every action submits a
    whole result, the first frame as the target and then the outcome of each action (spec section 5)."""
    reply_limit: int = 64 * 1024
    """Longest reply that is read and stored, UTF-8 bytes (spec section 2)."""
    keeps_case: bool = False
    """Whether case matters in the text inside the answer tag; otherwise it is folded before it is parsed."""


@dataclass(frozen=True, slots=True)
class Task:
    """One level to be attempted; what travels is data."""

    task_id: str
    seed: int
    """The seed that really made the level: ``reset(seed=seed)`` shows it again at the first try."""
    initial_state: str
    instruction: str
    goal_idx: int = 0
    eval_set: str = "default"


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """An action of the grammar, read from the text inside the answer tag."""

    name: str
    """Normalised name, as logged."""
    payload: str | None = None
    """JSON of the parsed arguments, for environments whose actions carry some."""


class PivotEnv(Plugin, gymnasium.Env[Frame, Any]):
    """A gymnasium environment that can be restored exactly and described as text.

    ``reset(options={"state": text})`` starts from a stored level; ``reset(seed=n)`` generates one. ``info`` after a
    step holds the keys of spec section 4 that apply: ``moved``, ``remaining_turns`` and so on, all *after* the action;
    the environment adds ``success`` (bool). Three more keys have columns of their own: ``observation_text`` (of
    ``reset``, too) is what is told beside the picture, ``submission_outcome`` is ``ok`` or the word for why a
    submission was rejected, ``score_parts`` is JSON of what its score is made of. ``terminated`` means solved or lost
    for good, ``truncated`` that the turn budget is spent. Frames are new read-only arrays: the caller may keep them,
    nobody can change what was hashed.
    """

    profile: ClassVar[EnvProfile]
    config_type: ClassVar[type[EnvConfig]]  # pyright: ignore[reportIncompatibleVariableOverride]
    metadata: ClassVar[dict[str, Any]] = {  # pyright: ignore[reportIncompatibleVariableOverride]
        "render_modes": ["rgb_array"],
        "render_fps": 4,
    }
    draw_frames: bool = True
    """Set to False where most pictures are known already, as in a replay: ``reset``, ``step`` and ``restore`` may then
    return ``NO_FRAME``, and ``render()`` draws the current state when it is wanted. An environment may ignore it."""
    blocks: bool = False
    """True where ``reset``, ``step``, ``render`` or ``close`` wait for another process or the network. Rollouts then
    call them in threads, each instance in one at a time, so that no other episode waits, too."""

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment with ``config`` (defaults when None); ``gymnasium.make`` passes ``render_mode``."""
        self.config = config if config is not None else self.config_type()  # pyright: ignore[reportCallIssue]
        self.render_mode = render_mode

    @classmethod
    def misfit(cls) -> str | None:
        """Say what of the class the dataset could not store; see the base class."""
        if problem := super().misfit():
            return problem
        config_type: type = cls.config_type  # in the declaration alone, a plugin may have put anything there
        if not issubclass(config_type, EnvConfig):
            return f"its config_type is {config_type!r}, expected a subclass of EnvConfig, which has the horizon"
        profile = getattr(cls, "profile", None)
        if not isinstance(profile, EnvProfile):
            return f"its profile is {profile!r}, expected an EnvProfile"
        return unfit_modes(profile.failure_modes)

    @classmethod
    @abstractmethod
    def make_task(cls, config: Any, seed: int) -> Task:
        """Generate the level of ``seed``.

        Tries a bounded number of derived seeds; the returned task records the one that worked.

        Raises:
            GenerationError: no try gave a level with the asked-for properties.
        """

    @classmethod
    def make_level(cls, config: Any, seed: int) -> tuple[Task, ...]:
        """Generate the level of ``seed`` as all tasks that it stands for, one where nothing else is said.

        They may share their id when ``goal_idx`` or ``eval_set`` tells them apart; the first is that of ``make_task``.

        Raises:
            GenerationError: no try gave a level with the asked-for properties.
        """
        return (cls.make_task(config, seed),)

    @classmethod
    def fixed_tasks(cls, config: Any) -> tuple[Task, ...] | None:
        """Return all tasks in order where the settings name a closed list of them; None where seeds make them.

        Raises:
            ConfigError: the list cannot be read.
        """
        del config
        return None

    @classmethod
    def check_ready(cls, config: Any) -> None:
        """Find out, before a long run, whether what runs behind the environment works; most have nothing to check.

        Raises:
            ConfigError: it does not; the message says what to do.
        """
        del config

    @classmethod
    def describe_state(cls, state: str) -> str:
        """Return a state text for people; environments whose texts are long say what matters in a line or two."""
        return state

    @classmethod
    @abstractmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return the text that is equal for equal levels; the dataset split hashes it (spec section 4).

        Raises:
            LevelError: the text is not a level.
        """

    @abstractmethod
    def parse_action(self, answer: str) -> ParsedAction | None:
        """Read exactly one action from the trimmed text inside the answer tag; None when it is not one.

        The text is case-folded, unless ``profile.keeps_case``.
        """

    @abstractmethod
    def encode_action(self, name: str, payload: str | None = None) -> Any:
        """Return the member of ``action_space`` for a logged action, the unusable one included.

        Raises:
            ValueError: no such action.
        """

    @abstractmethod
    def state_text(self) -> str:
        """Return the current state in ``profile.state_format``."""

    def changing_state(self) -> str:
        """Return what of the state text turns change, for the column ``state`` of every step.

        All of it unless an environment says otherwise: what stays as it was need not be told each turn.
        """
        return self.state_text()

    @abstractmethod
    def snapshot(self) -> bytes:
        """Return the exact current state, turn count included."""

    @abstractmethod
    def restore(self, snapshot: bytes) -> Frame:
        """Return to a snapshot of the same level and give its frame; what follows is identical to the first time."""

    def asked_level(self, seed: int | None, options: dict[str, Any] | None) -> tuple[str, str | None]:
        """Return state text and instruction that ``reset`` is asked for; for use after ``super().reset(seed=seed)``.

        The text is ``options["state"]``, or the level of ``seed`` (drawn when None); the instruction is None unless
        given.

        Raises:
            ConfigError: ``options`` has an unknown key.
            GenerationError: no level was found.
        """
        options = options or {}
        if unknown := sorted(set(options) - {"state", "instruction"}):
            raise ConfigError(f"unknown reset options {unknown}; known: instruction, state")
        text = options.get("state")
        if text is None:
            if seed is None:
                seed = int(self.np_random.integers(2**63 - 1))
            text = self.make_task(self.config, seed).initial_state
        return text, options.get("instruction")

    def frame_key(self) -> Hashable | None:
        """Return a key that is equal only for equal frames of this level, or None to hash every frame."""
        return None

    def encode_frame(self, frame: Frame) -> tuple[str, bytes]:
        """Return format and bytes under which the current frame is stored; they decode to exactly ``frame``.

        An environment that stores a lossy format therefore returns decoded frames from the beginning.
        """
        return "png", encode_png(frame)

    @property
    def success_return(self) -> float:
        """``R_succ``: the return from which on an episode without a success bit counts as a success."""
        return self.profile.success_return

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """Build the environment from the JSON stored as ``env_config``."""
        return cls(cls.config_type(**settings))
