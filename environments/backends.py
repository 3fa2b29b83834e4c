"""What environments with a choice of backend share: behind one seam an embedded world of our own, or a simulator.

The environment keeps turns, rewards and success; a world keeps where things are and what is seen. Going back to an
earlier moment is always "load the first state, do the same actions again", so a world needs no snapshots.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import AfterValidator

from ..errors import LevelError
from ..identity import canonical_json
from ..images import CODECS, Frame, codec, decode
from .base import NO_FRAME, EnvConfig, PivotEnv, Source, TurnRewards

EMBEDDED = "embedded"


def _codec_name(name: str) -> str:
    """Check that pictures can be stored under a codec's name."""
    if name not in CODECS:
        raise ValueError(f"found {name!r}, expected one of {', '.join(CODECS)}")
    return name


ImageCodec = Annotated[str, AfterValidator(_codec_name)]
"""A setting that names the codec of frames, from :data:`pivot.images.CODECS`."""

State = TypeVar("State")


class BackendConfig(TurnRewards):
    """Settings of an environment with a choice of backend. The embedded one repeats exactly and costs little."""

    backend: str = EMBEDDED
    """What runs behind the environment; subclasses list the choices."""
    stand_in: ClassVar[str]
    """What the embedded world stands in for, half a sentence for the dataset card."""
    simulated: ClassVar[str]
    """What the simulator's pictures show that others made, half a sentence for the dataset card."""

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """The embedded world stands in for the simulator."""
        return (self.stand_in,) if self.backend == EMBEDDED else ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The embedded world is generated; a simulator shows models and textures of others."""
        return () if self.backend == EMBEDDED else (Source(self.simulated, None),)

    @property
    def simulator(self) -> str:
        """The backend."""
        return self.backend

    @property
    def repeats_exactly(self) -> bool:
        """The embedded world does."""
        return self.backend == EMBEDDED

    @property
    def tolerance(self) -> float:
        """Two centimetres for a simulator."""
        return 0.0 if self.backend == EMBEDDED else 0.02

    @property
    def most_instances(self) -> int | None:
        """One simulator process for each of our own."""
        return None if self.backend == EMBEDDED else 1


class World(ABC, Generic[State]):
    """What runs behind an environment; made once for each, and good for all its levels."""

    @abstractmethod
    def load(self, state: State) -> None:
        """Go to a state, whatever was before.

        Raises:
            LevelError: the state cannot be loaded; the world is then as it was.
            SimulatorError: the simulator failed.
        """

    @abstractmethod
    def draw(self) -> Frame:
        """Return what is seen now, RGB, lossless."""

    @abstractmethod
    def frame_key(self) -> Hashable | None:
        """Return a key that is equal only for equal frames of a level, or None where frames may vary."""

    def close(self) -> None:
        """Release what the world holds."""


class BackendEnv(PivotEnv):
    """An environment over a world; subclasses say what a turn is."""

    config: Any
    """A :class:`BackendConfig` with ``image_format``, the name of a codec."""
    _world: Any
    """A :class:`World`."""

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; ``reset`` must come before anything else."""
        super().__init__(config, render_mode)
        self.blocks = self.config.backend != EMBEDDED
        self.task_instruction = ""
        self._start: Any = None
        self._actions: list[str] = []  # names, one a turn
        self._ended = True

    @abstractmethod
    def _begin(self, state: Any) -> None:
        """Start an episode."""

    @abstractmethod
    def _repeat(self, name: str) -> None:
        """Take a turn of which only the end counts."""

    @classmethod
    @abstractmethod
    def _checked_state(cls, text: object) -> Any:
        """Return a state that an episode can begin with.

        Raises:
            LevelError: the text is none.
        """

    @classmethod
    def check_ready(cls, config: Any) -> None:
        """Start the simulator and look at a picture of it, once in a process; see the base class."""
        if config.backend != EMBEDDED:
            _check(cls, config)

    def snapshot(self) -> bytes:
        """Return the first state and the actions since: going back is doing them again."""
        start = None if self._start is None else self._start.text()
        return canonical_json({"actions": self._actions, "start": start}).encode()

    def restore(self, snapshot: bytes) -> Frame:
        """Return to a snapshot; see the base class.

        Raises:
            LevelError: the bytes are not a snapshot of this environment.
            SimulatorError: the simulator failed.
        """
        try:
            data = json.loads(snapshot)
            names, start = list(data["actions"]), data["start"]
            for name in names:
                self.encode_action(name)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise LevelError(f"not a {self.profile.name} snapshot: {type(error).__name__}: {error}") from error
        if len(names) > self.config.horizon:
            raise LevelError(f"not a {self.profile.name} snapshot: {len(names)} turns, at most {self.config.horizon}")
        self._begin(self._checked_state(start))
        for name in names:
            self._repeat(name)
        return self._frame()

    def render(self) -> Frame | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the current frame."""
        return self._new_frame() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Release what the world holds."""
        self._world.close()

    def frame_key(self) -> Hashable | None:
        """Return what the frame depends on within the level."""
        return self._world.frame_key()

    def encode_frame(self, frame: Frame) -> tuple[str, bytes]:
        """Return format and bytes of the current frame, which decode to exactly ``frame``."""
        return self.config.image_format, self._picture()

    def _picture(self) -> bytes:
        """Return the encoded picture of the current state."""
        return codec(self.config.image_format).encode(self._world.draw())

    def _frame(self) -> Frame:
        return self._new_frame() if self.draw_frames else NO_FRAME

    def _new_frame(self) -> Frame:
        """Return a new read-only frame, as the model sees it."""
        frame = decode(self._picture())
        frame.flags.writeable = False
        return frame


@cache
def _check(env_type: type[BackendEnv], config: BackendConfig) -> None:
    env_type(config)._world.check()


def installed(package: str, backend: str) -> str:
    """Return the version of a package that a backend needs.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise ValueError(
            f"the backend {backend} needs {package}; install it with: pip install 'pivot-vlm[{backend}]'"
        ) from error


__all__ = ["EMBEDDED", "BackendConfig", "BackendEnv", "ImageCodec", "World", "installed"]
