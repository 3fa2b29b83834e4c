"""Any deterministic gymnasium environment with a finite list of actions, by its id.

The environment's own rules and pictures are used as they are; PIVOT adds the turn budget, which takes the place of the
environment's time limit, and an unusable action that costs a turn. A state is the JSON of a level (id, arguments, seed,
named actions) and the actions taken since its start; restoring replays them.
"""

import json
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, ClassVar, SupportsIndex

import numpy as np
from gymnasium import spaces
from pydantic import Field

from ...core.errors import CertifyError, ConfigError, GenerationError, LevelError
from ...core.identity import canonical_json
from ...solvers.closure.actions import folded
from ...solvers.closure.game import Game, GameSettings, Level, close, first_level
from ...solvers.closure.graph import IDLE, OUT_OF_BUDGET
from ...solvers.closure.success import rule_of
from ..base import NO_FRAME, EnvConfig, EnvProfile, Frame, Info, NamedActions, ParsedAction, Source, Task
from .first_levels import FirstLevels, first_levels

_LARGEST_SEED = 2**31


class GymConfig(EnvConfig, GameSettings):
    """Settings of one gymnasium environment."""

    added: ClassVar[frozenset[str]] = frozenset({"first_search"})

    horizon: int = Field(default=40, gt=0, le=1000)
    """``T_max``, turns. It takes the place of the environment's own time limit."""
    first_search: int = Field(default=5_000, ge=1)
    """Maximum number of states of each of the levels of seeds 0 to 4 that are searched before a run, in four minutes
    each. If no state of the first level repeats until then, the environment is refused; raise it for a game in which
    every turn leads to a new state."""
    mission: str = ""
    """Task of the agent; empty for the environment's ``mission``, else its id."""

    @property
    def simulator(self) -> str | None:
        """Package of the environment."""
        return self.module or "gymnasium"

    @property
    def sources(self) -> tuple[Source, ...]:
        """The environment's package; that of MiniGrid and gymnasium is known."""
        licence = {"": "mit", "minigrid": "apache-2.0"}.get(self.module) if self.is_known else None
        return (Source(f"levels and pictures of the environment {self.id} of {self.simulator}", licence),)

    @property
    def code(self) -> dict[str, str]:
        """The environment's package and the functions that judge steps."""
        return self.game.code

    @property
    def game(self) -> GameSettings:
        """The part of the settings that decides the game."""
        return GameSettings(**{name: getattr(self, name) for name in GameSettings.model_fields})

    def first_levels(self) -> FirstLevels:
        """Return the first levels of the settings, with the rule of success in them; see :func:`.first_levels`."""
        return first_levels(self.game, self.horizon, self.first_search)


class GymEnv(NamedActions):
    """A gymnasium environment by its id; see the module docstring and :class:`~pivot.environments.base.PivotEnv`."""

    config: GymConfig
    config_type: ClassVar[type[EnvConfig]] = GymConfig
    profile: ClassVar[EnvProfile] = EnvProfile(
        name="gym",
        version="1",
        backend="gymnasium",
        answer_tag="action",
        unusable_action=IDLE,
        failure_modes=("timeout", "deadlock", OUT_OF_BUDGET),
        state_format="gym-level-json",
        log_fields=("moved", "remaining_turns"),
        task_description="A gymnasium environment: take one named action a turn until the goal is reached.",
        default_tasks=100,
    )

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Make the environment.

        Raises:
            ConfigError: it cannot be made, or has no finite list of actions.
        """
        super().__init__(config, render_mode)
        settings = self.config.game
        modes = (*self.profile.failure_modes, *settings.failure_modes)
        self.profile = replace(self.profile, failure_modes=modes)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            settings.predicates()
            level, env = first_level(settings, 0)
            close(env)
            self._game = Game(settings.make("rgb_array"), level)
            self._key = self._game.key(self._game.reset()[0])
            self._shape = self._picture().shape
        except CertifyError as error:
            raise ConfigError(str(error)) from error
        self.actions = tuple(level.actions)  # pyright: ignore[reportAttributeAccessIssue]
        self.action_space = spaces.Discrete(len(level.actions) + 1)
        self.observation_space = spaces.Box(0, 255, self._shape, np.uint8)
        self._turn, self._ended, self._won = 0, True, False

    @classmethod
    def make_task(cls, config: GymConfig, seed: int) -> Task:
        """Return the level of a seed, and the mission of its start; see the base class."""
        if seed < 0:
            raise GenerationError(f"gym seed {seed} is negative; use a seed of 0 or more")
        seed = int(seed) % _LARGEST_SEED
        try:
            level, env = first_level(config.game, seed, config.horizon)
            first = config.first_levels()
        except CertifyError as error:
            raise GenerationError(str(error)) from error
        success = {"success": first.rule, "success_steps": (first.success.steps, first.success.ending)}
        Game(env, level).reset()
        mission = config.mission or str(getattr(env.unwrapped, "mission", "") or config.id)
        close(env)
        return Task(
            task_id=f"{cls.profile.name}-{config.digest()}-{seed}",
            seed=seed,
            initial_state=level.model_copy(update=success).text(),
            instruction=f"{config.id}: {mission} (at most {config.horizon} turns)",
        )

    @classmethod
    def check_ready(cls, config: GymConfig) -> str:
        """Draw a picture, search the first levels, and return what success is in them; see the base class."""
        cls(config).close()
        try:
            first = config.first_levels()
        except CertifyError as error:
            raise ConfigError(f"gym.id={config.id!r} cannot be labelled: {error}") from error
        graph = first.graphs[0]
        if graph.limit and not graph.repeats:
            raise ConfigError(
                f"gym.id={config.id!r}: every turn leads to a new state in the {len(graph.successors)} states of the "
                f"level of seed 0 that were searched, expected states that repeat; if an attribute records the turns, "
                "remove it, or set gym.key=observation where the observation shows the full state; if the game is so, "
                "raise gym.first_search"
            )
        return first.table()

    @classmethod
    def describe_state(cls, state: str) -> str:
        """Return id, seed and the actions taken; see the base class."""
        level = Level.read(state)
        return f"{level.id}, seed {level.seed}, after {' '.join(level.taken) or 'no action'}"

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return the level as canonical JSON without defaults; see the base class."""
        return Level.read(initial_state).text()

    def parse_action(self, answer: str) -> ParsedAction | None:
        """Parse exactly one action name in any case; spaces count as underscores."""
        return next((ParsedAction(name) for name in self.actions if folded(name) == folded(answer)), None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Info]:
        """Start an episode from ``options["state"]``, or from the level of ``seed`` (sampled if None).

        Raises:
            LevelError: the state text is not a level of this environment. ConfigError: ``options`` has an unknown key.
        """
        super().reset(seed=seed)
        text, _ = self.asked_level(seed, options)
        self._load(text)
        self._turn, self._ended = 0, self._won
        return self._frame(), {"remaining_turns": self.config.horizon, "success": self._won}

    def _load(self, text: str) -> None:
        level = Level.read(text)
        expected = self.config.game.model_dump(
            exclude={"actions", "clock", *(() if self.config.success else ("success",))}
        )
        if {name: getattr(level, name) for name in expected} != expected:
            raise LevelError(
                f"the gym level is of {level.id!r} with other settings than this environment's {self.config.id!r}"
            )
        self._game = Game(self._game.env, level)
        self.actions = tuple(level.actions)  # pyright: ignore[reportAttributeAccessIssue]
        observation, info = self._game.reset()
        self._rule = rule_of(level.success or self.config.first_levels().rule)
        self._won = self._rule.won_at_start(info)
        self._key = self._game.key(observation)

    def step(self, action: SupportsIndex) -> tuple[Frame, float, bool, bool, Info]:
        """Take an action, or waste the turn with the last index.

        Raises:
            ResetNeeded: the episode is over.
        """
        place = self.checked_index(action, ended=self._ended)
        reward, lost, moved, name = 0.0, False, False, (*self.actions, IDLE)[place]
        answer = self._game.step(name) if place < self.last_index else None
        if answer is not None:
            observation, raw, terminated, _, info = answer
            reward = float(raw)
            self._won = self._rule.won(self._game.env, reward, bool(terminated), info)
            lost = bool(terminated) and not self._won
            self._game.level = self._game.level.model_copy(update={"taken": (*self._game.level.taken, name)})
            before, self._key = self._key, self._game.key(observation)
            moved = before != self._key
        self._turn += 1
        left = self.config.horizon - self._turn
        over = self._won or lost
        self._ended = over or left == 0
        after: Info = {
            "moved": moved,
            "action_is_valid": answer is not None,
            "remaining_turns": left,
            "success": self._won,
        }
        return self._frame(), reward, over, left == 0 and not over, after

    def render(self) -> Frame:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the environment's own picture of the current state."""
        return self._picture()

    def _frame(self) -> Frame:
        return self._picture() if self.draw_frames else NO_FRAME

    def _picture(self) -> Frame:
        picture: Any = self._game.render()
        if getattr(picture, "dtype", None) != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (3, 4):
            raise ConfigError(
                f"gym.id={self.config.id!r} draws {type(picture).__name__}, expected an RGB picture of render_mode "
                "'rgb_array'; wrap the environment in one that draws"
            )
        frame = np.array(picture[..., :3])  # without transparency
        frame.flags.writeable = False
        return frame

    def state_text(self) -> str:
        """Return the level and the actions taken as canonical JSON."""
        return self._game.level.text()

    def state_key(self) -> Hashable:
        """Return the key of the game's state, whichever actions led to it; see the base class."""
        return self._key

    def snapshot(self) -> bytes:
        """Return level, turn and end; see the base class."""
        return canonical_json([self.state_text(), self._turn, self._ended]).encode()

    def restore(self, snapshot: bytes) -> Frame:
        """Replay the actions of a snapshot; see the base class."""
        text, turn, ended = json.loads(snapshot)
        self._load(text)
        self._turn, self._ended = turn, ended
        return self._frame()

    def close(self) -> None:
        """Close the environment."""
        close(self._game.env)
