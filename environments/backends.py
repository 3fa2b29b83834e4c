"""What environments with a choice of backend share: behind one seam an embedded world of our own, or a simulator."""

from ..images import Frame, encode_jpeg, encode_png
from .base import EnvConfig

EMBEDDED = "embedded"


class BackendConfig(EnvConfig):
    """Settings of an environment with a choice of backend. The embedded one repeats exactly and costs little."""

    backend: str = EMBEDDED
    """What runs behind the environment; subclasses list the choices."""

    @property
    def simulator(self) -> str:
        """The backend."""
        return self.backend

    @property
    def repeats_exactly(self) -> bool:
        """The embedded world does."""
        return self.backend == EMBEDDED

    @property
    def most_instances(self) -> int | None:
        """One simulator process for each of our own."""
        return None if self.backend == EMBEDDED else 1


def encoded(frame: Frame, image_format: str) -> bytes:
    """Return a frame in the format of the settings, ``jpeg`` or ``png``."""
    return encode_jpeg(frame) if image_format == "jpeg" else encode_png(frame)


__all__ = ["EMBEDDED", "BackendConfig", "encoded"]
