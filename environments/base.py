"""The contract of an environment: a gymnasium environment with exact restore, and levels that are plain text.

An episode is reproduced by restoring its initial state text and re-executing the logged actions; nothing else may
matter. A new environment is one file with one :class:`PivotEnv` subclass, one entry point, and one test class that
inherits the contract test.
"""

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, SupportsIndex

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from ..core.contracts import FINITE, Answer, Fits, Misfit, Misfits, Terms, Text, check_of
from ..core.errors import ConfigError
from ..core.identity import digest
from ..core.images import CODECS, LOSSLESS, Frame
from ..core.plugins import Plugin, Settings
from ..solvers.base import unfit_modes

NO_FRAME: Frame = np.zeros((0, 0, 3), np.uint8)
"""Stand-in for a frame that the caller does not need; see :attr:`PivotEnv.draw_frames`."""
NO_FRAME.flags.writeable = False


def _is_frame(value: Any) -> bool:
    frame: Frame = value
    return isinstance(value, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3


RgbFrame = Annotated[Any, Fits(_is_frame, "an RGB frame: a uint8 array of shape (height, width, 3)")]
Flag = bool | np.bool_
Number = Annotated[Any, Fits(lambda value: type(value) in (int, float, type(None)), "a number or None")]
"""A measurement; one that is not finite was not made, and is stored as null."""
_SCALARS = (bool, int, float, str, type(None))
Scalar = Annotated[Any, Fits(lambda value: type(value) in _SCALARS, "True, False, a number, a text or None")]
_Reward = Annotated[float, FINITE] | np.floating[Any] | np.integer[Any]
Reward = Annotated[_Reward, Fits(math.isfinite, "a finite number")]
Info = dict[str, Any]
CodecName = Annotated[str, Fits(lambda name: name in CODECS, "a name of pivot.core.images.CODECS")]


@dataclass(frozen=True, slots=True)
class Source:
    """Third-party material in the rows of an environment; decides the licence of a dataset."""

    what: str
    """Noun phrase for the dataset card."""
    licence: str | None
    """Licence as the Hugging Face hub spells it, such as ``mit``; None if it is unknown."""


class EnvConfig(Settings):
    """Settings of one environment; every field can be set by ``--set ENV.KEY=VALUE``."""

    locations: ClassVar[frozenset[str]] = frozenset()
    """Names of settings that are paths on this machine; ids and rows do not contain them."""

    level_sources: ClassVar[frozenset[str]] = frozenset()
    """Names in ``locations`` whose files contain levels."""

    added: ClassVar[frozenset[str]] = frozenset()
    """Settings that are stored, and part of ids, only if they differ from their defaults."""

    horizon: int = Field(gt=0, le=1000)
    """``T_max``, turns."""

    @model_serializer(mode="wrap")
    def _without_added_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        unset = {name for name in self.added if getattr(self, name) == fields[name].get_default()}
        return {name: value for name, value in serialize(self).items() if name not in unset}

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """Built-in replacements of simulators or models under these settings, as phrases for the dataset card."""
        return ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """Third-party material in levels and pictures under these settings; empty if everything is generated.

        The default is one source of unknown licence, so that a plugin must declare that it has none.
        """
        return (Source("levels and pictures of this environment, which does not say who made them", None),)

    @property
    def simulator(self) -> str | None:
        """Backend that these settings choose, for the column ``backend``; None if it is the profile's."""
        return None

    @property
    def repeats_exactly(self) -> bool:
        """Whether re-execution gives identical frames; the rendering of a simulator may vary slightly."""
        return True

    @property
    def tolerance(self) -> float:
        """Largest absolute difference of a number between executions, in its unit (metres, or a score)."""
        return 0.0

    @property
    def most_instances(self) -> int | None:
        """Maximum number of simultaneous instances per process; None if instances are cheap."""
        return None

    def decisive(self) -> dict[str, Any]:
        """Return the resolved settings that affect an episode, as JSON data, for ids and rows."""
        return self.model_dump(mode="json", exclude=set(self.locations))

    def without_locations(self) -> Self:
        """Return the same settings without paths on this machine."""
        defaults = {name: type(self).model_fields[name].get_default() for name in self.locations}
        return self.model_copy(update=defaults)

    @property
    def levels_from_elsewhere(self) -> str | None:
        """Setting that names the files of levels, as ``name=value``; None if a generator makes the levels."""
        fields = type(self).model_fields
        named = {name: getattr(self, name) for name in sorted(self.level_sources)}
        return next((f"{name}={value}" for name, value in named.items() if value != fields[name].get_default()), None)

    @property
    def code(self) -> dict[str, str]:
        """Modules and models outside of PIVOT that these settings name, with ``ENV.KEY``; see :mod:`.admission`."""
        return {}

    def digest(self) -> str:
        """Return eight hex digits of the hash of :meth:`decisive`; part of every task id."""
        return digest(self.decisive(), length=8)


def actions_per_turn(settings: EnvConfig | Mapping[str, Any]) -> int:
    """Return the most actions of a turn under the settings of an environment; 1 where none of them says it."""
    values = settings if isinstance(settings, Mapping) else vars(settings)
    return int(values.get("actions_per_turn", 1))


class TurnRewards(EnvConfig):
    """Settings of an environment that rewards every turn and success."""

    added: ClassVar[frozenset[str]] = frozenset({"step_reward", "success_reward"})

    step_reward: float = -0.1
    """Reward of every turn."""
    success_reward: float = 10.0
    """Reward added at the turn that reaches the goal."""


@dataclass(frozen=True, slots=True)
class EnvProfile:
    """Static description of an environment, for code that does not run it."""

    name: str
    version: str
    backend: str
    """``embedded`` or the simulator's name."""
    answer_tag: str
    """Name of the tag that encloses the action in a reply, such as ``action`` in ``<action>up</action>``."""
    unusable_action: str
    """Name that is logged if a reply contains no valid action, such as ``invalid`` or ``empty``."""
    failure_modes: tuple[str, ...]
    state_format: str
    log_fields: tuple[str, ...]
    """``info`` keys shown in the compact action log, in order."""
    task_description: str
    """One sentence for the Analyzer and the dataset card."""
    default_tasks: int
    """Number of tasks in the paper."""
    success_return: float = 1.0
    """Default of ``R_succ``; used only if ``has_success_bit`` is false. See :attr:`PivotEnv.success_return`."""
    has_success_bit: bool = True
    tiles: Literal["observations", "outcomes"] = "observations"
    """Content of the pictures for Analyzer and Teacher: ``observations`` are the frames before each action;
    ``outcomes``, for actions that submit a whole result, are the target and the result of each action."""
    reply_limit: int = 64 * 1024
    """Maximum length of a reply that is parsed and stored, UTF-8 bytes."""
    info_keys: tuple[str, ...] = ()
    """The environment's own keys of ``info``: flags, numbers or texts that are stored with every step after those of
    :data:`INFO_TYPES`, and may be in ``log_fields``."""
    actions_per_turn: int = 1  # most actions of a turn; settings may raise it for a run
    keeps_case: bool = False
    """Whether the text inside the answer tag is case-sensitive; otherwise it is case-folded before parsing."""


@dataclass(frozen=True, slots=True)
class Task:
    """A level to attempt, as plain data that can be sent to another process."""

    task_id: str
    seed: int | None
    """Seed that generated the level: ``reset(seed=seed)`` regenerates it at the first try. None only for a level of an
    imported episode whose source does not say it."""
    initial_state: str
    instruction: str
    goal_idx: int = 0
    eval_set: str = "default"


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """An action that was parsed from the text inside the answer tag."""

    name: str
    """Normalised name, as logged."""
    payload: str | None = None
    """JSON of the parsed arguments; None if the actions of the environment have none."""


INFO_TYPES: Mapping[str, Any] = {
    "moved": bool | None,
    "last_action_success": bool,
    "action_is_valid": bool,
    "dist": Number,
    "remaining_turns": int,
    "legal": bool,
    "remaining_stages": int,
    "valid_svg": bool,
    "average_score": Number,
}
"""Keys of ``info`` that are stored for every environment, in the order of the stored JSON."""

_OTHER_INFO: Mapping[str, Any] = {
    "success": bool,
    "observation_text": Text,
    "submission_outcome": str | None,
    "score_parts": str | None,
}
"""Keys of ``info`` with a column of their own."""


def _info_misfits(env: "PivotEnv", answer: tuple[Any, ...], *_: Any) -> Misfits:
    """Yield what is wrong with the ``info`` at the end of an answer of ``reset`` or ``step``."""
    info, at, profile = answer[-1], f"[{len(answer) - 1}]", env.profile
    if len(answer) == 5 and profile.has_success_bit and "success" not in info:
        yield Misfit(f"{at}['success']", None, "True or False: profile.has_success_bit is set")
    for key, value in info.items():
        kind = INFO_TYPES.get(key) or _OTHER_INFO.get(key) or (Scalar if key in profile.info_keys else None)
        if kind is None:
            yield Misfit(f"{at}[{key!r}]", value, "only keys of the contract or of profile.info_keys; list it there")
        elif misfit := check_of(kind)(value.item() if isinstance(value, np.generic) else value):
            yield misfit._replace(field=f"{at}[{key!r}]")


def _seed_misfits(_: "PivotEnv", task: Task, *__: Any) -> Misfits:
    """Yield a generated level without a seed: only an imported one may lack it."""
    if task.seed is None:
        yield Misfit(".seed", None, "an integer")


class PivotEnv(Plugin, gymnasium.Env[Frame, Any]):
    """A gymnasium environment that can be restored exactly and described as text.

    ``reset(options={"state": text})`` starts from a stored level; ``reset(seed=n)`` generates one. ``info`` after a
    step holds the keys of :data:`INFO_TYPES` that apply (``moved``, ``remaining_turns``, ...), all *after* the action,
    and ``success`` (bool). Three more keys have their own columns: ``observation_text`` (also returned by ``reset``) is
    the text shown with the picture, ``submission_outcome`` is ``ok`` or the reason why a submission was rejected, and
    ``score_parts`` is JSON of the components of its score. ``terminated`` means solved or irreversibly lost,
    ``truncated`` means that the turn budget is spent. Every frame is a new read-only array, so callers may keep it and
    nobody can change pixels after they were hashed.
    """

    profile: ClassVar[EnvProfile]
    config_type: ClassVar[type[EnvConfig]]  # pyright: ignore[reportIncompatibleVariableOverride]
    metadata: ClassVar[dict[str, Any]] = {  # pyright: ignore[reportIncompatibleVariableOverride]
        "render_modes": ["rgb_array"],
        "render_fps": 4,
    }
    draw_frames: bool = True
    """False if the caller already has most frames, as in a replay: ``reset``, ``step`` and ``restore`` may then return
    ``NO_FRAME``, and the caller draws the current state with ``render()``. An environment may ignore it."""
    terms: ClassVar[Terms] = Terms(
        answers={
            "make_task": Answer(Task, _seed_misfits),
            "make_level": Answer(Annotated[tuple[Task, ...], Fits(bool, "at least one Task")]),
            "fixed_tasks": Answer(tuple[Task, ...] | None),
            "describe_state": Answer(Text),
            "canonical_state": Answer(Text),
            "parse_action": Answer(ParsedAction | None),
            "state_text": Answer(Text),
            "changing_state": Answer(Text),
            "snapshot": Answer(bytes),
            "restore": Answer(RgbFrame),
            "reset": Answer(tuple[RgbFrame, Info], _info_misfits),
            "step": Answer(tuple[RgbFrame, Reward, Flag, Flag, Info], _info_misfits),
            "render": Answer(RgbFrame),
            "frame_key": Answer(Annotated[Any, Fits(lambda key: isinstance(key, Hashable), "a hashable key or None")]),
            "encode_frame": Answer(tuple[CodecName, bytes]),
            "success_return": Answer(Annotated[float, FINITE]),
        }
    )
    actions: ClassVar[tuple[str, ...]] = ()
    """Names of the usable actions; empty where they are no list, and of a class whose list is that of each level."""
    blocks: bool = False
    """True if ``reset``, ``step``, ``render`` or ``close`` wait for another process or the network. Rollouts then call
    each instance in a thread, one call at a time, so that other episodes continue meanwhile."""

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment with ``config`` (defaults when None); ``gymnasium.make`` passes ``render_mode``."""
        self.config = config if config is not None else self.config_type()  # pyright: ignore[reportCallIssue]
        self.render_mode = render_mode

    @classmethod
    def misfit(cls) -> str | None:
        """Return why the dataset cannot store episodes of this class, or None; see the base class."""
        if problem := super().misfit():
            return problem
        config_type: type = cls.config_type  # a plugin can assign any type, whatever the annotation says
        if not issubclass(config_type, EnvConfig):
            return f"its config_type is {config_type!r}, expected a subclass of EnvConfig, which has the horizon"
        profile: EnvProfile = getattr(cls, "profile", None)  # pyright: ignore[reportAssignmentType] - not checked yet
        if misfit := check_of(EnvProfile)(profile):
            return f"its profile{'.' * bool(misfit.field)}{misfit.field} is {misfit}"
        if unstored := [name for name in profile.log_fields if name not in {*INFO_TYPES, *profile.info_keys}]:
            return f"its profile.log_fields names {unstored[0]!r}, which no step stores; add it to profile.info_keys"
        if clash := [name for name in profile.info_keys if name in {*INFO_TYPES, *_OTHER_INFO}]:
            return f"its profile.info_keys names {clash[0]!r}, which has a meaning of its own; leave it out"
        return unfit_modes(profile.failure_modes)

    @classmethod
    @abstractmethod
    def make_task(cls, config: Any, seed: int) -> Task:
        """Generate the level of ``seed``.

        Tries a bounded number of derived seeds; the returned task records the seed that succeeded.

        Raises:
            GenerationError: no attempt gave a level that meets the settings.
        """

    @classmethod
    def make_level(cls, config: Any, seed: int) -> tuple[Task, ...]:
        """Generate the level of ``seed`` and return all tasks in it; by default there is one.

        Tasks may share their id if they differ in ``goal_idx`` or ``eval_set``; the first is that of ``make_task``.

        Raises:
            GenerationError: no attempt gave a level that meets the settings.
        """
        return (cls.make_task(config, seed),)

    @classmethod
    def fixed_tasks(cls, config: Any) -> tuple[Task, ...] | None:
        """Return all tasks in order if the settings name a fixed list of them; None if seeds generate them.

        Raises:
            ConfigError: the list cannot be read.
        """
        del config
        return None

    @classmethod
    def check_ready(cls, config: Any) -> str | None:
        """Check, before a long run, that the backend works; return a note for people, such as what counts as success.

        Raises:
            ConfigError: the backend does not work; the message says what to do.
        """
        del config

    @classmethod
    def describe_state(cls, state: str) -> str:
        """Return a state for human readers, at most a few lines; the default is the state text itself."""
        return state

    @classmethod
    @abstractmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return a normal form of the text, equal for equal levels; the dataset split hashes it.

        Raises:
            LevelError: the text is not a level.
        """

    @abstractmethod
    def parse_action(self, answer: str) -> ParsedAction | None:
        """Parse exactly one action from the trimmed text inside the answer tag; return None if it is not one.

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
        """Return the part of the state text that actions change, for the column ``state`` of every step.

        The default is the whole text; override it to leave out the parts that stay constant within an episode.
        """
        return self.state_text()

    @abstractmethod
    def snapshot(self) -> bytes:
        """Return the exact current state, turn count included."""

    def state_key(self) -> Hashable:
        """Return a key that is equal for states of a level in which equal actions have equal results."""
        return self.state_text()

    @abstractmethod
    def restore(self, snapshot: bytes) -> Frame:
        """Restore a snapshot of the same level and return its frame; equal actions then have identical results."""

    def asked_level(self, seed: int | None, options: dict[str, Any] | None) -> tuple[str, str | None]:
        """Return the state text and the instruction that ``reset`` starts from.

        Call ``super().reset(seed=seed)`` first. The text is ``options["state"]``, or the level of ``seed`` (sampled if
        None); the instruction is ``options["instruction"]``, else None.

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
        """Return a key such that equal keys imply equal frames of this level, or None to hash every frame."""
        return None

    def frames_inside(self) -> Sequence[Frame]:
        """Return the frames between the actions of the last turn; none where a turn has one action."""
        return ()

    def encode_frame(self, frame: Frame) -> tuple[str, bytes]:
        """Return codec name (see :data:`pivot.core.images.CODECS`) and stored bytes; they decode to exactly ``frame``.

        With a lossy codec, ``reset`` and ``step`` must therefore already return decoded frames.
        """
        return LOSSLESS, CODECS[LOSSLESS].encode(frame)

    @property
    def success_return(self) -> float:
        """``R_succ``: the smallest return at which an episode without a success bit counts as a success."""
        return self.profile.success_return

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """Build the environment from the JSON stored as ``env_config``."""
        return cls(cls.config_type(**settings))


class NamedActions(PivotEnv):
    """An environment whose actions are names without arguments, by index; the unusable action is the last index."""

    def parse_action(self, answer: str) -> ParsedAction | None:
        """Parse exactly one action; return None for anything else."""
        return ParsedAction(answer) if answer in self.actions else None

    def encode_action(self, name: str, payload: str | None = None) -> int:
        """Return the action's index; see the base class."""
        names = (*self.actions, self.profile.unusable_action)
        if name not in names or payload is not None:
            argument = "" if payload is None else f" with payload {payload!r}"
            raise ValueError(f"no action {name!r}{argument}; actions are {', '.join(names)}, no payload")
        return names.index(name)

    @property
    def last_index(self) -> int:
        """Largest member of ``action_space``."""
        return len(self.actions)

    def checked_index(self, action: SupportsIndex, *, ended: bool) -> int:
        """Return the index of an action for ``step``; ``ended`` says whether the episode is over.

        Raises:
            ValueError: ``action`` is not in the action space.
            gymnasium.error.ResetNeeded: the episode is over.
        """
        index = action.__index__()
        if not 0 <= index <= self.last_index:
            raise ValueError(f"action {index} is not in [0, {self.last_index}]; use encode_action(name)")
        if ended:
            raise ResetNeeded(f"the {self.profile.name} episode is over or not begun; call reset() or restore() first")
        return index
