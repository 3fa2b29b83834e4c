"""The distinct frames of one task: each is hashed and encoded once, however often the eight rollouts come back to it.

Episodes start from one level and revisit the same few states; only about one frame in eight is new. Where an
environment can name its picture (``frame_key``) and leave it undrawn (``draw_frames``), a known one is not even drawn.
"""

from collections.abc import Hashable

import numpy as np

from ..environments.base import Frame, PivotEnv
from ..images import frame_id
from ..messages import EncodedFrame


class FrameBook:
    """Frames of one task by their id, in the order in which they were first seen."""

    def __init__(self) -> None:
        """Start empty."""
        self.frames: dict[str, EncodedFrame] = {}
        self._ids: dict[Hashable, str] = {}

    def id_of(self, env: PivotEnv, frame: Frame) -> str:
        """Return the id of the frame that ``env`` shows now, and store the frame if it is new.

        Raises:
            ImageError: the environment gave no RGB frame.
        """
        key = env.frame_key()
        known = None if key is None else self._ids.get(key)
        if known is not None:
            return known
        if frame.size == 0:  # NO_FRAME: the environment left it undrawn
            drawn = env.render()
            frame = drawn if isinstance(drawn, np.ndarray) else frame
        name = frame_id(frame)
        if name not in self.frames:
            height, width = frame.shape[:2]
            image_format, image = env.encode_frame(frame)
            self.frames.setdefault(name, EncodedFrame(name, width, height, image_format, image))
        if key is not None:
            self._ids[key] = name
        return name
