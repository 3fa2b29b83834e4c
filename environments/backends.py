"""Base classes of environments with two backends: a world embedded in PIVOT, or an external simulator.

The environment counts turns, rewards and success; a world holds positions and renders frames. Restoring an earlier
moment means loading the first state and re-executing the actions, so a world needs no snapshots.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import AfterValidator

from ..core.errors import LevelError
from ..core.identity import canonical_json
from ..core.images import CODECS, Frame, codec, decode
from .base import EnvConfig, Info, Source, TurnRewards
from .generated import LevelEnv

EMBEDDED = "embedded"


def _codec_name(name: str) -> str:
    """Check that pictures can be stored under a codec's name."""
    if name not in CODECS:
        raise ValueError(f"found {name!r}, expected one of {', '.join(CODECS)}")
    return name


ImageCodec = Annotated[str, AfterValidator(_codec_name)]
"""A setting that names the codec of frames, from :data:`pivot.core.images.CODECS`."""

State = TypeVar("State")


class BackendConfig(TurnRewards):
    """Settings of an environment with a choice of backend. The embedded one is deterministic and cheap."""

    backend: str = EMBEDDED
    """Program that simulates the world; subclasses list the choices."""
    stand_in: ClassVar[str]
    """Noun phrase for the dataset card: what the embedded world replaces."""
    simulated: ClassVar[str]
    """Noun phrase for the dataset card: third-party material in the simulator's pictures."""

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """Note that the embedded world replaces the simulator."""
        return (self.stand_in,) if self.backend == EMBEDDED else ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """Empty for the embedded world, which is generated; third-party models and textures for a simulator."""
        return () if self.backend == EMBEDDED else (Source(self.simulated, None),)

    @property
    def simulator(self) -> str:
        """The backend."""
        return self.backend

    @property
    def repeats_exactly(self) -> bool:
        """True for the embedded world only."""
        return self.backend == EMBEDDED

    @property
    def tolerance(self) -> float:
        """0.02 m for a simulator, 0 for the embedded world."""
        return 0.0 if self.backend == EMBEDDED else 0.02

    @property
    def most_instances(self) -> int | None:
        """One for a simulator: each worker process runs one simulator process."""
        return None if self.backend == EMBEDDED else 1


class World(ABC, Generic[State]):
    """The backend of one environment instance, used for all of its levels."""

    @abstractmethod
    def load(self, state: State) -> None:
        """Load a state in place of the current one.

        Raises:
            LevelError: the state cannot be loaded; the world is unchanged.
            SimulatorError: the simulator failed.
        """

    @abstractmethod
    def draw(self) -> Frame:
        """Return a lossless RGB picture of the current state."""

    @abstractmethod
    def frame_key(self) -> Hashable | None:
        """Return a key such that equal keys imply equal frames of a level, or None if frames may vary."""

    def close(self) -> None:
        """Release the resources of the world."""


class BackendEnv(LevelEnv):
    """An environment on top of a :class:`World`; subclasses define a turn."""

    config: Any
    """A :class:`BackendConfig` with ``image_format``, the name of a codec."""
    _world: Any
    """A :class:`World`."""

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; call ``reset`` before any other method."""
        super().__init__(config, render_mode)
        self.blocks = self.config.backend != EMBEDDED
        self._start: Any = None
        self._actions: list[str] = []  # names, one a turn

    @abstractmethod
    def _start_in(self, state: Any) -> None:
        """Start an episode."""

    @abstractmethod
    def _info(self) -> Info:
        """Return what ``info`` says of the current state."""

    @abstractmethod
    def _repeat(self, name: str) -> None:
        """Execute an action without computing reward, info or frame."""

    @classmethod
    @abstractmethod
    def _checked_state(cls, text: object) -> Any:
        """Parse and check the initial state of an episode.

        Raises:
            LevelError: the text is none.
        """

    @classmethod
    def check_ready(cls, config: Any) -> None:
        """Start the simulator and look at a picture of it, once in a process; see the base class."""
        if config.backend != EMBEDDED:
            _check(cls, config)

    def _begin(self, text: str) -> Info:
        self._start_in(self._checked_state(text))
        return self._info()

    def snapshot(self) -> bytes:
        """Return the first state and the actions since: going back is doing them again."""
        start = None if self._start is None else self._start.text()
        return canonical_json({"actions": self._actions, "start": start}).encode()

    def restore(self, snapshot: bytes) -> Frame:
        """Restore a snapshot; see the base class.

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
        self._begin(start)
        for name in names:
            self._repeat(name)
        return self._frame()

    def close(self) -> None:
        """Release the resources of the world."""
        self._world.close()

    def frame_key(self) -> Hashable | None:
        """Return the key of the current frame; see the base class."""
        return self._world.frame_key()

    def encode_frame(self, frame: Frame) -> tuple[str, bytes]:
        """Return format and bytes of the current frame, which decode to exactly ``frame``."""
        return self.config.image_format, self._picture()

    def _picture(self) -> bytes:
        """Return the encoded picture of the current state."""
        return codec(self.config.image_format).encode(self._world.draw())

    def _draw(self) -> Frame:
        return decode(self._picture())  # as the model sees it


@cache
def _check(env_type: type[BackendEnv], config: BackendConfig) -> None:
    env_type(config)._world.check()


def installed(package: str, backend: str) -> str:
    """Return the installed version of a package that a backend requires.

    Raises:
        ValueError: the package is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise ValueError(
            f"the backend {backend} needs {package}; install it with: pip install 'pivot-vlm[{backend}]'"
        ) from error
