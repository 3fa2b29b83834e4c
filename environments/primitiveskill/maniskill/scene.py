"""Tabletop as a ManiSkill environment: table, Panda arm, cubes, targets, drawer and apple, one camera.

Only the child process of ``process.py`` imports this module; it needs ManiSkill and torch. One environment serves all
four tasks. :meth:`Tabletop.enter` always rebuilds the scene before it places the objects: only then are two runs of the
same primitives bit-identical, because a used scene keeps contacts and solver state that no state dictionary contains.

Lengths are millimetres in the interface, metres inside ManiSkill.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import sapien  # pyright: ignore[reportMissingImports]
import sapien.physx  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from mani_skill import ASSET_DIR  # pyright: ignore[reportMissingImports]
from mani_skill.agents.robots import Panda  # pyright: ignore[reportMissingImports]
from mani_skill.envs.sapien_env import BaseEnv  # pyright: ignore[reportMissingImports]
from mani_skill.sensors.camera import CameraConfig  # pyright: ignore[reportMissingImports]
from mani_skill.utils import sapien_utils  # pyright: ignore[reportMissingImports]
from mani_skill.utils.scene_builder.table import TableSceneBuilder  # pyright: ignore[reportMissingImports]
from mani_skill.utils.structs.types import SceneConfig, SimConfig  # pyright: ignore[reportMissingImports]

from ....core.images import Frame
from ..state import SkillState, settled
from ..table.boxes import box_around, shifted
from ..tasks import (
    APPLE,
    CABINET_BOXES,
    CUBE,
    DRAWER_BOXES,
    DRAWER_TRAVEL,
    TARGET_RADIUS,
    TARGETS,
    Box,
    Point,
    Scene,
    TaskKind,
)
from ..world import CAMERAS, FAR, Camera, CameraName
from .arm import joint_angles

OPEN, SHUT = 0.04, -0.01
"""Commands of the gripper, distance of each finger from the middle in metres: open, and pressing on an object."""
AROUND = (45.0, 110.0)
"""Distance from the tool in x and y within which the hand may touch objects, millimetres."""
STILL = 1e-3
"""Speed below which an object counts as at rest, metres per second."""
HANGING = 0.06
"""Largest distance of the held object's lower end below the tool, metres."""
YCB, APPLE_MODEL = "assets/mani_skill2_ycb", "013_apple"
"""Folder of optional models below ManiSkill's assets, and name of the apple's."""
HAND_LINKS = ["panda_leftfinger", "panda_rightfinger", "panda_hand"]
COLOURS = {
    "red cube": (0.86, 0.12, 0.10),
    "green cube": (0.13, 0.62, 0.18),
    "purple cube": (0.52, 0.18, 0.70),
    "apple": (0.80, 0.10, 0.12),
    "left target": (0.93, 0.45, 0.42),
    "right target": (0.48, 0.80, 0.50),
}
TRAY_COLOUR, CABINET_COLOUR = (0.80, 0.62, 0.36), (0.42, 0.28, 0.17)
DRAWER_FRICTION = 40.0
"""Damping of the slide, newtons per metre per second; with it the tray stops where the hand leaves it."""
CUBE_FRICTION, CUBE_DENSITY, CUBE_BRAKE = 0.8, 500.0, 30.0
"""Cubes: friction coefficient, density in kg per cubic metre, and rotational damping in 1/s, so that they fall without
rotating."""
APPLE_BRAKE = 20.0
"""Rotational damping of the apple, 1/s: it rolls when pushed and stops soon, as on a tablecloth."""
SIMULATION_RATE, CONTROL_RATE, SOLVER_ITERATIONS = 100, 50, 40
"""Hertz, hertz, and solver iterations per simulation step. With ManiSkill's 15, fingers sink 2 mm into a cube."""


class Tabletop(BaseEnv):
    """See the module docstring."""

    SUPPORTED_ROBOTS = ("panda",)
    agent: Panda

    def __init__(self, sim_backend: str) -> None:
        """Create the environment; ``sim_backend`` is ManiSkill's name of the physics, such as ``physx_cpu``."""
        self._entered: SkillState | None = None
        self._camera: Camera = FAR
        self._things: dict[str, Any] = {}
        self._cabinet: Any = None
        super().__init__(
            num_envs=1,
            obs_mode="none",
            reward_mode="none",
            control_mode="pd_joint_pos",
            render_mode="rgb_array",
            robot_uids="panda",
            sim_backend=sim_backend,
            sim_config=SimConfig(
                sim_freq=SIMULATION_RATE,
                control_freq=CONTROL_RATE,
                scene_config=SceneConfig(solver_position_iterations=SOLVER_ITERATIONS),
            ),
        )

    @property
    def kind(self) -> TaskKind:
        """The current task."""
        assert self._entered is not None
        return self._entered.kind

    # Methods that ManiSkill calls

    @property
    def _default_human_render_camera_configs(self) -> CameraConfig:
        camera = self._camera
        eye, looked_at = ([length / 1000 for length in point] for point in (camera.eye, camera.looked_at))
        pose = sapien_utils.look_at(eye=eye, target=looked_at)
        return CameraConfig("render_camera", pose, camera.side, camera.side, camera.field_of_view, 0.01, 100)

    def _load_agent(self, options: dict[str, Any], *_: Any, **__: Any) -> None:
        super()._load_agent(options, sapien.Pose([-0.615, 0, 0]))

    def _load_scene(self, options: dict[str, Any]) -> None:
        TableSceneBuilder(self).build()
        self._things, self._cabinet = {}, None
        if self._entered is None:
            return
        for name, at in self._entered.scene.positions.items():
            build = self._apple if name == "apple" else self._cube
            self._things[name] = build(name, _pose(at))
        if self.kind.name == "place":
            for name, at in TARGETS.items():
                self._target(name, at)
        if self.kind.name == "drawer":
            self._cabinet = self._drawer()

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict[str, Any]) -> None:
        state = self._entered
        if state is None:
            return
        grip = 0.04
        if state.scene.in_hand is not None:
            grip = (APPLE if state.scene.in_hand == "apple" else CUBE) / 2000
        home = tuple(length / 1000 for length in self.kind.home)
        angles = [*joint_angles((home[0], home[1], home[2])), grip, grip]
        self.agent.reset(np.array(angles, dtype=np.float32))
        self.agent.robot.set_pose(sapien.Pose([-0.615, 0, 0]))
        for name, at in state.scene.positions.items():
            self._things[name].set_pose(_pose(at))
        if self._cabinet is not None:
            self._cabinet.set_qpos(np.array([(state.scene.opening or 0.0) / 1000], dtype=np.float32))

    # Methods for the controller

    def enter(self, state: SkillState, camera: CameraName) -> None:
        """Rebuild the scene of a state and its camera, with every object in its position and at rest."""
        self._entered, self._camera = state, CAMERAS[camera][state.task]
        self.reset(seed=0, options={"reconfigure": True})

    def command(self, angles: list[float], grip: float) -> None:
        """Set target angles of the arm and target distance of the fingers, and simulate one control step."""
        if self.gpu_sim_enabled:
            share = (2 * grip - OPEN - SHUT) / (OPEN - SHUT)
            self._step_action(torch.tensor([[*angles, share]], dtype=torch.float32, device=self.device))
            return
        # The same as ManiSkill's controller, but without tensors, which take longer than the physics.
        for joint, target in zip(self.agent.robot.active_joints, (*angles, grip, grip), strict=True):
            joint._objs[0].set_drive_target(target)
        for _ in range(SIMULATION_RATE // CONTROL_RATE):
            self.scene.step()

    @property
    def tool(self) -> tuple[float, float, float]:
        """Midpoint of the fingertips, metres."""
        return _vector(self.agent.tcp.pose.p)

    @property
    def fingers(self) -> tuple[float, float]:
        """Distance of each finger from the middle, metres."""
        left, right = self.agent.robot.get_qpos()[0, -2:].tolist()
        return left, right

    def resistance(self, in_hand: str | None) -> tuple[float, float, float]:
        """Return the total contact force on fingers, hand and the held object, newtons.

        Forces between hand and object cancel in the sum. The hand's contacts alone would not show what the object
        touches: contacts are reported without friction, and friction carries the object.
        """
        force = self.agent.robot.get_net_contact_forces(HAND_LINKS).sum(dim=1)
        if in_hand is not None:
            force = force + self._things[in_hand].get_net_contact_forces()
        return _vector(force)

    def height_around(self, x: float, y: float, in_hand: str | None) -> float:
        """Return the height of the highest object that the hand may touch on its way down to a point, metres."""
        scene = self.scene_now()
        boxes = [box_around(name, at) for name, at in scene.positions.items() if name != in_hand]
        if scene.opening is not None:
            boxes += [*CABINET_BOXES, *(shifted(box, (0.0, scene.opening, 0.0)) for box in DRAWER_BOXES)]
        near = [
            high[2]
            for low, high in boxes
            if low[0] - AROUND[0] < 1000 * x < high[0] + AROUND[0]
            and low[1] - AROUND[1] < 1000 * y < high[1] + AROUND[1]
        ]
        return max(near, default=0.0) / 1000

    def depth(self, in_hand: str | None) -> float:
        """Return how far the held object extends below the tool, metres."""
        if in_hand is None:
            return 0.0
        return self.tool[2] - _vector(self._things[in_hand].pose.p)[2] + (APPLE if in_hand == "apple" else CUBE) / 2000

    def moving(self) -> bool:
        """Return whether an object still moves; the held object is ignored, because it trembles a little."""
        in_hand = self.grasped()
        for name, thing in self._things.items():
            linear, angular = (
                float(torch.linalg.norm(velocity)) for velocity in (thing.linear_velocity, thing.angular_velocity)
            )
            if name != in_hand and (linear > STILL or angular > 20 * STILL):
                return True
        return self._cabinet is not None and float(torch.abs(self._cabinet.get_qvel()).max()) > STILL

    def grasped(self) -> str | None:
        """Return the object in the hand at home, or None: the nearest object at that height, where nothing can rest.

        Contact forces of the fingers are not used, because for a round object the reported forces flicker.
        """
        tool = self.tool
        high = [name for name, thing in self._things.items() if _vector(thing.pose.p)[2] > tool[2] - HANGING]
        return min(high, key=lambda name: math.dist(_vector(self._things[name].pose.p), tool), default=None)

    def scene_now(self) -> Scene:
        """Return the current positions, opening of the drawer and object in the hand."""
        positions: dict[str, Point] = {}
        for name, thing in self._things.items():
            x, y, z = _vector(thing.pose.p)
            positions[name] = (1000 * x, 1000 * y, 1000 * z)
        opening = None
        if self._cabinet is not None:
            opening = min(max(1000 * float(self._cabinet.get_qpos()[0, 0]), 0.0), DRAWER_TRAVEL)
        return settled(Scene(positions, self.grasped(), opening))

    def picture(self) -> Frame:
        """Return the camera's picture, RGB."""
        frame = self.render_rgb_array()
        assert isinstance(frame, torch.Tensor)
        return np.ascontiguousarray(frame[0].cpu().numpy())

    # Objects

    def _cube(self, name: str, pose: sapien.Pose) -> Any:
        builder = self.scene.create_actor_builder()
        half = [CUBE / 2000] * 3
        rough = sapien.physx.PhysxMaterial(CUBE_FRICTION, CUBE_FRICTION, 0.0)
        builder.add_box_collision(half_size=half, material=rough, density=CUBE_DENSITY)
        builder.add_box_visual(half_size=half, material=COLOURS[name])
        builder.set_initial_pose(pose)
        cube = builder.build(name=name)
        for body in cube._bodies:
            body.set_angular_damping(CUBE_BRAKE)
        return cube

    def _apple(self, name: str, pose: sapien.Pose) -> Any:
        builder = self.scene.create_actor_builder()
        rough = sapien.physx.PhysxMaterial(1.0, 1.0, 0.0)
        builder.add_sphere_collision(radius=APPLE / 2000, material=rough, density=500)
        if not _add_apple_model(builder):
            builder.add_sphere_visual(radius=APPLE / 2000, material=COLOURS[name])
            builder.add_capsule_visual(
                pose=sapien.Pose([0, 0, APPLE / 2000], [0.7071068, 0, 0.7071068, 0]),
                radius=0.003,
                half_length=0.008,
                material=(0.3, 0.2, 0.1),
            )
        builder.set_initial_pose(pose)
        apple = builder.build(name=name)
        for body in apple._bodies:
            body.set_angular_damping(APPLE_BRAKE)
            body.set_linear_damping(0.5)
        return apple

    def _target(self, name: str, at: Point) -> None:
        builder = self.scene.create_actor_builder()
        builder.add_cylinder_visual(
            pose=sapien.Pose([0, 0, 0], [0.7071068, 0, 0.7071068, 0]),
            radius=TARGET_RADIUS / 1000,
            half_length=0.001,
            material=COLOURS[name],
        )
        builder.set_initial_pose(_pose(at))
        builder.build_kinematic(name=name)

    def _drawer(self) -> Any:
        builder = self.scene.create_articulation_builder()
        housing = builder.create_link_builder()
        housing.set_name("housing")
        _add_boxes(housing.add_box_collision, housing.add_box_visual, CABINET_BOXES, CABINET_COLOUR)
        tray = builder.create_link_builder(housing)
        tray.set_name("tray")
        tray.set_joint_name("slide")
        _add_boxes(tray.add_box_collision, tray.add_box_visual, DRAWER_BOXES, TRAY_COLOUR)
        # A prismatic joint moves along the x-axis of its frame; a quarter turn about z maps it to the world's y.
        along_y = sapien.Pose(q=[0.7071068, 0, 0, 0.7071068])
        tray.set_joint_properties("prismatic", [[0.0, DRAWER_TRAVEL / 1000]], along_y, along_y, damping=DRAWER_FRICTION)
        builder.initial_pose = sapien.Pose()
        cabinet = builder.build(name="drawer", fix_root_link=True)
        for link in cabinet.get_links():
            link.disable_gravity = True
        return cabinet


def _add_apple_model(builder: Any) -> bool:
    """Add the YCB apple's mesh, scaled to the size of the built-in apple; return whether it is installed.

    ManiSkill's command stores it (``python -m mani_skill.utils.download_asset ycb``). Only the appearance changes:
    collisions use the built-in shape, so a task is the same with and without the model.
    """
    folder = ASSET_DIR / YCB
    model = folder / "models" / APPLE_MODEL / "textured.obj"
    try:
        box = json.loads((folder / "info_pick_v0.json").read_text())[APPLE_MODEL]["bbox"]
        low, high = ([float(length) for length in box[end]] for end in ("min", "max"))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not model.is_file():
        return False
    widths = [b - a for a, b in zip(low, high, strict=True)]
    scale = APPLE / 1000 / max(widths)
    middle = [-(a + b) / 2 * scale for a, b in zip(low, high, strict=True)]
    builder.add_visual_from_file(str(model), pose=sapien.Pose(middle), scale=[scale] * 3)
    return True


def _add_boxes(collide: Callable[..., Any], show: Callable[..., Any], boxes: tuple[Box, ...], colour: Any) -> None:
    for low, high in boxes:
        middle = [(a + b) / 2000 for a, b in zip(low, high, strict=True)]
        half = [(b - a) / 2000 for a, b in zip(low, high, strict=True)]
        collide(sapien.Pose(middle), half, density=500)
        show(sapien.Pose(middle), half, colour)


def _pose(at: Point) -> sapien.Pose:
    return sapien.Pose([length / 1000 for length in at])


def _vector(row: torch.Tensor) -> tuple[float, float, float]:
    x, y, z = row[0].tolist()
    return x, y, z
