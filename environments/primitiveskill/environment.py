"""PrimitiveSkill: a robot arm over a table, controlled by pick, place and push.

There are four tasks: align two cubes, put them on their targets, build a tower, put an apple into a drawer and close
it. A turn executes up to two primitives whose coordinates are clipped to the workspace. After every primitive the
stages of the task are checked; a stage stays achieved once it was. Success ends the episode at once. States are
``primitiveskill-json-1`` texts (see ``state.py``). The backend is an embedded table by default, or ManiSkill.

An action is its name, such as ``pick(107,64,20)|place(0,-185,120)``. Frames are 420x420 pixels, by default decoded
from JPEG, so that the dataset stores exactly what a model saw.
"""

import json
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from pydantic import Field, field_validator, model_validator

from ...core.errors import LevelError
from ...core.identity import canonical_json
from ...core.images import codec
from ..backends import EMBEDDED, BackendConfig, BackendEnv, ImageCodec, installed
from ..base import EnvConfig, EnvProfile, Frame, ParsedAction, TurnRewards
from ..generated import TextSpace, first_level
from .actions import ARITY, LARGEST, MOST_PRIMITIVES, UNUSABLE, Primitive, join, read_primitives
from .levels import draw_level
from .maniskill.world import ManiSkillWorld
from .state import MANISKILL, SkillState, parse_state
from .table.tabletop import TabletopWorld, check_rest
from .tasks import CUBE, DRAWER_TRAVEL, KINDS, TARGETS, Scene, TaskKind, reached, tray_centre
from .tasks import update_achieved as update
from .view.picture import draw_scene
from .world import CAMERAS, CameraName, World, side_of

ART = 1
"""Version of kinematics and renderer; part of the environment's version, because results of equal actions differ."""


class PrimitiveSkillConfig(BackendConfig):
    """Settings of PrimitiveSkill; horizon and rewards default to the paper's."""

    added: ClassVar[frozenset[str]] = TurnRewards.added | {"stage_reward"}
    stand_in: ClassVar[str] = (
        "the table of primitiveskill is embedded, with rules of motion and a ray caster in place of ManiSkill's "
        "physics and renderer"
    )
    simulated: ClassVar[str] = "pictures of ManiSkill's robot, table and objects"
    horizon: int = Field(default=6, gt=0, le=1000)
    """``T_max``, turns."""
    backend: Literal["embedded", "maniskill"] = "embedded"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Simulator: the embedded table, or ManiSkill (needs the ``maniskill`` extra)."""
    physics: Literal["physx_cpu", "physx_cuda"] = "physx_cpu"
    """ManiSkill's physics: on the CPU, where re-execution is bit-exact, or one scene on a GPU."""
    maniskill_version: str = ""
    """Filled in: the version of ManiSkill, which determines physics and pictures."""
    image_format: ImageCodec = "jpeg"
    """Codec of the stored frames, which are what a model sees: ``jpeg`` of quality 90, or the lossless ``png``."""
    camera: CameraName = "near"
    """Camera: ``near`` frames the workspace in 420x420 pixels, with cubes at least 28 pixels wide; ``far`` is the
    paper's, 300x300 pixels with cubes from 9 pixels."""
    tasks: tuple[str, ...] = tuple(KINDS)
    """Tasks to sample levels from, with equal probability."""
    max_tries: int = Field(default=20, ge=1, le=100_000)
    """Maximum number of seeds to try per level; the first one nearly always gives a layout."""
    stage_reward: float = 2.0
    """Reward of each stage that a turn newly achieves."""

    @field_validator("tasks", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        """Sort the names, so that equal choices are equal settings."""
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not names or any(name not in tuple(KINDS) for name in names):
            raise ValueError(f"tasks is {str(value)[:80]!r}, expected one or more of {', '.join(KINDS)}")
        return tuple(kind for kind in KINDS if kind in names)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("backend") != MANISKILL or values.get("maniskill_version"):
            return values
        return values | {"maniskill_version": installed("mani_skill", MANISKILL)}


class Primitives(TextSpace):
    """Space of action names; samples are one or two primitives."""

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is the name of an action, including the unusable one."""
        return isinstance(x, str) and _primitives_of(x) is not None

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a random action; its coordinates may be slightly outside every workspace."""
        drawn = []
        for _ in range(int(self.np_random.integers(1, MOST_PRIMITIVES + 1))):
            name = list(ARITY)[int(self.np_random.integers(len(ARITY)))]
            drawn.append(Primitive(name, tuple(int(n) for n in self.np_random.integers(-700, 701, ARITY[name]))))
        return join(tuple(drawn))


class PrimitiveSkillEnv(BackendEnv):
    """Table-top manipulation; see the module docstring and :class:`~pivot.environments.base.PivotEnv`."""

    config: PrimitiveSkillConfig
    config_type: ClassVar[type[EnvConfig]] = PrimitiveSkillConfig
    profile: ClassVar[EnvProfile] = EnvProfile(
        name="primitiveskill",
        version=f"1+art-{ART}",
        backend=EMBEDDED,
        answer_tag="answer",
        unusable_action=UNUSABLE,
        failure_modes=("timeout", "format", "wrong_target", "order_error"),
        state_format="primitiveskill-json-1",
        log_fields=("legal", "remaining_stages", "remaining_turns"),
        task_description=(
            "PrimitiveSkill: command a robot arm over a table with pick, place and push at coordinates in millimetres, "
            "up to two a turn, to line up, place or stack cubes, or to put an apple into a drawer and close it."
        ),
        default_tasks=364,
    )

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; call ``reset`` before any other method."""
        super().__init__(config, render_mode)
        self.action_space = Primitives()
        side = side_of(self.config.camera)
        self.observation_space = spaces.Box(0, 255, (side, side, 3), np.uint8)
        self._world: World = _world(self.config)
        self._achieved: tuple[bool, ...] = ()

    # --- levels ------------------------------------------------------------------------------------------------------

    @classmethod
    def find_level(cls, config: PrimitiveSkillConfig, seed: int) -> tuple[int, str]:
        """Draw layouts until one has enough space between the objects; see the base class."""

        def draw(rng: Any) -> str | None:
            state = draw_level(rng, config.backend, config.tasks)
            return None if state is None else state.text()

        advice = "raise max_tries or choose a different task"
        return first_level(draw, cls.profile.name, seed, config.max_tries, advice)

    @classmethod
    def instruction_for(cls, level: str) -> str:
        """Return the instruction of the task of a level."""
        return parse_state(level).kind.instruction

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return the layout only, as a state of the embedded table with no stage achieved."""
        state = cls._checked_state(initial_state)
        return SkillState(EMBEDDED, state.task, state.scene, (False,) * len(state.achieved)).text()

    @classmethod
    def describe_state(cls, state: str) -> str:
        """Return task, positions, the object in the hand and the achieved stages; see the base class."""
        read = parse_state(state)
        places = [
            f"{name} at ({', '.join(f'{value:.0f}' for value in at)})" for name, at in read.scene.positions.items()
        ]
        if read.scene.opening is not None:
            places.append(f"drawer open by {read.scene.opening:.0f} mm")
        grasp = f"; {read.scene.in_hand} held" if read.scene.in_hand else ""
        done = [stage for stage, flag in zip(read.kind.stages, read.achieved, strict=True) if flag]
        return f"{read.task}: {', '.join(places)}{grasp}; achieved: {', '.join(done) or 'nothing'}"

    # --- gymnasium ---------------------------------------------------------------------------------------------------

    @classmethod
    def _checked_state(cls, text: object) -> SkillState:
        """Parse the initial state of an episode: everything is at rest, and in ManiSkill the hand is empty.

        State texts lack velocities and rotations, so of ManiSkill's states they describe only levels completely.
        """
        state = parse_state(text)
        if state.backend == MANISKILL and state.scene.in_hand is not None:
            raise LevelError(f"{state.scene.in_hand} is held, but in ManiSkill an episode begins with an empty hand")
        check_rest(state)
        return state

    def _start_in(self, state: SkillState) -> None:
        if state.backend != self.config.backend:
            raise LevelError(f"the state is of the backend {state.backend}, expected {self.config.backend}")
        self._world.load(state)
        self._start, self._actions, self._achieved = state, [], state.achieved
        self._ended = reached(state.kind, state.scene)

    def step(self, action: str) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Take one turn.

        Raises:
            ValueError: ``action`` is not in the action space.
            gymnasium.error.ResetNeeded: the episode is over.
            SimulatorError: ManiSkill failed.
        """
        primitives = _primitives_of(action) if isinstance(action, str) else None
        if primitives is None:
            raise ValueError(f"{str(action)[:80]!r} is not the name of an action; use encode_action(name)")
        if self._ended:
            raise ResetNeeded(f"the {self.profile.name} episode is over or not begun; call reset() or restore() first")
        before = sum(self._achieved)
        success = self._take(action, primitives)
        truncated = not success and len(self._actions) == self.config.horizon
        config, stages = self.config, sum(self._achieved) - before
        reward = config.step_reward + config.stage_reward * stages + (config.success_reward if success else 0.0)
        info = {"legal": bool(primitives), **self._info()}
        return self._frame(), reward, success, truncated, info

    def _repeat(self, name: str) -> None:
        self._take(name, read_primitives(name)[0])

    def _take(self, action: str, primitives: tuple[Primitive, ...]) -> bool:
        """Execute a turn; return whether it reached the goal."""
        kind, success = self._kind, False
        for primitive in primitives:
            self._world.execute(primitive.clipped(kind.workspace))
            scene = self._world.scene
            self._achieved = update(kind, scene, self._achieved)
            success = reached(kind, scene)
            if success:
                break
        self._actions.append(action)
        self._ended = success or len(self._actions) >= self.config.horizon
        return success

    @property
    def _kind(self) -> TaskKind:
        if self._start is None:
            raise ResetNeeded(f"the {self.profile.name} episode is not begun; call reset() or restore() first")
        return self._start.kind

    def _info(self) -> dict[str, Any]:
        kind, scene = self._kind, self._world.scene
        return {
            "remaining_stages": len(self._achieved) - sum(self._achieved),
            "remaining_turns": self.config.horizon - len(self._actions),
            "success": reached(kind, scene),
            "observation_text": observation_text(kind, scene),
        }

    # --- PIVOT -------------------------------------------------------------------------------------------------------

    def parse_action(self, answer: str) -> ParsedAction | None:
        """Parse up to two primitives, None if the first part is not one. The payload says why the rest is void."""
        primitives, void = read_primitives(answer)
        return ParsedAction(join(primitives), _payload(primitives, void)) if primitives else None

    def encode_action(self, name: str, payload: str | None = None) -> str:
        """Return the name, which is the action; the payload must agree with it. See the base class."""
        primitives = _primitives_of(name)
        if primitives is None:
            raise ValueError(f"no action {name[:80]!r}; actions are like pick(10,-20,30)|place(0,0,60), or {UNUSABLE}")
        if payload is not None and not _repeats(payload, primitives):
            raise ValueError(f"the payload {payload[:80]!r} is not that of {name!r}")
        return name

    @property
    def state(self) -> SkillState:
        """The current state as a record."""
        return SkillState(self.config.backend, self._kind.name, self._world.scene, self._achieved)

    def state_text(self) -> str:
        """Return the current state as ``primitiveskill-json-1``."""
        return self.state.text()

    def _picture(self) -> bytes:
        if isinstance(self._world, TabletopWorld):
            scene = self._world.scene
            places = tuple(scene.positions.items())
            config = self.config
            return _tabletop_picture(
                self._kind.name, places, scene.in_hand, scene.opening, config.camera, config.image_format
            )
        return super()._picture()


def _world(config: PrimitiveSkillConfig) -> World:
    if config.backend == EMBEDDED:
        return TabletopWorld(config.camera)
    return ManiSkillWorld(config.physics, camera=config.camera)


def observation_text(kind: TaskKind, scene: Scene) -> str:
    """Return the text shown with the picture: workspace limits, unnamed positions, and sizes."""
    limits = ", ".join(f"{axis} {low} to {high}" for axis, (low, high) in zip("xyz", kind.workspace, strict=True))
    places = list(scene.positions.values())
    other = f"a cube has sides of {CUBE:.0f} mm"
    if kind.name == "place":
        places += TARGETS.values()
    if scene.opening is not None:
        places.append(tray_centre(scene.opening))
        other = f"the drawer is open by {scene.opening:.0f} of {DRAWER_TRAVEL:.0f} mm"
    shown = ",".join(f"({','.join(str(round(value)) for value in place)})" for place in places)
    return f"Workspace limits in mm: {limits}\nObject positions in mm: [{shown}]\nOther information: {other}"


def _primitives_of(name: str) -> tuple[Primitive, ...] | None:
    """Return the primitives of an action's name, an empty tuple for the unusable action; None for other texts."""
    if name == UNUSABLE:
        return ()
    primitives, void = read_primitives(name)
    small = all(abs(value) <= LARGEST for primitive in primitives for value in primitive.arguments)
    return primitives if primitives and void is None and small and join(primitives) == name else None


def _payload(primitives: tuple[Primitive, ...], void: str | None) -> str:
    calls = [{"name": primitive.name, "arguments": list(primitive.arguments)} for primitive in primitives]
    return canonical_json({"primitives": calls, "void": void})


def _repeats(payload: str, primitives: tuple[Primitive, ...]) -> bool:
    """Return whether the payload describes these primitives."""
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and payload == _payload(primitives, data.get("void")) and bool(primitives)


@lru_cache(maxsize=2048)
def _tabletop_picture(
    kind: str,
    places: tuple[tuple[str, Any], ...],
    in_hand: str | None,
    opening: float | None,
    camera: CameraName,
    image_format: str,
) -> bytes:
    """Draw and encode a scene; cached, because rollouts of a level share their first frame and often later ones."""
    scene = Scene(dict(places), in_hand, opening)
    return codec(image_format).encode(draw_scene(KINDS[kind], scene, CAMERAS[camera][kind]))
