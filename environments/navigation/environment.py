"""Navigation: find a named object in a furnished room from first-person views.

There are eight actions: move half a metre ahead, back, right or left, turn right or left by 90 degrees, look up or down
by 30 degrees. A movement that would hit an obstacle fails and leaves the agent in place. The episode ends with success
within 1.5 m of the target, measured along the floor, or when the turn budget is spent. States are
``navigation-json-1`` texts (see ``state.py``). The backend is an embedded room by default, or AI2-THOR.

Frames are 255x255 pixels, by default decoded from JPEG, so that the dataset stores exactly what a model saw. The
embedded renderer gives equal pixels on every machine; those of the JPEG also depend on Pillow's decoder.
"""

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, SupportsIndex

import numpy as np
from gymnasium import spaces
from pydantic import Field, ValidationInfo, model_validator

from ...core.errors import ConfigError
from ...core.images import codec
from ...core.plugins import STORED
from ..backends import EMBEDDED, BackendConfig, BackendEnv, ImageCodec, installed
from ..base import EnvConfig, EnvProfile, Frame, Info, NamedActions, Source, Task
from ..generated import first_level
from ..grid import UNUSABLE
from .files import files_digest, read_task_files
from .room import RoomWorld, check_room
from .state import THOR, NavigationState, Pose, parse_state
from .tasks import base_instruction, common_sense_instruction, draw_task
from .thor.world import ThorWorld
from .view.scene import SIDE, draw_view
from .world import ACTIONS, World

ART = 2
"""Version of rooms and renderer; part of the environment's version, because equal levels then look different."""
BASE, COMMON_SENSE = "base", "common_sense"
REACH = 1.5
"""Success distance, metres."""
PUBLISHED_STARTS = 2.51, 3.0
"""Minimum and maximum distance of a published start from its target along the floor, metres."""
NEAREST_WAY = 3
"""Fewest turns from a published start to success."""
STILL = 0.001
"""Largest displacement of a simulator's agent that counts as no movement, metres."""
UNUSABLE_INDEX = len(ACTIONS)


class NavigationConfig(BackendConfig):
    """Settings of navigation; horizon and rewards default to the paper's."""

    locations: ClassVar[frozenset[str]] = frozenset({"task_files"})
    level_sources: ClassVar[frozenset[str]] = locations
    added: ClassVar[frozenset[str]] = BackendConfig.added | {"starts"}
    stand_in: ClassVar[str] = (
        "the rooms of navigation are embedded, seeded and drawn by a ray caster in place of AI2-THOR's scenes"
    )
    simulated: ClassVar[str] = "pictures of AI2-THOR's scenes and objects"

    horizon: int = Field(default=25, gt=0, le=1000)
    """``T_max``, turns."""
    backend: Literal["embedded", "thor"] = "embedded"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Simulator: the embedded rooms, or AI2-THOR (needs the ``thor`` extra and a GPU)."""
    task_files: tuple[str, ...] = ()
    """Task files in the published format, one split per file; required for ``thor``, which has no task generator."""
    task_digest: str = ""
    """Filled in: the digest of the tasks in ``task_files``."""
    thor_version: str = ""
    """Filled in: the version of AI2-THOR, which determines rooms and physics."""
    image_format: ImageCodec = "jpeg"
    """Codec of the stored frames, which are what a model sees: ``jpeg`` of quality 90, or the lossless ``png``."""
    starts: Literal["varied", "published"] = "varied"
    """``varied``: starts whose shortest path has ``min_steps`` to ``max_steps`` turns. ``published``: such starts that
    are also 2.51 to 3.00 m from the target in a straight line, like the published tasks; ``min_steps`` is then 3."""
    min_steps: int = Field(default=4, ge=1, le=1000)
    """Minimum length of the shortest path in a generated task, turns."""
    max_steps: int = Field(default=13, ge=1, le=1000)
    """Maximum length of the shortest path, turns; at most the horizon. The longest paths in rooms have about 15."""
    max_tries: int = Field(default=200, ge=1, le=100_000)
    """Maximum number of rooms to sample per level; with the default range most rooms have a task."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """AI2-THOR's scenes and the tasks of the files; empty for embedded rooms."""
        files = ", ".join(Path(name).name for name in self.task_files)
        tasks = (Source(f"tasks and instructions of the files {files}", None),) if files else ()
        return (*super().sources, *tasks)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, dict):
            return values
        files = values.get("task_files") or ()
        names = (files,) if isinstance(files, str) else tuple(files)
        names = tuple(str(Path(str(name)).expanduser().absolute()) for name in names)
        if values.get("backend") != THOR:
            if names:
                raise ValueError(f"task_files need backend={THOR}; the embedded rooms make their own tasks")
            return {"min_steps": NEAREST_WAY} | values if values.get("starts") == "published" else values
        if values.get("starts", "varied") != "varied":
            raise ValueError(f"starts needs backend={EMBEDDED}; with backend={THOR} the task files define the starts")
        filled = {"thor_version": values.get("thor_version") or installed("ai2thor", THOR), "task_files": names}
        if names and not values.get("task_digest"):
            if info.context == STORED:
                raise ValueError("task_digest is missing although task_files is set; copy it from the store's run.json")
            try:
                filled["task_digest"] = files_digest(names)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return values | filled

    @model_validator(mode="after")
    def _check_range(self) -> "NavigationConfig":
        if self.min_steps > min(self.max_steps, self.horizon):
            raise ValueError(
                f"min_steps={self.min_steps} is above max_steps={self.max_steps} or horizon={self.horizon}; no task "
                "can have such a path"
            )
        return self


class NavigationEnv(BackendEnv, NamedActions):
    """Search for an object in a room; see the module docstring and :class:`~pivot.environments.base.PivotEnv`."""

    config: NavigationConfig
    config_type: ClassVar[type[EnvConfig]] = NavigationConfig
    actions: ClassVar[tuple[str, ...]] = ACTIONS
    profile: ClassVar[EnvProfile] = EnvProfile(
        name="navigation",
        version=f"1+art-{ART}",
        backend=EMBEDDED,
        answer_tag="action",
        unusable_action=UNUSABLE,
        failure_modes=("format", "blocked", "stagnation", "budget"),
        state_format="navigation-json-1",
        log_fields=("moved", "last_action_success", "action_is_valid", "dist", "remaining_turns"),
        task_description=(
            "Navigation: see a furnished room through the agent's eyes, walk half-metre steps, turn by quarters, and "
            "come within 1.5 m of the thing that the instruction asks for before the turns run out."
        ),
        default_tasks=120,
    )

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; call ``reset`` before any other method."""
        super().__init__(config, render_mode)
        self.action_space = spaces.Discrete(len(ACTIONS) + 1)
        self.observation_space = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
        self._world: World = RoomWorld() if self.config.backend == EMBEDDED else ThorWorld()

    # --- levels ------------------------------------------------------------------------------------------------------

    @classmethod
    def find_level(cls, config: NavigationConfig, seed: int) -> tuple[int, str]:
        """Return the seed that succeeded and the initial state text.

        Raises:
            GenerationError: no room has a task whose shortest path has a length within the configured range.
            ConfigError: AI2-THOR has no task file, or it cannot be read.
        """
        if config.backend != EMBEDDED:
            task = _listed(cls.fixed_tasks(config) or (), seed)[0]
            assert task.seed is not None
            return task.seed, task.initial_state
        most = min(config.max_steps, config.horizon)
        distances = PUBLISHED_STARTS if config.starts == "published" else (0.0, math.inf)

        def draw(rng: Any) -> str | None:
            state = draw_task(rng, config.min_steps, most, distances)
            return None if state is None else state.text()

        advice = f"widen min_steps={config.min_steps} to max_steps={most}; too few rooms have such a path"
        return first_level(draw, cls.profile.name, seed, config.max_tries, advice)

    @classmethod
    def make_task(cls, config: Any, seed: int) -> Task:
        """Generate the level of ``seed`` as a task of the split ``base``; see the base class."""
        return cls.make_level(config, seed)[0]

    @classmethod
    def make_level(cls, config: Any, seed: int) -> tuple[Task, ...]:
        """Generate the level of ``seed`` as one task per split; the tasks differ only in the instruction."""
        if config.backend != EMBEDDED:
            return _listed(cls.fixed_tasks(config) or (), seed)
        used, level = cls.find_level(config, seed)
        kind = parse_state(level).target.type
        words = {BASE: base_instruction(kind), COMMON_SENSE: common_sense_instruction(kind)}
        task_id = f"{cls.profile.name}-{config.digest()}-{used}"
        return tuple(Task(task_id, used, level, text, eval_set=split) for split, text in words.items())

    @classmethod
    def fixed_tasks(cls, config: Any) -> tuple[Task, ...] | None:
        """Return the tasks of the task files; None for the embedded rooms. See the base class."""
        if config.backend == EMBEDDED:
            return None
        if not config.task_files:
            raise ConfigError(
                "navigation in AI2-THOR takes its tasks from files; name one or more with --set "
                'navigation.task_files=["FILE"]'
            )
        if files_digest(config.task_files) != config.task_digest:
            raise ConfigError(
                f"the tasks in {', '.join(config.task_files)} are not those of this config (task_digest "
                f"{config.task_digest}); restore the old files or build a new store"
            )
        prefix = f"{cls.profile.name}-{config.digest()}"
        return tuple(
            Task(f"{prefix}-{seed}", seed, level, instruction, eval_set=split)
            for split, seed, level, instruction in read_task_files(config.task_files)
        )

    @classmethod
    def instruction_for(cls, level: str) -> str:
        """Return the instruction that names the target of a level."""
        return base_instruction(parse_state(level).target.type)

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return the state as canonical JSON."""
        return cls._checked_state(initial_state).text()

    @classmethod
    def describe_state(cls, state: str) -> str:
        """Return scene, pose and target; see the base class."""
        read = parse_state(state)
        pose, target = read.pose, read.target
        return (
            f"{read.scene}: agent at x {pose.x:.2f} z {pose.z:.2f} m, yaw {pose.rotation:g}, horizon {pose.horizon:g}; "
            f"target {target.type} at x {target.x:.2f} z {target.z:.2f} m, {read.distance():.2f} m away"
        )

    # --- gymnasium ---------------------------------------------------------------------------------------------------

    @classmethod
    def _checked_state(cls, text: object) -> NavigationState:
        state = parse_state(text)
        if state.backend == EMBEDDED:
            check_room(state)
        return state

    def _start_in(self, state: NavigationState) -> None:
        self._world.load(state)
        self._start, self._actions = state, []
        self._ended = self._is_near()

    def _info(self) -> Info:
        remaining = self.config.horizon - len(self._actions)
        return {"dist": self._distance(), "remaining_turns": remaining, "success": self._is_near()}

    def step(self, action: SupportsIndex) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Take one turn.

        Raises:
            ValueError: ``action`` is not in the action space.
            gymnasium.error.ResetNeeded: the episode is over.
        """
        index = self.checked_index(action, ended=self._ended)
        moved, worked = self._take(index)
        valid = index != UNUSABLE_INDEX
        info = {"moved": moved, "last_action_success": worked, "action_is_valid": valid, **self._info()}
        near = info["success"]
        truncated = not near and info["remaining_turns"] == 0
        reward = self.config.step_reward + (self.config.success_reward if near else 0.0)
        return self._frame(), reward, near, truncated, info

    def _repeat(self, name: str) -> None:
        self._take(self.encode_action(name))

    def _take(self, index: int) -> tuple[bool, bool]:
        """Execute a turn; return whether the agent moved, and whether the action succeeded."""
        before = self._world.state.pose
        worked = index != UNUSABLE_INDEX and self._world.act(ACTIONS[index])
        after = self._world.state.pose
        self._actions.append(ACTIONS[index] if index != UNUSABLE_INDEX else UNUSABLE)
        self._ended = self._is_near() or len(self._actions) >= self.config.horizon
        return math.hypot(after.x - before.x, after.z - before.z) > STILL, worked

    # --- PIVOT -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> NavigationState:
        """The current state as a record."""
        return self._world.state

    def state_text(self) -> str:
        """Return the current state as ``navigation-json-1``."""
        return self._world.state.text()

    def changing_state(self) -> str:
        """Return the agent's pose; room and target are constant."""
        return "{" + self._world.state.agent_text() + "}"

    def _picture(self) -> bytes:
        state = self._world.state
        if isinstance(self._world, RoomWorld) and state.room_json is not None:
            return _room_picture(state.room_json, state.pose, self.config.image_format)
        return super()._picture()

    def _distance(self) -> float:
        return self._world.state.distance()

    def _is_near(self) -> bool:
        return self._distance() <= REACH


def _listed(tasks: tuple[Task, ...], seed: int) -> tuple[Task, ...]:
    """Return the tasks of one state: that of this seed, else the one at index ``seed`` modulo the number of tasks."""
    number = next((task.seed for task in tasks if task.seed == seed), tasks[seed % len(tasks)].seed)
    return tuple(task for task in tasks if task.seed == number)


@lru_cache(maxsize=1024)
def _room_picture(room_json: str, pose: Pose, image_format: str) -> bytes:
    """Draw and encode a view; cached, because splits share levels and rollouts of a level revisit the same poses."""
    return codec(image_format).encode(draw_view(room_json, pose)[0])
